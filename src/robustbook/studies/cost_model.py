"""What an evaluation of the agreement kernel costs, against what the machine can do."""

from __future__ import annotations

import math
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any, Final

import torch
import torch.distributed as dist
from torch import Tensor
from torch.multiprocessing import get_context

from robustbook.agreement import posterior_agreement
from robustbook.agreement.solver import (
    Kernel,
    Shards,
    agreement_search,
    maximize,
    shards_of,
)
from robustbook.studies._run import Row, Run, Setting, one_thread
from robustbook.studies.agreement_speed import ordinary_problem, shortest

__all__ = ["COUNTS", "SETTINGS", "over_ranks", "predicted_parts", "rows"]

#: What an evaluation of two views does, counted in the kernel: for each entry
#: exponentials, sweeps (an operation of all entries of a buffer with another's), and
#: products with a vector; operations on a column of a number a sample; calls a chunk.
COUNTS: Final = {"exp": 2, "sweep": 16, "product": 9, "column": 38, "call": 105}
#: Of small problems the shifted logits and their sum are kept, which saves sweeps.
KEPT_COUNTS: Final = COUNTS | {"sweep": 10, "call": 76}
#: Entries of a chunk, and of the largest problem that is kept.
CHUNK: Final = 2**17
KEPT: Final = 2**18
_ALONE: Final = shards_of(None)
#: A micro-benchmark lasts at least so many CPU seconds.
_LEAST: Final = 0.004
_EXCHANGES: Final = 30
#: CPU seconds of work of each rank before an exchange that is timed.
_WORK: Final = 0.001
#: Evaluations of several ranks that are timed together: they do not start as one.
_IN_A_ROW: Final = 10


@dataclass(frozen=True, kw_only=True)
class CostSetting(Setting):
    """Sizes that are timed."""

    dataset: str = "synthetic"
    #: Samples and classes on one thread.
    sizes: tuple[tuple[int, int], ...]
    #: The same over ranks, and over threads.
    spread: tuple[tuple[int, int], ...]
    ranks: tuple[int, ...]
    threads: tuple[int, ...]
    repeat: int
    #: Entries of the problems that are streamed.
    streamed: int

    kind = "made up"


SETTINGS: Final = {
    "quick": (
        CostSetting(
            sizes=((1000, 10), (20_000, 10), (1000, 1000)),
            spread=((1000, 10), (1000, 1000)),
            ranks=(1, 2), threads=(1, 2), repeat=3, streamed=600_000,
        ),
    ),
    "full": (
        CostSetting(
            sizes=(
                (1000, 10), (10_000, 10), (100_000, 10), (1_000_000, 10),
                (1000, 100), (10_000, 100), (100_000, 100),
                (100, 1000), (1000, 1000), (10_000, 1000),
            ),
            spread=((5000, 10), (50_000, 10), (3000, 1000)),
            ranks=(1, 2, 4, 8), threads=(1, 2), repeat=15, streamed=2_000_000,
        ),
    ),
}  # fmt: skip


def rows(run: Run[CostSetting]) -> Iterator[Row]:
    """Time evaluations of the kernel, in turns with micro-benchmarks of the machine.

    Rows told apart by ``what``: "machine" (cores, and bytes a second that a large array
    is read and written with); "size" and "ranks", each with the CPU seconds of an
    evaluation, summed over ranks (``cpu``: the shortest of repeats; ``cpu_median``),
    the ``seconds`` that pass (and ``seconds_median``), the micro-benchmarks (in CPU
    seconds ``exp``, ``sweep``, ``product`` an entry, ``column`` a sample, ``read`` a
    byte, ``call``, ``exchange``; in seconds that pass ``latency``, what an exchange
    adds to the work before it) and the ``predicted`` CPU seconds; with ranks, ``solve``
    are seconds of the whole measure, and ``gather`` of having all logits sent to one
    rank and measured there; "threads"; "passes", by problem: evaluations and passes
    from arrays, passes from a stream (``streamed``), and both without a survey
    (``blind``).
    """
    setting, seed = run.setting, run.seed
    yield {"what": "machine", "cores": _cores(), "bytes_per_second": _bandwidth()}
    with one_thread():
        for samples, classes in run.progress(setting.sizes):
            pair = ordinary_problem(samples, classes, seed)
            row = _timed(Kernel(*pair), setting.repeat)
            yield {"what": "size", "samples": samples, "classes": classes, **row}
    samples, classes = setting.spread[-1]
    kernel = Kernel(*ordinary_problem(samples, classes, seed))
    for threads in run.progress(setting.threads):
        with one_thread():
            torch.set_num_threads(threads)
            spent = shortest(
                partial(kernel.evaluate_all, [1.0 / kernel.scale], columns=False),
                setting.repeat,
            )
        yield {
            "what": "threads", "threads": threads, "samples": samples,
            "classes": classes, "seconds": spent,
        }  # fmt: skip
    yield from over_ranks(setting, seed)
    for name, noise, classes in (
        ("little noise", 0.3, 10), ("some noise", 1.0, 10), ("noise", 2.0, 10),
        ("much noise", 5.0, 10), ("hundred classes", 2.0, 100), ("two classes", 2.0, 2),
    ):  # fmt: skip
        yield {
            "what": "passes",
            "problem": name,
            **_passes(noise, setting.streamed // classes, classes, seed),
        }


def predicted_parts(
    row: Row, samples: int, classes: int, ranks: int = 1
) -> dict[str, float]:
    """CPU seconds of an evaluation by micro-benchmarks, all ranks together."""
    entries = samples * classes
    kept = entries <= ranks * KEPT
    chunks = ranks * math.ceil(samples / ranks / max(1, CHUNK // classes))
    times = {
        "exp": entries,
        "sweep": entries,
        "product": entries,
        "column": samples,
        "call": chunks,
    }
    counts = KEPT_COUNTS if kept else COUNTS
    parts = {name: counts[name] * row[name] * n for name, n in times.items()}
    # Kept are three float64 numbers; else each view has a float32.
    parts["read"] = (24 if kept else 8) * row["read"] * entries
    parts["exchange"] = ranks * row["exchange"]
    return parts


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1


def _seconds(
    action: Callable[[], object], clock: Callable[[], float], least: float = 0.0
) -> float:
    """Mean seconds of an action that is repeated for a while."""
    count, spent, start = 0, -1.0, clock()
    while spent < least:
        action()
        count, spent = count + 1, clock() - start
    return spent / count


def _bandwidth() -> float:
    """Bytes a second of a triad whose arrays no cache holds."""
    x, y, out = torch.ones(3, 2**22, dtype=torch.float64)
    with one_thread():
        spent = shortest(lambda: torch.add(x, y, alpha=3.0, out=out), 20)
    return 3 * 8 * len(out) / spent


class _Machine:
    """Micro-benchmarks in buffers of the kernel's shape."""

    def __init__(self, kernel: Kernel, shards: Shards) -> None:
        self.shards = shards
        classes = kernel.num_classes
        length = max(1, min(CHUNK // classes, kernel.num_samples // shards.size))
        shape = (3, length, classes)
        self.one, self.two, self.out = torch.rand(shape, dtype=torch.float64).neg_()
        self.vector = torch.ones(classes, dtype=torch.float64)
        self.column = torch.ones(length, dtype=torch.float64)
        self.three = torch.ones(3, length, dtype=torch.float64)
        self.far = torch.ones(2**23, dtype=torch.float64)
        self.near = torch.empty(2**15, dtype=torch.float64)
        self.single = torch.ones(1, dtype=torch.float64)

    def times(self) -> dict[str, float]:
        """Seconds of each, with all ranks at work at once."""
        entries = self.one.numel()
        tasks: dict[str, tuple[Callable[[], object], int]] = {
            "exp": (lambda: torch.exp(self.one, out=self.out), entries),
            "sweep": (lambda: torch.mul(self.one, self.two, out=self.out), entries),
            "product": (
                lambda: torch.mv(self.one, self.vector, out=self.column),
                entries,
            ),
            "column": (lambda: torch.div(self.three, self.three), self.three.numel()),
            "read": (self._read, self.far.nbytes),
            "call": (lambda: torch.mul(self.single, self.single, out=self.single), 1),
        }
        times = {}
        for name, (action, divisor) in tasks.items():
            self.shards.reduce(lambda: [0.0])
            times[name] = _seconds(action, time.process_time, _LEAST) / divisor
        # Of short columns the calls are all that counts; they are counted apart.
        calls = times["call"] / self.three.numel()
        times["column"] = max(times["column"] - calls, 0.0)
        return times | self._exchanges()

    def _exchanges(self) -> dict[str, float]:
        """Of ranks that come from work, as in an evaluation: what they add to it."""
        self.shards.reduce(lambda: [0.0])
        start, busy, worked = time.perf_counter(), time.process_time(), 0.0
        for _ in range(_EXCHANGES):
            since = time.thread_time()
            while (spent := time.thread_time() - since) < _WORK:
                pass
            worked += spent
            self.shards.reduce(lambda: [0.0] * 10, [math.fsum] * 10)
        taken, busy = time.perf_counter() - start, time.process_time() - busy
        turns = max(1.0, self.shards.size / _cores())
        return {
            "latency": (taken - turns * worked) / _EXCHANGES,
            "exchange": (busy - worked) / _EXCHANGES,
        }

    def _read(self) -> None:
        for part in self.far.view(-1, len(self.near)):
            self.near.copy_(part)


def _timed(kernel: Kernel, repeat: int, shards: Shards = _ALONE) -> Row:
    """Evaluations and micro-benchmarks in turns: the shortest, as means over ranks."""
    machine, beta = _Machine(kernel, shards), 1.0 / kernel.scale

    def evaluations(count: int) -> dict[str, float]:
        # One before: it fills the caches, and ranks leave it together.
        kernel.evaluate_all([beta], columns=False)
        start, busy = time.perf_counter(), time.process_time()
        for _ in range(count):
            kernel.evaluate_all([beta], columns=False)
        return {
            "cpu": (time.process_time() - busy) / count * shards.size,
            "seconds": (time.perf_counter() - start) / count,
        }

    # All ranks take as many, or they wait for ever.
    (first,) = shards.reduce(lambda: [evaluations(1)["cpu"]], [max])
    count = max(math.ceil(_LEAST / first), 1 if shards.size == 1 else _IN_A_ROW)

    def turn() -> dict[str, float]:
        means = machine.times() | evaluations(count)
        sums = shards.reduce(lambda: list(means.values()), [math.fsum] * len(means))
        return dict(zip(means, (total / shards.size for total in sums), strict=True))

    turns = [turn() for _ in range(repeat)]
    # The shortest: other programs slow down some, by what they do to the caches.
    row = {name: min(times[name] for times in turns) for name in turns[0]}
    for name in ("cpu", "seconds"):
        row[f"{name}_median"] = statistics.median(times[name] for times in turns)
    size = kernel.num_samples, kernel.num_classes
    row["predicted"] = sum(predicted_parts(row, *size, shards.size).values())
    return row


def over_ranks(setting: CostSetting, seed: int) -> Iterator[Row]:
    """Rows of groups of processes, which are started once."""
    context = get_context("spawn")
    queue = context.SimpleQueue()
    with tempfile.TemporaryDirectory() as folder:
        workers = [
            context.Process(
                target=_rank, args=(rank, folder + "/store", setting, seed, queue)
            )
            for rank in range(max(setting.ranks))
        ]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        if any(worker.exitcode for worker in workers):
            codes = [worker.exitcode for worker in workers]
            raise RuntimeError(f"ranks: expected all to end well, got {codes}")
    for row in queue.get():
        yield {"what": "ranks", **row}


def _rank(rank: int, store: str, setting: CostSetting, seed: int, queue: Any) -> None:
    """What one process does: its share in each group that it is in."""
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", f"file://{store}", rank=rank, world_size=max(setting.ranks),
        timeout=timedelta(minutes=10),
    )  # fmt: skip
    rows = []
    for size in setting.ranks:
        group = dist.new_group(list(range(size)))
        for problem in setting.spread if rank < size else ():
            pair = shard_of(ordinary_problem(*problem, seed), rank, size)
            rows.append({"ranks": size, **_share(pair, group, setting.repeat)})
        dist.barrier()
    if rank == 0:
        queue.put(rows)
    dist.destroy_process_group()


def _share(pair: list[Tensor], group: Any, repeat: int) -> Row:
    """The row of a group, measured together."""
    shards = shards_of(group)
    kernel = Kernel(*pair, shards=shards)
    search = agreement_search(*pair, group=group)

    def together(action: Callable[[], object]) -> float:
        shards.reduce(lambda: [0.0])
        return shortest(action, max(1, repeat // 5))

    return {
        "samples": kernel.num_samples, "classes": kernel.num_classes,
        **_timed(kernel, repeat, shards),
        "solve": together(lambda: posterior_agreement(*pair, group=group)),
        "gather": together(lambda: gather_and_measure(pair, group)),
        "evaluations": search.evaluations, "passes": search.passes,
    }  # fmt: skip


def shard_of(views: Sequence[Tensor], rank: int, size: int) -> list[Tensor]:
    """The samples of one rank."""
    start, stop = (len(views[0]) * place // size for place in (rank, rank + 1))
    return [view[start:stop].clone() for view in views]


def _passes(noise: float, samples: int, classes: int, seed: int) -> Row:
    """Evaluations and passes of an ordinary problem, by what it is read from."""
    clean, other = (part.double() for part in ordinary_problem(samples, classes, seed))
    pair = clean, clean + 0.5 * noise * (other - clean)
    chunks = [
        tuple(view[low : low + 999] for view in pair) for low in range(0, samples, 999)
    ]
    found = agreement_search(*pair)
    streamed = posterior_agreement(chunks)
    kernel = Kernel(*pair)
    kernel.surveyed = False
    blind = maximize(kernel, 1e-9)
    return {
        "samples": samples,
        "classes": classes,
        "evaluations": found.evaluations,
        "passes": found.passes,
        "streamed": streamed.passes,
        "blind_evaluations": blind.evaluations,
        "blind": blind.passes,
    }


def gather_and_measure(pair: Sequence[Tensor], group: Any) -> float:
    """What sharded agreement replaces: all logits on one rank, the result to all."""
    told: list[Any] | None = [None] * dist.get_world_size(group)
    told = told if dist.get_rank(group) == 0 else None
    dist.gather_object(list(pair), told, dst=0, group=group)
    value = torch.zeros(1, dtype=torch.float64)
    if told is not None:
        views = [torch.cat(parts) for parts in zip(*told, strict=True)]
        value[0] = posterior_agreement(*views).pa
    dist.broadcast(value, 0, group=group)
    return float(value)
