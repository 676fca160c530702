"""Run independent calls in processes of this machine, or on a Dask cluster.

If a process dies, its calls run again. Results are stored in the cache, whose folder
all processes share.
"""

from __future__ import annotations

import copy
import os
import pickle
import socket
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

from tqdm import tqdm

from robustbook._checks.extras import extra
from robustbook._store.cache import ENVIRONMENT_VARIABLE, cache_directory
from robustbook._store.files import check_writable

#: Seconds to wait for a scheduler, and for its first worker.
_PATIENCE: Final = 20

Call = Callable[[], Any]
Outcomes = Iterator[tuple[int, Any]]


class LostWorkerError(RuntimeError):
    """A call ends every process that runs it."""

    def __init__(self) -> None:
        super().__init__("it ended its process, as a lack of memory does")


@dataclass(frozen=True)
class Engine:
    """Processes of this machine, or the scheduler of a cluster."""

    processes: int = 1
    scheduler: str | None = None

    @classmethod
    def named(cls, name: str, *, device: str = "cpu") -> Engine:
        """Return the engine ``local``, ``local:N``, or that of a Dask scheduler.

        ``local`` has a process for each core, but one on a CUDA device, for which
        several would wait. Another name is a ValueError; a missing package is an error
        that names its extra.
        """
        kind, _, rest = name.partition(":")
        if kind in ("dask", "tcp", "tls", "ws", "wss") and rest.startswith("//"):
            with extra("cluster"):
                import distributed  # noqa: F401
            return cls(scheduler=f"tcp:{rest}" if kind == "dask" else name)
        if name == "local":
            import joblib

            return cls(1 if device.startswith("cuda") else joblib.cpu_count())
        if kind == "local" and rest.isdecimal() and int(rest):
            return cls(int(rest))
        raise ValueError(
            "engine: expected local, local:N for N processes, or the address "
            f"dask://HOST:PORT of a Dask scheduler; got {name!r}"
        )

    @property
    def here(self) -> bool:
        """Whether calls run in this process."""
        return self.scheduler is None and self.processes == 1

    def check(self) -> None:
        """Raise an OSError if the scheduler does not answer or has no worker."""
        if self.scheduler is not None:
            with _connected(self.scheduler):
                pass

    def results(self, calls: Sequence[Call], *, title: str) -> Outcomes:
        """Yield the index of each call and its result or exception, as calls end.

        Unless calls run in this process, functions and arguments are pickled. If a
        process dies, its calls run again; a call that ends every process that runs it
        yields a LostWorkerError. If the scheduler is lost, that is an OSError.
        """
        outcomes = tqdm(
            self._outcomes(dict(enumerate(calls))),
            total=len(calls),
            desc=title,
            disable=None,
        )
        yield from outcomes

    def _outcomes(self, waiting: dict[int, Call]) -> Outcomes:
        if self.here:
            yield from map(_outcome, waiting, waiting.values())
            return
        with _shared_cache() as run:
            if self.scheduler is None:
                yield from _on_processes(self.processes, waiting, run)
            else:
                yield from _on_cluster(self.scheduler, waiting, run)


def _on_processes(count: int, waiting: dict[int, Call], run: Any) -> Outcomes:
    import joblib
    from joblib.externals.loky.process_executor import TerminatedWorkerError

    def parallel(numbers: Iterable[int]) -> Outcomes:
        # One call a task: where Ctrl-C drops calls, joblib fails at those that wait.
        pool = joblib.Parallel(
            n_jobs=count, batch_size=1, return_as="generator_unordered"
        )
        yield from pool(joblib.delayed(run)(n, waiting[n]) for n in numbers)

    while waiting:
        try:
            for number, result in parallel([*waiting]):
                del waiting[number]
                yield number, result
        except TerminatedWorkerError:
            # The calls that were running are among the first. Each of these runs alone,
            # so that the call that ends its process is known.
            for number in [*waiting][: 2 * count]:
                try:
                    ((_, result),) = parallel([number])
                except TerminatedWorkerError:
                    result = LostWorkerError()
                del waiting[number]
                yield number, result


def _on_cluster(address: str, waiting: dict[int, Call], run: Any) -> Outcomes:
    # Joblib's own backend would wait for ever for a call whose workers died.
    from distributed import CancelledError, KilledWorker, as_completed

    with _connected(address) as client:
        futures = {
            client.submit(run, *one, pure=False): one[0] for one in waiting.items()
        }
        for future in as_completed(futures, loop=client.loop):
            try:
                yield future.result()
            except KilledWorker:
                yield futures[future], LostWorkerError()
            except CancelledError as error:
                raise OSError(
                    f"engine: {address} is gone; results so far are kept, and the same "
                    "command continues from there"
                ) from error


@contextmanager
def _connected(address: str) -> Iterator[Any]:
    """Connect to a scheduler that answers and has a worker."""
    from distributed import Client

    try:
        client = Client(address, timeout=_PATIENCE, set_as_default=False)
    except (OSError, ValueError) as error:
        raise OSError(
            f"engine: no scheduler answers at {address} ({error}); `dask scheduler` "
            "starts one and prints its address"
        ) from error
    with client:
        try:
            client.wait_for_workers(1, timeout=_PATIENCE)
        except TimeoutError as error:
            raise OSError(
                f"engine: {address} has no worker after {_PATIENCE} s; `dask worker "
                f"{address} --nthreads 1` starts one"
            ) from error
        yield client


@contextmanager
def _shared_cache() -> Iterator[Any]:
    """Return a function that runs a call on a worker with this machine's cache.

    As long as the run lasts, a file in the cache marks the folder.
    """
    cache = cache_directory()
    remedy = f"set {ENVIRONMENT_VARIABLE} to another folder"
    check_writable(cache, what="cache", remedy=remedy)
    mark = cache / f".run-{uuid4().hex[:12]}"
    mark.touch()
    try:
        yield partial(run_on_worker, mark, Path.cwd())
    finally:
        mark.unlink(missing_ok=True)


def run_on_worker(mark: Path, folder: Path, number: int, call: Call) -> tuple[int, Any]:
    """Run a call if the worker sees the cache; modules in `folder` can be imported."""
    if not mark.is_file():
        return number, OSError(
            f"engine: {mark.parent} on {socket.gethostname()} is not the folder of "
            f"that name here; set {ENVIRONMENT_VARIABLE}, where the run is "
            "started, to a folder that all machines share"
        )
    os.environ[ENVIRONMENT_VARIABLE] = str(mark.parent)
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    return _outcome(number, call)


def _outcome(number: int, call: Call) -> tuple[int, Any]:
    try:
        return number, call()
    except (Exception, SystemExit) as error:
        error.add_note(traceback.format_exc())
        try:
            # Some exceptions of libraries can be pickled but not made again.
            pickle.dumps(copy.copy(error))
        except Exception:
            return number, RuntimeError(f"{type(error).__name__}: {error}")
        return number, error
