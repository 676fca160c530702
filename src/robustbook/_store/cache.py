"""The cache: arrays outside git, one file for each configuration and its code.

An interrupted study finds here what it has computed. The name of a file is the sum of
its configuration and of the code that computes it, and the file holds both, so that
nothing is mistaken for something else. It also holds when and how long that took, which
a study that reads it has to tell. Who computes a file holds a lock on it, which the
system takes from processes that die.
"""

import hashlib
import json
import os
import struct
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from time import perf_counter, time
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from robustbook._store.files import atomic_write, check_writable, user_cache
from robustbook._store.provenance import fingerprint, running_code

Arrays = dict[str, npt.NDArray[Any]]
Configuration = Mapping[str, str | int | float | bool | None]

ENVIRONMENT_VARIABLE: Final = "ROBUSTBOOK_CACHE"
_KEY: Final = "configuration"
_RUN: Final = "run"
#: What numpy, zipfile and zlib raise for a file that was cut, flipped or overwritten.
_DAMAGED: Final = (
    EOFError, KeyError, OSError, ValueError, struct.error, zipfile.BadZipFile,
    zlib.error, RuntimeError,  # a flipped bit names encryption
)  # fmt: skip


def cache_directory() -> Path:
    """Return the folder of the cache: ROBUSTBOOK_CACHE, or one of the user's."""
    value = os.environ.get(ENVIRONMENT_VARIABLE, "").strip()
    if value:
        return Path(value).expanduser().resolve()
    return user_cache("studies")


def cached_arrays(
    configuration: Configuration,
    compute: Callable[[], Arrays],
    *,
    code: str | tuple[str, ...],
    directory: Path | str | None = None,
) -> Arrays:
    """Read the arrays of a configuration, or compute and store them.

    The configuration, plain numbers and strings, is all that the arrays depend on
    beside the code: the modules that compute them (``__name__`` for the caller's own)
    and what they import. A file that cannot be read is computed anew. Who asks for what
    another process is computing waits for it; inside :func:`passing_by`, that is a
    BusyError. After a :func:`deadline`, nothing is computed: a DeadlineError. A cache
    that cannot be written to is an OSError before anything is computed; where the disk
    is full afterwards, a warning.
    """
    for name, value in configuration.items():
        if value is not None and type(value) not in (str, int, float, bool):
            raise TypeError(
                f"configuration: {name}: expected a plain number or string, got "
                f"{type(value).__name__}"
            )
    modules = (code,) if isinstance(code, str) else code
    key = json.dumps([dict(configuration), fingerprint(*modules)], sort_keys=True)
    folder = cache_directory() if directory is None else Path(directory)
    path = folder / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.npz"
    stored = _read(path, key)
    if stored is not None:
        return stored
    if not _in_time.get()():
        raise DeadlineError("the time is up; what was computed is in the cache")
    check_writable(
        folder, what="cache", remedy=f"set {ENVIRONMENT_VARIABLE} to another folder"
    )
    with _alone_at(path):
        # Who had to wait finds what another has computed.
        stored = _read(path, key)
        return _computed(path, key, compute) if stored is None else stored


def _computed(path: Path, key: str, compute: Callable[[], Arrays]) -> Arrays:
    start = perf_counter()
    # What is begun is not stopped by a part of its own.
    with earlier_work() as earlier, deadline(None):
        arrays = compute()
    for name in (_KEY, _RUN):
        if name in arrays:
            raise ValueError(f"compute: expected no array named {name!r}")
    run = {
        "seconds": perf_counter() - start + earlier.seconds,
        "ended": earlier.ended or datetime.now(UTC).isoformat(timespec="seconds"),
    }
    content = {_KEY: np.array(key), _RUN: np.array(json.dumps(run)), **arrays}
    try:
        with atomic_write(path) as file:
            np.savez_compressed(file, **content)  # type: ignore[arg-type]
    except OSError as error:
        warnings.warn(
            f"cache: {path} could not be written ({error.strerror or error}); what "
            "was computed is used now, and will be computed again next time",
            RuntimeWarning,
            stacklevel=3,
        )
    return arrays


def _read(path: Path, key: str) -> Arrays | None:
    if not path.is_file():
        return None
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
            if str(stored[_KEY]) != key:
                return None
            run = json.loads(str(stored[_RUN]))
            arrays = {name: stored[name] for name in stored if name not in (_KEY, _RUN)}
            seconds, ended = float(run["seconds"]), str(run["ended"])
    except PermissionError:
        raise  # it is there, and no damaged file
    except _DAMAGED:
        return None
    for listener in _listeners:
        listener.add(seconds, ended)
    return arrays


# ----------------------------------------------------- one at a time, of many


class BusyError(RuntimeError):
    """Another process is computing what was asked for."""


_passing: ContextVar[bool] = ContextVar("passing", default=False)


@contextmanager
def passing_by(passing: bool = True) -> Iterator[None]:
    """Do not wait for what others compute: a BusyError, so that one can go on."""
    token = _passing.set(passing)
    try:
        yield
    finally:
        _passing.reset(token)


# ------------------------------------------------------- before it is too late


class DeadlineError(RuntimeError):
    """It is too late to begin; what was computed before is kept."""


#: Whether the next computation is begun.
_in_time: ContextVar[Callable[[], bool]] = ContextVar("in_time", default=lambda: True)


@contextmanager
def deadline(end: float | None, *, spare: int = 0) -> Iterator[None]:
    """Begin nothing after a time, as ``time.time()`` has it; None is no such time.

    What is begun before is not stopped. So many computations are begun in any case:
    with one, whoever comes again and again is done in the end.
    """
    begun = count()
    token = _in_time.set(lambda: end is None or next(begun) < spare or time() < end)
    try:
        yield
    finally:
        _in_time.reset(token)


@contextmanager
def _alone_at(path: Path) -> Iterator[None]:
    """Hold the lock of a file; where that is held, wait or, passing by, give up."""
    from filelock import FileLock, Timeout  # not needed to read

    lock = FileLock(path.with_suffix(".lock"))
    try:
        lock.acquire(blocking=not _passing.get())
    except Timeout:
        raise BusyError(f"{path}: another process is computing it") from None
    try:
        yield
    finally:
        # While it is held: who waited finds that it is gone, and makes another.
        Path(lock.lock_file).unlink(missing_ok=True)
        lock.release()


# ----------------------------------------------------------- who measured it


@dataclass
class EarlierWork:
    """Files read from the cache, the seconds of their runs, and the first one's end."""

    files: int = 0
    seconds: float = 0.0
    ended: str | None = None

    def add(self, seconds: float, ended: str) -> None:
        self.files += 1
        self.seconds += seconds
        self.ended = min(self.ended or ended, ended)


_listeners: list[EarlierWork] = []

# Whoever imports this will ask for sums, of the code as it is imported now.
running_code()


@contextmanager
def earlier_work() -> Iterator[EarlierWork]:
    """Count what is read from the cache inside the block.

    So that a study's time is that of the runs that measured, not of the one that read.
    """
    earlier = EarlierWork()
    _listeners.append(earlier)
    try:
        yield earlier
    finally:
        # Two that are equal are not the same.
        _listeners[:] = [one for one in _listeners if one is not earlier]
