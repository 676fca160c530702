"""How long posterior agreement takes: exact, by Adam, and the bare arithmetic."""

from __future__ import annotations

import time
import timeit
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean
from typing import Any, Final

import torch
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

from robustbook.agreement import adam_agreement, posterior_agreement
from robustbook.agreement.solver import Kernel
from robustbook.studies.run import Row, Run, Setting, one_thread

#: Epochs of the papers' procedure, which takes batches of 16.
PAPER_EPOCHS = 500
PAPER_BATCH = 16

#: Logits of a model, and of the same model under a shift.
Pair = tuple[Tensor, ...]
Task = Callable[[Pair], Row]


def ordinary_problem(samples: int, classes: int, seed: int = 0) -> Pair:
    """Logits of a fairly accurate model, and of the same model under noise."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, classes, (samples,), generator=generator)
    clean = 2 * torch.randn(samples, classes, generator=generator)
    clean[torch.arange(samples), labels] += 6
    shifted = 2 * torch.randn(samples, classes, generator=generator)
    return clean, shifted.add_(clean)


def shortest(action: Callable[[], object], repeat: int = 1) -> float:
    """Shortest of ``repeat`` runs, in seconds."""
    return min(timeit.repeat(action, number=1, repeat=repeat))


def timed(runs: Sequence[Callable[[], object]], times: float = 1) -> Row:
    """Mean, shortest and longest of some runs, each ``times`` over.

    In processor seconds of this process, so that others on the machine do not count.
    """
    clock = time.process_time
    each = [timeit.timeit(action, number=1, timer=clock) for action in runs]
    return {
        "seconds": times * fmean(each),
        "seconds_low": times * min(each),
        "seconds_high": times * max(each),
        "runs": len(runs),
    }


def exact(pair: Pair, runs: int) -> Row:
    """The certified solver."""
    result = posterior_agreement(*pair)
    seconds = timed([partial(posterior_agreement, *pair)] * runs)
    return {**seconds, "evaluations": result.evaluations, "gap": result.gap}


def adam(pair: Pair, *, runs: int, epochs: int, batch_size: int | None = None) -> Row:
    """Gradient steps alone."""
    train = partial(adam_agreement, *pair, batch_size=batch_size)
    train(epochs=1)  # the first step of a process loads autograd
    return _all_epochs(lambda: train(epochs=epochs), runs, epochs)


def papers(pair: Pair, *, runs: int, epochs: int) -> Row:
    """The published implementation's loop: a data loader, and J after each epoch.

    One epoch is a pass of gradient steps on batches of 16 and a pass that evaluates
    the agreement, both through a ``DataLoader`` without workers.
    """
    loader = DataLoader(TensorDataset(*pair), batch_size=PAPER_BATCH, shuffle=False)
    beta = torch.tensor([1.0], requires_grad=True)
    optimizer = torch.optim.Adam([beta], lr=0.1)

    def overlap(clean: Tensor, shifted: Tensor) -> Tensor:
        product = (beta * clean).softmax(1) * (beta * shifted).softmax(1)
        return product.sum(1).log().sum()

    def train() -> None:
        for _ in range(epochs):
            for batch in loader:
                optimizer.zero_grad()
                (beta.grad,) = torch.autograd.grad(-overlap(*batch), beta)
                optimizer.step()
            with torch.no_grad():
                for batch in loader:
                    overlap(*batch)

    return _all_epochs(train, runs, epochs)


def _all_epochs(train: Callable[[], object], runs: int, epochs: int) -> Row:
    """Time the epochs of the papers in parts: what all would take by each of them."""
    seconds = timed([train] * runs, times=PAPER_EPOCHS / epochs)
    return {**seconds, "epochs": PAPER_EPOCHS, "timed": runs * epochs}


def arithmetic(pair: Pair, runs: int) -> Row:
    """One evaluation of the kernel."""
    kernel = Kernel(*pair)
    return timed([partial(kernel.evaluate, 0.5)] * runs)


@dataclass(frozen=True, kw_only=True)
class SpeedSetting(Setting):
    """Sizes of the problems, and how often each is timed."""

    dataset: str = "synthetic"
    samples: int
    #: Of the large problem, which has 1000 classes.
    large: int
    #: Runs of the solver, on the small problem and on the large one.
    runs: tuple[int, int]
    #: Parts in which Adam is timed, and the epochs of one, on both problems.
    parts: int
    epochs: tuple[int, int]

    kind = "made up"


SETTINGS: Final = {
    "quick": (
        SpeedSetting(samples=500, large=200, runs=(2, 2), parts=2, epochs=(2, 1)),
    ),
    "full": (
        SpeedSetting(
            samples=10_000, large=50_000, runs=(30, 5), parts=5, epochs=(100, 10)
        ),
    ),
}


def rows(run: Run[SpeedSetting]) -> Iterator[Row]:
    """Time the solver and what it replaces, on a single thread of the CPU.

    One row a measurement: ``seconds`` of the processor on average over ``runs``, with
    the fastest and the slowest (``_low``, ``_high``). Adam's are those of ``epochs``,
    scaled from runs of fewer, which come to ``timed`` epochs in all. The larger problem
    has 50 000 samples of 1000 classes in the full profile.
    """
    setting = run.setting
    for samples, classes, runs, epochs in zip(
        (setting.samples, setting.large),
        (10, 1000),
        setting.runs,
        setting.epochs,
        strict=True,
    ):
        trained: Any = {"runs": setting.parts, "epochs": epochs}
        tasks: dict[str, Task] = {
            "exact": partial(exact, runs=runs),
            "adam-full-batch": partial(adam, **trained),
            "papers-procedure": partial(papers, **trained),
        }
        if samples == setting.samples:
            tasks["arithmetic"] = partial(arithmetic, runs=runs)
            batches = partial(adam, batch_size=PAPER_BATCH, **trained)
            tasks["adam-minibatches"] = batches
        pair = ordinary_problem(samples, classes, run.seed)
        size = {"samples": samples, "classes": classes}
        for what, task in run.progress(tasks.items()):
            with one_thread():
                yield {"what": what, **size, **task(pair), "threads": 1}
