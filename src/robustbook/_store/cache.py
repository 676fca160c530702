"""The cache: arrays outside git, one file for each configuration and its code.

An interrupted study finds its earlier results here. The name of a file is the sum of a
configuration and of the code that computes it. The file holds both, so that it cannot
be mistaken for another, and when and for how long it was computed, since a study that
reads it has to report that. A process that computes a file holds a lock on it, which
the system releases if the process dies.
"""

import hashlib
import json
import math
import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from time import perf_counter, time
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from robustbook._store.files import atomic_write, check_writable, user_cache
from robustbook._store.provenance import fingerprint

Arrays = dict[str, npt.NDArray[Any]]
Configuration = Mapping[str, str | int | float | bool | None]

ENVIRONMENT_VARIABLE: Final = "ROBUSTBOOK_CACHE"
_KEY: Final = "configuration"
_RUN: Final = "run"


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
) -> Arrays:
    """Read the arrays of a configuration, or compute and store them.

    The arrays depend on nothing but the configuration, plain numbers and strings, and
    the code: the modules that compute them (``__name__`` for the caller) and all that
    these import. A damaged file is computed again. If another process is computing the
    file, this one waits; inside :func:`without_waiting`, a BusyError is raised instead.
    After a :func:`deadline`, nothing is computed and a DeadlineError is raised. A cache
    that cannot be written to is an OSError before anything is computed; a disk that is
    full afterwards is a warning.
    """
    modules = (code,) if isinstance(code, str) else code
    key = json.dumps([dict(configuration), fingerprint(*modules)], sort_keys=True)
    folder = cache_directory()
    path = folder / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.npz"
    stored = _read(path, key)
    if stored is not None:
        return stored
    if not _in_time.get()():
        raise DeadlineError("the time is up; the results so far are in the cache")
    check_writable(
        folder, what="cache", remedy=f"set {ENVIRONMENT_VARIABLE} to another folder"
    )
    with _locked(path):
        # Another process may have computed it in the meantime.
        stored = _read(path, key)
        return _computed(path, key, compute) if stored is None else stored


def _computed(path: Path, key: str, compute: Callable[[], Arrays]) -> Arrays:
    start = perf_counter()
    # A computation that has begun may begin computations of its own.
    with earlier_work() as earlier, deadline(None):
        arrays = compute()
    elapsed = perf_counter() - start
    run = {
        # The time of files that were computed meanwhile is theirs.
        "seconds": elapsed - sum(earlier.times[name][0] for name in earlier.computed),
        "ended": datetime.now(UTC).isoformat(timespec="seconds"),
        "files": earlier.times,
    }
    for listener in _listeners:
        listener.add(path.name, run, computed=True)
    content = {_KEY: np.array(key), _RUN: np.array(json.dumps(run)), **arrays}
    try:
        with atomic_write(path) as file:
            np.savez_compressed(file, **content)  # type: ignore[arg-type]
    except OSError as error:
        warnings.warn(
            f"cache: {path} could not be written ({error.strerror or error}); the "
            "result is used now, and will be computed again next time",
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
            run = {"files": {}, **run, "seconds": float(run["seconds"])}
    except PermissionError:
        raise  # the file exists and may be intact
    except Exception:  # numpy, zipfile and zlib raise many kinds for a damaged file
        return None
    for listener in _listeners:
        listener.add(path.name, run)
    return arrays


# ----------------------------------------------------------------- locking


class BusyError(RuntimeError):
    """Another process is computing the same arrays."""


_wait: ContextVar[bool] = ContextVar("wait", default=True)


@contextmanager
def without_waiting(skip: bool = True) -> Iterator[None]:
    """Raise a BusyError instead of waiting for another process; wait if not `skip`."""
    token = _wait.set(not skip)
    try:
        yield
    finally:
        _wait.reset(token)


# ---------------------------------------------------------------- deadlines


class DeadlineError(RuntimeError):
    """It is too late to begin a computation; earlier results are kept."""


#: Says whether the next computation may begin.
_in_time: ContextVar[Callable[[], bool]] = ContextVar("in_time", default=lambda: True)


@contextmanager
def deadline(end: float | None, *, spare: int = 0) -> Iterator[None]:
    """Begin no computation after `end`, in seconds of ``time.time()``, if not None.

    Computations that began earlier are not stopped. The first `spare` ones begin in any
    case: with one, a command that is repeated often enough is done in the end.
    """
    started = count()
    token = _in_time.set(lambda: end is None or next(started) < spare or time() < end)
    try:
        yield
    finally:
        _in_time.reset(token)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold the lock of a file; if another process does, wait or raise a BusyError."""
    from filelock import FileLock, Timeout  # reading needs no lock

    lock = FileLock(path.with_suffix(".lock"))
    try:
        lock.acquire(blocking=_wait.get())
    except Timeout:
        raise BusyError(f"{path}: another process is computing it") from None
    try:
        yield
    finally:
        # Before the release: a process that waited then makes a new lock file.
        Path(lock.lock_file).unlink(missing_ok=True)
        lock.release()


# ------------------------------------------------------------- earlier runs


@dataclass
class EarlierWork:
    """Files read from the cache and those that they were computed from, each once.

    ``times`` holds the seconds and the end of each, by name, and those of the files
    that are computed in the block, ``computed``, which are not earlier work.
    """

    times: dict[str, tuple[float, str]] = field(default_factory=dict)
    computed: set[str] = field(default_factory=set)

    def add(self, name: str, run: Mapping[str, Any], *, computed: bool = False) -> None:
        """Count a file that is read or computed."""
        self.times |= {name: (run["seconds"], run["ended"]), **run["files"]}
        if computed:
            self.computed.add(name)

    @property
    def _earlier(self) -> list[tuple[float, str]]:
        return [run for name, run in self.times.items() if name not in self.computed]

    @property
    def files(self) -> int:
        """Number of files."""
        return len(self._earlier)

    @property
    def seconds(self) -> float:
        """How long they took to compute."""
        return math.fsum(seconds for seconds, _ in self._earlier)

    @property
    def ended(self) -> str | None:
        """When the first of them was computed."""
        return min((ended for _, ended in self._earlier), default=None)


_listeners: list[EarlierWork] = []


@contextmanager
def earlier_work() -> Iterator[EarlierWork]:
    """Count the files that are read from the cache inside the block.

    The time of a study is that of the runs that computed these files, too.
    """
    earlier = EarlierWork()
    _listeners.append(earlier)
    try:
        yield earlier
    finally:
        # By identity: two listeners may be equal.
        _listeners[:] = [each for each in _listeners if each is not earlier]
