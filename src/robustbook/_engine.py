"""Run independent calls here, in processes of this machine, or on a Dask cluster.

What calls compute stays in the cache, whose folder all processes share, so a run that
was stopped continues from there.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from tqdm import tqdm

from robustbook._checks.extras import extra
from robustbook._store.cache import ENVIRONMENT_VARIABLE, cache_directory

#: Seconds to wait for a scheduler, and for its first worker.
_PATIENCE: Final = 20

_DIED: Final = (
    "engine: a call ended every process that ran it, as a lack of memory does, or the "
    "scheduler is gone; results so far are kept, and the same command continues"
)


@dataclass(frozen=True)
class Engine:
    """Processes of this machine, or the scheduler of a cluster."""

    processes: int = 1
    scheduler: str | None = None

    @classmethod
    def named(cls, name: str, *, device: str = "cpu") -> Engine:
        """Return the engine ``local``, ``local:N``, or that of a Dask scheduler.

        ``local`` has a process for each core, but one on a CUDA device, for which
        several would wait.
        """
        kind, _, rest = name.partition(":")
        if kind in ("dask", "tcp", "tls", "ws", "wss") and rest.startswith("//"):
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

    def results(
        self, calls: Sequence[Callable[[], Any]], *, title: str
    ) -> Iterator[Any]:
        """Yield the results of calls in their order; raise the first error.

        Unless calls run in this process, functions and arguments are pickled. A dead
        process is an OSError, on a cluster after Dask has tried its call elsewhere.
        """
        if self.here:
            results: Iterator[Any] = (call() for call in calls)
        else:
            cache = cache_directory()
            cache.mkdir(parents=True, exist_ok=True)
            run = partial(run_on_worker, cache, Path.cwd())
            if self.scheduler is None:
                results = _on_processes(self.processes, run, calls)
            else:
                results = _on_cluster(self.scheduler, run, calls)
        yield from tqdm(results, total=len(calls), desc=title, disable=None)


def _on_processes(count: int, run: Any, calls: Sequence[Any]) -> Iterator[Any]:
    import joblib
    from joblib.externals.loky.process_executor import TerminatedWorkerError

    # One call a task: where Ctrl-C drops calls, joblib fails at those that wait.
    pool = joblib.Parallel(count, batch_size=1, return_as="generator")
    try:
        yield from pool(joblib.delayed(run)(call) for call in calls)
    except TerminatedWorkerError as error:
        raise OSError(_DIED) from error


def _on_cluster(address: str, run: Any, calls: Sequence[Any]) -> Iterator[Any]:
    from distributed import CancelledError, KilledWorker

    with connect(address) as client:
        try:
            futures = client.map(run, calls, pure=False)
            yield from (future.result() for future in futures)
        except (CancelledError, KilledWorker) as error:
            raise OSError(_DIED) from error


def connect(address: str) -> Any:
    """Return a client of a scheduler that has a worker; an OSError if none answers."""
    with extra("cluster"):
        from distributed import Client
    try:
        client = Client(address, timeout=_PATIENCE, set_as_default=False)
        client.wait_for_workers(1, timeout=_PATIENCE)
    except (OSError, ValueError) as error:
        raise OSError(
            f"engine: no scheduler with a worker answers at {address} ({error}); `dask "
            "scheduler` and `dask worker ADDRESS --nthreads 1` start them"
        ) from error
    return client


def run_on_worker(cache: Path, folder: Path, call: Callable[[], Any]) -> Any:
    """Run a call with a shared cache; modules in `folder` can be imported."""
    if not cache.is_dir():
        raise OSError(
            f"engine: a worker has no folder {cache}; set {ENVIRONMENT_VARIABLE}, "
            "where the run is started, to a folder that all machines share"
        )
    os.environ[ENVIRONMENT_VARIABLE] = str(cache)
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    return call()
