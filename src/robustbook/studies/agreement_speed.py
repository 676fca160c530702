"""How long posterior agreement takes: exact, by Adam, and the bare arithmetic."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

from robustbook.agreement import posterior_agreement
from robustbook.agreement.parts import Kernel, adam_steps
from robustbook.studies._run import Row, Run, Setting, one_thread

#: Epochs of the papers' procedure, which takes batches of 16.
PAPER_EPOCHS = 500
PAPER_BATCH = 16
MEASURED_EPOCHS = 5


def ordinary_problem(samples: int, classes: int, seed: int = 0) -> tuple[Tensor, ...]:
    """Logits of a fairly accurate model, and of the same model under noise."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, classes, (samples,), generator=generator)
    clean = 2 * torch.randn(samples, classes, generator=generator)
    clean[torch.arange(samples), labels] += 6
    shifted = 2 * torch.randn(samples, classes, generator=generator)
    return clean, shifted.add_(clean)


def shortest(action: Callable[[], object], repeat: int = 1) -> float:
    """Shortest of ``repeat`` runs, in seconds."""
    best = float("inf")
    for _ in range(repeat):
        start = time.perf_counter()
        action()
        best = min(best, time.perf_counter() - start)
    return best


def exact_row(samples: int, classes: int, *, repeat: int, seed: int = 0) -> Row:
    """The certified solver on an ordinary problem."""
    pair = ordinary_problem(samples, classes, seed)
    result = posterior_agreement(*pair)
    return {
        "what": "exact", "samples": samples, "classes": classes,
        "seconds": shortest(lambda: posterior_agreement(*pair), repeat),
        "evaluations": result.evaluations, "gap": result.gap,
    }  # fmt: skip


def adam_row(
    samples: int, classes: int, *, epochs: int, measured: int,
    batch_size: int | None, seed: int = 0,
) -> Row:  # fmt: skip
    """Gradient steps alone, ``measured`` epochs extrapolated to ``epochs``."""
    pair = ordinary_problem(samples, classes, seed)
    adam_steps(*pair, epochs=1)  # the first step of a process loads autograd
    spent = shortest(lambda: adam_steps(*pair, epochs=measured, batch_size=batch_size))
    return {
        "what": "adam-full-batch" if batch_size is None else "adam-minibatches",
        "samples": samples, "classes": classes, "seconds": spent * epochs / measured,
        "epochs": epochs, "measured_epochs": measured,
    }  # fmt: skip


def papers_row(
    samples: int, classes: int, *, epochs: int, measured: int, seed: int = 0
) -> Row:
    """The published implementation's loop: a data loader, and J after each epoch.

    One epoch is a pass of gradient steps on batches of 16 and a pass that evaluates
    the agreement, both through a ``DataLoader`` without workers.
    """
    pair = ordinary_problem(samples, classes, seed)
    loader = DataLoader(TensorDataset(*pair), batch_size=PAPER_BATCH, shuffle=False)
    beta = torch.tensor([1.0], requires_grad=True)
    optimizer = torch.optim.Adam([beta], lr=0.1)

    def overlap(clean: Tensor, shifted: Tensor) -> Tensor:
        product = (beta * clean).softmax(1) * (beta * shifted).softmax(1)
        return product.sum(1).log().sum()

    def epoch() -> None:
        for clean, shifted in loader:
            optimizer.zero_grad()
            (beta.grad,) = torch.autograd.grad(-overlap(clean, shifted), beta)
            optimizer.step()
        with torch.no_grad():
            for clean, shifted in loader:
                overlap(clean, shifted)

    spent = sum(shortest(epoch) for _ in range(measured))
    return {
        "what": "papers-procedure", "samples": samples, "classes": classes,
        "seconds": spent * epochs / measured, "epochs": epochs,
        "measured_epochs": measured,
    }  # fmt: skip


def arithmetic_row(samples: int, classes: int, *, repeat: int, seed: int = 0) -> Row:
    """One evaluation of the kernel, and only its exponentials."""
    kernel = Kernel(*ordinary_problem(samples, classes, seed))
    values = -20 * torch.rand(2 * samples * classes, dtype=torch.float64)
    out = torch.empty_like(values)
    return {
        "what": "arithmetic", "samples": samples, "classes": classes,
        "seconds": shortest(lambda: kernel.evaluate(0.5), repeat),
        "exponentials_seconds": shortest(lambda: torch.exp(values, out=out), repeat),
    }  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class SpeedSetting(Setting):
    """Sizes of the problems, and how often each is timed."""

    dataset: str = "synthetic"
    samples: int
    #: Of the large problem, which has 1000 classes.
    large: int
    repeat: int
    #: Epochs that are timed: on the whole, and in batches of 16.
    whole: int
    batched: int

    kind = "made up"


SETTINGS: Final = {
    "quick": (SpeedSetting(samples=500, large=200, repeat=2, whole=5, batched=1),),
    "full": (
        SpeedSetting(samples=10_000, large=50_000, repeat=30, whole=500, batched=5),
    ),
}


def rows(run: Run[SpeedSetting]) -> Iterator[Row]:
    """Time the solver and what it replaces, on a single thread of the CPU.

    One row a measurement; seconds are the shortest of several runs. The full profile
    includes N = 50 000, K = 1000.
    """
    setting, seed = run.setting, run.seed
    size = (setting.samples, 10)
    batches = {"epochs": PAPER_EPOCHS, "measured": setting.batched}
    tasks: list[Callable[[], Row]] = [
        lambda: exact_row(*size, repeat=setting.repeat, seed=seed),
        lambda: arithmetic_row(*size, repeat=setting.repeat, seed=seed),
        lambda: adam_row(
            *size, epochs=500, measured=setting.whole, batch_size=None, seed=seed
        ),
        lambda: adam_row(*size, **batches, batch_size=PAPER_BATCH, seed=seed),
        lambda: papers_row(*size, **batches, seed=seed),
    ]
    for task in run.each(tasks):
        with one_thread():
            yield {**task(), "threads": 1}
    large = exact_row(setting.large, 1000, repeat=1, seed=seed)
    yield {**large, "threads": torch.get_num_threads()}
