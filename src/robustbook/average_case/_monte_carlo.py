"""The share of noisy inputs on which a model keeps its prediction."""

from __future__ import annotations

import math
from typing import Any, Final

import torch
from torch import Tensor

from robustbook._checks.arguments import check_count, check_positive
from robustbook._checks.models import Model
from robustbook.average_case._docs import SHARED
from robustbook.average_case._problem import (
    BLOCK,
    MEASURE,
    PILOT,
    Problem,
    draw_normal,
    set_up,
    spans,
)
from robustbook.average_case._result import ADDED, Robustness

#: Noisy inputs that choose how many more are needed; their answers are not used.
_PILOT_SAMPLES: Final = 256


@SHARED.fill
def monte_carlo(
    model: Model,
    x: Any,
    sigma: Any,
    *,
    samples: int = 10_000,
    precision: float | None = None,
    label: Any = None,
    seed: int = 0,
    first: int = 0,
    batch_size: int | None = None,
    device: str | torch.device | None = None,
) -> Robustness:
    """Share of noisy inputs on which the model keeps its prediction.

    One noise serves all sigmas, scaled. Each input has its own, whatever the batch.
    Source: the average-case paper, section 3.1; Chapters 19 and 21.

    With a `precision`, the number of samples is chosen for each input and sigma by 256
    noisy inputs that are then thrown away, so that the estimate stays unbiased and its
    interval keeps its coverage. The `precision` is met on average only: where the 256
    see too few failures by chance, the standard error is larger, and says so.

    Parameters
    ----------
    {model} {x} {sigma}
    samples : int, default 10000
        Noisy inputs for each input and sigma; with a `precision`, the most.
    precision : float, optional
        Standard error to aim at.
    {label} {seed}
    first : int, default 0
        Number of the first input: a part of a larger set has the noise that it has
        there.
    {batch_size} {device}

    Returns
    -------
    Robustness
        Its standard error is never 0: two kept and two lost predictions are added
        for it (Agresti and Coull). ``interval`` is Wilson's.

    {UserWarning}

    {TypeError} {ValueError}

    Examples
    --------
    >>> x = torch.tensor([[0.0, 1.0]])
    >>> low, high = monte_carlo(lambda x: x, x, 0.5, samples=2000).interval()
    >>> bool(low < 0.9214), bool(0.9214 < high)
    (True, True)
    """
    check_count("samples", samples)
    check_count("seed", seed, minimum=0)
    check_count("first", first, minimum=0)
    if precision is not None:
        check_positive("precision", precision)
    problem = set_up(model, x, sigma, label, batch_size, device)
    needed = torch.full((len(problem.sigmas), len(problem)), samples)
    spent = needed.clone()
    if precision is not None:
        pilot = torch.full_like(needed, min(_PILOT_SAMPLES, samples))
        survivals = _count(problem, pilot, seed, PILOT, first)
        share = (survivals.double() + ADDED / 2) / (pilot + ADDED)
        wanted = (share * (1 - share) / precision**2).ceil()
        # As many as the standard error needs if none of them fails.
        fewest = min(samples, math.ceil(math.sqrt(ADDED / 2) / precision))
        wanted = wanted.clamp(min=fewest).clamp(max=samples)
        needed = wanted.long()
        spent = needed + pilot
    survivals = _count(problem, needed, seed, MEASURE, first)
    share = (survivals.double() + ADDED / 2) / (needed + ADDED)
    error = (share * (1 - share) / (needed + ADDED)).sqrt()
    return problem.summarize(
        "monte_carlo",
        spent,
        probability=survivals.double() / needed,
        standard_error=error,
        trials=needed,
    )


def _count(
    problem: Problem, needed: Tensor, seed: int, stream: int, first: int
) -> Tensor:
    """Kept predictions (S, N) among the first `needed` noisy inputs of each."""
    blocks = (needed.amax(dim=0) + BLOCK - 1) // BLOCK
    keys = [
        (index, block)
        for index, count in enumerate(blocks.tolist())
        for block in range(count)
    ]
    survivals = torch.zeros_like(needed)
    place = torch.arange(BLOCK)
    for some in spans(len(keys), max(1, problem.batch_size // BLOCK)):
        numbers = [(first + index, block) for index, block in keys[some]]
        noise = draw_normal(seed, stream, numbers, BLOCK, problem.inputs)
        index = torch.tensor([key[0] for key in keys[some]])
        start = BLOCK * torch.tensor([key[1] for key in keys[some]])
        for position, sigma in enumerate(problem.sigmas.tolist()):
            left = needed[position, index] - start
            live = (left > 0).nonzero()[:, 0]
            if not len(live):
                continue
            images = index[live]
            right = problem.keeps(images, sigma * noise[live.to(noise.device)])
            counted = right.cpu() & (place < left[live, None])
            survivals[position].index_add_(0, images, counted.sum(dim=1))
    return survivals
