"""Where independent calls run: processes of this machine, or a Dask cluster.

Joblib and Dask run them; here are the names of engines, and what happens to calls whose
process dies: they run again. Arrays go through the one cache, which all processes see.
"""

from __future__ import annotations

import os
import pickle
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

from tqdm import tqdm

from robustbook._checks.extras import extra
from robustbook._store.cache import ENVIRONMENT_VARIABLE, cache_directory
from robustbook._store.files import check_writable

#: Seconds in which a scheduler answers, and has a worker.
_PATIENCE: Final = 20
_LOST: Final = "it ended the process that ran it, as a lack of memory does"

Call = Callable[[], Any]
Outcomes = Iterator[tuple[int, Any]]


class LostWorkerError(RuntimeError):
    """A call ends the process that runs it."""


@dataclass(frozen=True)
class Engine:
    """Processes of this machine, or the scheduler of a cluster."""

    processes: int = 1
    scheduler: str | None = None

    @classmethod
    def named(cls, name: str, *, device: str = "cpu") -> Engine:
        """``local``, ``local:N``, or the address of a Dask scheduler.

        Processes on one CUDA device would wait for each other: there, ``local`` is one.

        A ValueError names what is expected; a missing package says which extra has it.
        """
        kind, _, rest = name.partition(":")
        if kind in ("dask", "tcp", "tls", "ws", "wss") and rest.startswith("//"):
            with extra("cluster"):
                import distributed  # noqa: F401
            return cls(scheduler=f"tcp:{rest}" if kind == "dask" else name)
        if name == "local":
            import joblib

            cuda = device.startswith("cuda")
            return cls(processes=1 if cuda else joblib.cpu_count())
        if kind == "local" and rest.isdecimal() and int(rest):
            return cls(processes=int(rest))
        raise ValueError(
            "engine: expected local, local:N for N processes, or the address "
            f"dask://HOST:PORT of a Dask scheduler; got {name!r}"
        )

    @property
    def here(self) -> bool:
        """Whether it is this process."""
        return self.scheduler is None and self.processes == 1

    def check(self) -> None:
        """Raise an OSError if no scheduler answers, or if it has no worker."""
        if self.scheduler is not None:
            with _connected(self.scheduler):
                pass

    def results(self, calls: Sequence[Call], *, title: str) -> Outcomes:
        """Yield the number of each call with what it returns or raises, as they end.

        Functions and arguments can be pickled, unless all is done here. What a lost
        process was at runs again; a call that ends every process that runs it is a
        LostWorkerError. An engine that is gone is an OSError.
        """
        numbered = dict(enumerate(calls))
        with tqdm(total=len(numbered), desc=title, disable=None) as bar:
            for outcome in self._outcomes(numbered):
                bar.update()
                yield outcome

    def _outcomes(self, numbered: dict[int, Call]) -> Outcomes:
        if self.here:
            yield from (_outcome(*one) for one in numbered.items())
            return
        place = _Place(cache_directory(), f".run-{uuid4().hex[:12]}", str(Path.cwd()))
        with place.marked():
            if self.scheduler is None:
                yield from _on_processes(self.processes, numbered, place)
            else:
                yield from _on_cluster(self.scheduler, numbered, place)


def _on_processes(count: int, waiting: dict[int, Call], place: _Place) -> Outcomes:
    import joblib
    from joblib.externals.loky.process_executor import TerminatedWorkerError

    losses, suspects = 0, list[int]()
    while waiting:
        batch = suspects[:1] or [*waiting]
        # Few at a time: where Ctrl-C drops calls, its thread fails at those that wait.
        parallel = joblib.Parallel(
            n_jobs=count, batch_size=1, return_as="generator_unordered"
        )
        try:
            for number, result in parallel(
                joblib.delayed(place.outcome)(number, waiting[number])
                for number in batch
            ):
                del waiting[number]
                yield number, result
        except TerminatedWorkerError:
            losses += 1
            if suspects:
                del waiting[batch[0]]
                yield batch[0], LostWorkerError(_LOST)
        if suspects:
            suspects = suspects[1:]
        elif losses > 1:
            # What was running is among the first; alone, the guilty one shows.
            losses, suspects = 0, [*waiting][: 2 * count]


def _on_cluster(address: str, numbered: dict[int, Call], place: _Place) -> Outcomes:
    # Not through joblib's backend: it waits for ever for a call whose workers died.
    from distributed import CancelledError, KilledWorker, as_completed

    with _connected(address) as client:
        futures = {
            client.submit(place.outcome, number, call, pure=False): number
            for number, call in numbered.items()
        }
        for future in as_completed(futures, loop=client.loop):
            try:
                yield future.result()
            except KilledWorker:
                yield futures[future], LostWorkerError(_LOST)
            except CancelledError as error:
                raise OSError(
                    f"engine: {address} is gone; what ended is kept, and the same "
                    "command goes on from there"
                ) from error


@contextmanager
def _connected(address: str) -> Iterator[Any]:
    """A client of a scheduler that answers and has a worker."""
    from distributed import Client

    try:
        client = Client(address, timeout=_PATIENCE, set_as_default=False)
    except (OSError, ValueError) as error:
        raise OSError(
            f"engine: no scheduler answers at {address} ({error}); `dask scheduler` "
            "starts one and says its address"
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


@dataclass(frozen=True)
class _Place:
    """What the processes of a run share: the folder of the cache, and of modules."""

    store: Path
    mark: str
    folder: str

    @contextmanager
    def marked(self) -> Iterator[None]:
        """Leave a file by which workers know the folder."""
        remedy = f"set {ENVIRONMENT_VARIABLE} to another folder"
        check_writable(self.store, what="cache", remedy=remedy)
        (self.store / self.mark).touch()
        try:
            yield
        finally:
            (self.store / self.mark).unlink(missing_ok=True)

    def outcome(self, place: int, call: Call) -> tuple[int, Any]:
        """Run a call on a worker."""
        if not (self.store / self.mark).is_file():
            import socket

            return place, OSError(
                f"engine: {self.store} on {socket.gethostname()} is not the folder of "
                f"that name here; set {ENVIRONMENT_VARIABLE}, where the run is "
                "started, to a folder that all machines share"
            )
        os.environ[ENVIRONMENT_VARIABLE] = str(self.store)
        if self.folder not in sys.path:
            sys.path.insert(0, self.folder)
        return _outcome(place, call)


def _outcome(place: int, call: Call) -> tuple[int, Any]:
    try:
        return place, call()
    except (Exception, SystemExit) as error:
        error.add_note(traceback.format_exc())
        try:
            # Its own bytes of this moment: would it arrive where the call came from?
            pickle.loads(pickle.dumps(error))
        except Exception:  # of a library that did not think of this
            return place, RuntimeError(f"{type(error).__name__}: {error}")
        return place, error
