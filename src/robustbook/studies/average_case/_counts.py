"""How often models and their linearizations agree under noise, for the cache."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

import numpy as np
import torch
from torch import Tensor, nn

from robustbook._store.cache import Arrays
from robustbook.average_case import Robustness
from robustbook.average_case.parts import (
    MEASURE,
    Linearization,
    Problem,
    draw_normal,
    linear_probability,
    linearize,
    mmse_linearizations,
    set_up,
)
from robustbook.datasets import Dataset
from robustbook.studies._statistics import Integers

#: Linearizations whose indicator is tried as a control variate.
LINEARIZATIONS: Final = ("taylor", "mmse")
#: Noisy inputs of an MMSE fit, as the paper's figures settle on few.
FITS: Final = 10
#: Noisy inputs of one draw.
BLOCK: Final = 512
LEVEL: Final = 0.95


def counted_arrays(
    model: nn.Module, data: Dataset, sigma: float, samples: int, seed: int
) -> Arrays:
    """Show the same noise to the model and to its linearizations."""
    problem = set_up(model, data.images, sigma)
    best = mmse_linearizations(problem, sigma, FITS, seed, antithetic=True, keep=True)
    fits = {"taylor": all_of(linearize(problem, keep=True)), "mmse": all_of(best)}
    lines = [(margins, jacobian) for margins, jacobian, _ in fits.values()]
    kept, *pairs = agreements(problem, sigma, lines, [samples] * len(problem), [seed])
    result: Arrays = {"kept": kept}
    for kind, linear, both in zip(fits, pairs[::2], pairs[1::2], strict=True):
        result |= {kind: linear, f"{kind}_both": both}
    for kind, (margins, _, gram) in fits.items():
        exact = linear_probability(
            margins, gram, problem.sigmas, seed=seed, points=1024
        )
        result[f"{kind}_exact"] = exact.probability[0].cpu().numpy()
    return result


def agreements(
    problem: Problem,
    sigma: float,
    linearizations: Sequence[tuple[Tensor, Tensor]],
    trials: Sequence[int],
    key: Sequence[int],
) -> Integers:
    """Count for how many noisy inputs the label is kept: (1+2L, N).

    By the model, then by each of L linearizations, and by it and the model.

    Linearizations are margins (N, K-1) and Jacobians (N, K-1, D). Image i is shown
    trials[i] noisy inputs, which the seed and the numbers of `key` name.
    """
    seed, *rest = key
    result = np.zeros((1 + 2 * len(linearizations), len(trials)), dtype=np.int64)
    for index, count in enumerate(trials):
        for block, start in enumerate(range(0, count, BLOCK)):
            length = min(BLOCK, count - start)
            name = (*rest, index, block)
            noise = draw_normal(seed, MEASURE, [name], length, problem.inputs)[0]
            kept = problem.keeps(torch.tensor([index]), sigma * noise[None])[0]
            shares = [kept]
            for margins, jacobian in linearizations:
                slopes = (noise @ jacobian[index].to(noise).T).double()
                linear = (margins[index] + sigma * slopes > 0).all(dim=1)
                shares += [linear, linear & kept]
            result[:, index] += [int(share.sum()) for share in shares]
    return result


def all_of(parts: Iterator[Linearization]) -> tuple[Tensor, Tensor, Tensor]:
    """Margins, Jacobians and Gram matrices of all images."""
    rows = []
    for part in parts:
        assert part.jacobian is not None
        rows.append((part.margins, part.jacobian, part.gram))
    margins, jacobian, gram = (torch.cat(column) for column in zip(*rows, strict=True))
    return margins, jacobian, gram


def repeated_arrays(
    estimate: Callable[..., Robustness], seeds: Iterable[int]
) -> Arrays:
    """Estimates with fresh noise, each (repeats, N)."""
    parts = [estimate_arrays(estimate(seed=seed)) for seed in seeds]
    return {name: np.stack([part[name] for part in parts]) for name in parts[0]}


def estimate_arrays(result: Robustness) -> Arrays:
    """An estimate with its error and interval."""
    low, high = result.interval(LEVEL)
    values: dict[str, Tensor] = {
        "probability": result.probability,
        "error": result.standard_error,
        "low": low,
        "high": high,
        "calls": result.calls,
    }
    return {name: value.cpu().numpy() for name, value in values.items()}
