"""The cost of an evaluation of the agreement kernel, and the number of passes."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from robustbook.agreement import posterior_agreement
from robustbook.agreement.solver import Kernel, agreement_search, maximize
from robustbook.studies.agreement_speed import ordinary_problem, shortest
from robustbook.studies.run import Row, Run, Setting, one_thread

#: The work of an evaluation of two views, counted in the kernel: for each entry
#: exponentials, sweeps (an operation of all entries of a buffer with another's), and
#: products with a vector; operations on a column of a number a sample; calls a chunk.
COUNTS: Final = {"exp": 2, "sweep": 15, "product": 9, "column": 38, "call": 90}
#: Of small problems the shifted logits and their sum are kept, which saves sweeps.
KEPT_COUNTS: Final = COUNTS | {"sweep": 9, "call": 65}
#: Entries of a chunk, and of the largest problem that is kept.
CHUNK: Final = 2**17
KEPT: Final = 2**18
#: A timing repeats its action until this many CPU seconds have passed.
_LEAST: Final = 0.004
#: The noise and the number of classes of the problems whose passes are counted.
_PROBLEMS: Final = {
    "little noise": (0.3, 10),
    "some noise": (1.0, 10),
    "noise": (2.0, 10),
    "much noise": (5.0, 10),
    "hundred classes": (2.0, 100),
    "two classes": (2.0, 2),
}


@dataclass(frozen=True, kw_only=True)
class CostSetting(Setting):
    """Sizes that are timed."""

    dataset: str = "synthetic"
    #: For each number of classes, the numbers of samples.
    sizes: dict[int, tuple[int, ...]]
    repeat: int
    #: Entries of the problems whose passes are counted.
    streamed: int

    kind = "made up"


_FULL: Final = {
    10: (1000, 10_000, 100_000, 1_000_000),
    100: (1000, 10_000, 100_000),
    1000: (100, 1000, 10_000),
}
SETTINGS: Final = {
    "quick": (
        CostSetting(
            sizes={10: (1000, 20_000), 1000: (1000,)}, repeat=3, streamed=600_000
        ),
    ),
    "full": (CostSetting(sizes=_FULL, repeat=15, streamed=2_000_000),),
}


def rows(run: Run[CostSetting]) -> Iterator[Row]:
    """Time evaluations on one thread, in turns with micro-benchmarks of the machine.

    Rows with ``what`` =
    "machine": ``bytes_per_second`` at which a large array is read and written;
    "size": CPU seconds of an evaluation (``cpu``: the shortest of repeats;
    ``cpu_median``), the micro-benchmarks in CPU seconds (``exp``, ``sweep``,
    ``product`` an entry, ``column`` a sample, ``read`` a byte, ``call``), and the
    ``predicted`` CPU seconds of an evaluation;
    "passes", by ``problem``: evaluations and passes from arrays, passes from a stream
    (``streamed``), and both without a survey (``blind``).
    """
    setting, seed = run.setting, run.seed
    with one_thread():
        yield {"what": "machine", "bytes_per_second": _bandwidth()}
        sizes = [(n, k) for k, sizes in setting.sizes.items() for n in sizes]
        for samples, classes in run.progress(sizes):
            kernel = Kernel(*ordinary_problem(samples, classes, seed))
            size = {"samples": samples, "classes": classes}
            yield {"what": "size", **size, **_timed(kernel, setting.repeat)}
    for name, (noise, classes) in run.progress(_PROBLEMS.items()):
        size = {"samples": setting.streamed // classes, "classes": classes}
        passes = _passes(noise, seed, **size)
        yield {"what": "passes", "problem": name, **size, **passes}


def predicted_parts(row: Row, samples: int, classes: int) -> dict[str, float]:
    """CPU seconds of an evaluation by the micro-benchmarks of a row."""
    entries = samples * classes
    kept = entries <= KEPT
    counts = KEPT_COUNTS if kept else COUNTS
    times = dict.fromkeys(("exp", "sweep", "product"), entries) | {
        "column": samples,
        "call": math.ceil(samples / max(1, CHUNK // classes)),
    }
    parts = {name: counts[name] * row[name] * n for name, n in times.items()}
    # Kept are three float64 numbers; else each view has a float32.
    return parts | {"read": (24 if kept else 8) * row["read"] * entries}


def _bandwidth() -> float:
    """Bytes a second of a triad whose arrays no cache holds."""
    x, y, out = torch.ones(3, 2**22, dtype=torch.float64)
    spent = shortest(lambda: torch.add(x, y, alpha=3.0, out=out), 20)
    return 3 * 8 * len(out) / spent


def _seconds(action: Callable[[], object]) -> float:
    """Mean CPU seconds of an action that is repeated for a while."""
    count, spent, start = 0, -1.0, time.process_time()
    while spent < _LEAST:
        action()
        count, spent = count + 1, time.process_time() - start
    return spent / count


def _micro_benchmarks(kernel: Kernel) -> dict[str, tuple[Callable[[], object], int]]:
    """Actions in buffers of the kernel's shape, and by what their time is divided."""
    classes = kernel.num_classes
    length = max(1, min(CHUNK // classes, kernel.num_samples))
    first, second, out = torch.rand(3, length, classes, dtype=torch.float64).neg_()
    vector = torch.ones(classes, dtype=torch.float64)
    column, three = torch.ones(length).double(), torch.ones(3, length).double()
    far, near = torch.ones(2**23).double(), torch.empty(2**15).double()
    single = torch.ones(1, dtype=torch.float64)

    def read() -> None:
        for part in far.view(-1, len(near)):
            near.copy_(part)

    return {
        "exp": (lambda: torch.exp(first, out=out), first.numel()),
        "sweep": (lambda: torch.mul(first, second, out=out), first.numel()),
        "product": (lambda: torch.mv(first, vector, out=column), first.numel()),
        "column": (lambda: torch.div(three, three), three.numel()),
        "read": (read, far.nbytes),
        "call": (lambda: torch.mul(single, single, out=single), 1),
    }


def _timed(kernel: Kernel, repeat: int) -> Row:
    """Evaluations and micro-benchmarks in turns: the shortest of each."""
    beta = 1.0 / kernel.scale
    benchmarks = _micro_benchmarks(kernel)
    columns = benchmarks["column"][1]

    def evaluate() -> None:
        kernel.evaluate_all([beta], columns=False)

    def turn() -> dict[str, float]:
        times = {name: _seconds(act) / size for name, (act, size) in benchmarks.items()}
        # Of short columns the calls are all that counts; they are counted apart.
        times["column"] = max(times["column"] - times["call"] / columns, 0.0)
        evaluate()  # fills the caches
        return times | {"cpu": _seconds(evaluate)}

    turns = [turn() for _ in range(repeat)]
    # The shortest: other programs slow down a few turns by filling the caches.
    row = {name: min(times[name] for times in turns) for name in turns[0]}
    row["cpu_median"] = statistics.median(times["cpu"] for times in turns)
    parts = predicted_parts(row, kernel.num_samples, kernel.num_classes)
    return row | {"predicted": sum(parts.values())}


def _passes(noise: float, seed: int, *, samples: int, classes: int) -> Row:
    """Evaluations and passes of an ordinary problem, by what it is read from."""
    clean, other = (part.double() for part in ordinary_problem(samples, classes, seed))
    pair: tuple[Tensor, Tensor] = clean, clean + 0.5 * noise * (other - clean)
    search = agreement_search(*pair)
    chunks = list(zip(*(torch.split(view, 999) for view in pair), strict=True))
    kernel = Kernel(*pair)
    kernel.surveyed = False
    blind = maximize(kernel, 1e-9)
    return {
        "evaluations": search.evaluations,
        "passes": search.passes,
        "streamed": posterior_agreement(chunks).passes,
        "blind_evaluations": blind.evaluations,
        "blind": blind.passes,
    }
