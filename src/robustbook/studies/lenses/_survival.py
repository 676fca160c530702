"""Average-case robustness of images, counted or linearized, as the cache keeps it."""

from __future__ import annotations

from torch import Tensor, nn

from robustbook._store.cache import Arrays
from robustbook.average_case import mmse, monte_carlo


def counted(
    model: nn.Module, images: Tensor, sigma: float, samples: int, seed: int
) -> Arrays:
    """The share of noisy copies with the same prediction."""
    result = monte_carlo(model, images, sigma, samples=samples, seed=seed)
    return {"probability": result.probability.cpu().numpy()}


def linearized(
    model: nn.Module, images: Tensor, sigma: float, _: int, seed: int
) -> Arrays:
    """The probability by a linear fit."""
    result = mmse(model, images, sigma, seed=seed)
    return {"probability": result.probability.cpu().numpy()}
