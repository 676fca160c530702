"""How long posterior agreement takes: exact, by Adam, and the bare arithmetic."""

from __future__ import annotations

import time
import timeit
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
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


def ordinary_problem(samples: int, classes: int, seed: int = 0) -> Pair:
    """Logits of a fairly accurate model, and of the same model under noise."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, classes, (samples,), generator=generator)
    clean = 2 * torch.randn(samples, classes, generator=generator)
    clean[torch.arange(samples), labels] += 6
    shifted = 2 * torch.randn(samples, classes, generator=generator)
    return clean, shifted.add_(clean)


def shortest(
    action: Callable[[], object],
    repeat: int = 1,
    clock: Callable[[], float] = time.perf_counter,
) -> float:
    """Shortest of ``repeat`` runs, in seconds of a clock."""
    return min(timeit.repeat(action, number=1, repeat=repeat, timer=clock))


def exact(pair: Pair, repeat: int) -> Row:
    """The certified solver."""
    result = posterior_agreement(*pair)
    seconds = shortest(lambda: posterior_agreement(*pair), repeat)
    return {"seconds": seconds, "evaluations": result.evaluations, "gap": result.gap}


def adam(pair: Pair, *, measured: int, batch_size: int | None = None) -> Row:
    """Gradient steps alone, ``measured`` epochs extrapolated to those of the papers."""
    train = partial(adam_agreement, *pair, batch_size=batch_size)
    train(epochs=1)  # the first step of a process loads autograd
    return _extrapolated(shortest(partial(train, epochs=measured)), measured)


def papers(pair: Pair, measured: int) -> Row:
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

    def epoch() -> None:
        for batch in loader:
            optimizer.zero_grad()
            (beta.grad,) = torch.autograd.grad(-overlap(*batch), beta)
            optimizer.step()
        with torch.no_grad():
            for batch in loader:
                overlap(*batch)

    return _extrapolated(sum(shortest(epoch) for _ in range(measured)), measured)


def _extrapolated(spent: float, measured: int) -> Row:
    seconds = spent * PAPER_EPOCHS / measured
    return {"seconds": seconds, "epochs": PAPER_EPOCHS}


def arithmetic(pair: Pair, repeat: int) -> Row:
    """One evaluation of the kernel."""
    kernel = Kernel(*pair)
    return {"seconds": shortest(partial(kernel.evaluate, 0.5), repeat)}


@dataclass(frozen=True, kw_only=True)
class SpeedSetting(Setting):
    """Sizes of the problems, and how often each is timed."""

    dataset: str = "synthetic"
    samples: int
    #: Of the large problem, which has 1000 classes.
    large: int
    repeat: int
    #: Epochs that are timed: of the full batch, and of batches of 16.
    full: int
    batched: int

    kind = "made up"


SETTINGS: Final = {
    "quick": (SpeedSetting(samples=500, large=200, repeat=2, full=5, batched=1),),
    "full": (
        SpeedSetting(samples=10_000, large=50_000, repeat=30, full=500, batched=5),
    ),
}


def rows(run: Run[SpeedSetting]) -> Iterator[Row]:
    """Time the solver and what it replaces, on a single thread of the CPU.

    One row a measurement; seconds are the shortest of several runs, and of one at
    the larger size, which in the full profile is N = 50 000, K = 1000.
    """
    setting = run.setting
    epochs: Any = {"measured": setting.batched}
    tasks: dict[str, Callable[[Pair], Row]] = {
        "exact": partial(exact, repeat=setting.repeat),
        "arithmetic": partial(arithmetic, repeat=setting.repeat),
        "adam-full-batch": partial(adam, measured=setting.full),
        "adam-minibatches": partial(adam, batch_size=PAPER_BATCH, **epochs),
        "papers-procedure": partial(papers, **epochs),
    }
    large = {name: tasks[name] for name in ("adam-full-batch", "papers-procedure")}
    large = {"exact": partial(exact, repeat=1), **large}
    for samples, classes, chosen in (
        (setting.samples, 10, tasks),
        (setting.large, 1000, large),
    ):
        pair = ordinary_problem(samples, classes, run.seed)
        size = {"samples": samples, "classes": classes}
        for what, task in run.progress(chosen.items()):
            with one_thread():
                yield {"what": what, **size, **task(pair), "threads": 1}
