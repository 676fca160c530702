"""How often models and their linearizations agree under noise, for the cache."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

import numpy as np
import torch
from torch import Tensor, nn

from robustbook._store.cache import Arrays
from robustbook.average_case import Robustness
from robustbook.average_case.parts import (
    MEASURE,
    Linearization,
    draw_normal,
    linear_probability,
    linearize,
    mmse_linearizations,
    set_up,
)
from robustbook.datasets import Dataset

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
    fits = {"taylor": whole(linearize(problem, keep=True)), "mmse": whole(best)}
    names = ["kept", *fits, *(f"{kind}_both" for kind in fits)]
    result: Arrays = {name: np.zeros(len(problem), dtype=np.int64) for name in names}
    for index in range(len(problem)):
        for block, start in enumerate(range(0, samples, BLOCK)):
            length = min(BLOCK, samples - start)
            key = [(index, block)]
            noise = draw_normal(seed, MEASURE, key, length, problem.inputs)[0]
            kept = problem.keeps(torch.tensor([index]), sigma * noise[None])[0]
            result["kept"][index] += int(kept.sum())
            for kind, (margins, jacobian, _) in fits.items():
                linear = linear_keeps(margins[index], jacobian[index], sigma, noise)
                result[kind][index] += int(linear.sum())
                result[f"{kind}_both"][index] += int((linear & kept).sum())
    for kind, (margins, _, gram) in fits.items():
        exact = linear_probability(
            margins, gram, problem.sigmas, seed=seed, points=1024
        )
        result[f"{kind}_exact"] = exact.probability[0].cpu().numpy()
    return result


def linear_keeps(
    margins: Tensor, jacobian: Tensor, sigma: float, noise: Tensor
) -> Tensor:
    """Whether a linearization keeps the label under each noise (n, D)."""
    slopes = (noise @ jacobian.to(noise).T).double()
    return (margins + sigma * slopes > 0).all(dim=1)


def whole(parts: Iterator[Linearization]) -> tuple[Tensor, Tensor, Tensor]:
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
        "probability": result.probability, "error": result.standard_error, "low": low,
        "high": high, "calls": result.calls,
    }  # fmt: skip
    return {name: value.cpu().numpy() for name, value in values.items()}
