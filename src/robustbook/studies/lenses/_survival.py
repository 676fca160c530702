"""Average-case robustness of images, counted or linearized, as the cache keeps it."""

from __future__ import annotations

from typing import Final

import numpy as np
from scipy.special import log_ndtr, logsumexp, ndtri_exp
from torch import nn

from robustbook._store.cache import Arrays
from robustbook.average_case import monte_carlo
from robustbook.average_case.parts import (
    linear_probability,
    linearize,
    set_up,
)
from robustbook.datasets import Dataset
from robustbook.studies._statistics import Values

#: Noisy inputs of a fit, as `mmse` has by default, and points of the integration.
_SAMPLES: Final = 10
_POINTS: Final = 128


def counted(
    model: nn.Module, data: Dataset, sigma: float, samples: int, seed: int
) -> Arrays:
    """The share of noisy copies with the same prediction."""
    result = monte_carlo(model, data.images, sigma, samples=samples, seed=seed)
    return {"probability": result.probability.cpu().numpy()}


def linearized(
    model: nn.Module, data: Dataset, sigma: float, _: int, seed: int
) -> Arrays:
    """The probability by a linear fit, and the logarithm of the failure probability."""
    problem = set_up(model, data.images, sigma)
    kept, lost = [], []
    for fit in linearize(problem, sigma, _SAMPLES, seed, antithetic=True):
        exact = linear_probability(
            fit.margins, fit.gram, problem.sigmas, seed=seed, points=_POINTS
        )
        kept.append(exact.probability[0].cpu().numpy())
        margins, gram = fit.margins.cpu().numpy(), fit.gram.cpu().numpy()
        lost.append(log_failure(margins, sigma**2 * gram, seed=seed))
    return {"probability": np.concatenate(kept), "log_failure": np.concatenate(lost)}


def log_failure(
    means: Values, covariances: Values, *, seed: int, samples: int = 1024
) -> Values:
    """Log of the probability (N,) that a coordinate of a normal vector is negative.

    Means (N, D), covariances (N, D, D). As small as the chance may be, its relative
    error stays that of a mean of `samples` numbers in [1/D, 1]: one coordinate is drawn
    by its own chance to be negative, the others given that it is, and one over the
    number of negative ones is averaged (Owen, Maximov and Chertkov 2019).
    """
    size = means.shape[1]
    scale = np.sqrt(np.diagonal(covariances, axis1=1, axis2=2))
    with np.errstate(divide="ignore"):
        limits = -means / scale  # what does not vary is at ±∞
    scale = np.where(scale == 0, 1, scale)
    correlations = covariances / (scale[:, :, None] * scale[:, None, :])
    each = log_ndtr(limits)
    total: Values = logsumexp(each, axis=1)
    known = np.isfinite(total)
    draw = np.random.default_rng([seed, 3])
    # All images share random numbers, so that chance hardly changes their order.
    normal = draw.standard_normal((samples, size))
    grid = (np.arange(samples) + draw.random(samples)) / samples
    uniform = np.log(draw.random(samples))
    for row in np.flatnonzero(known):
        shares = np.exp(each[row] - total[row]).cumsum()
        chosen = np.searchsorted(shares[:-1], grid)
        values, vectors = np.linalg.eigh(correlations[row])
        drawn = (normal * np.sqrt(values.clip(0))) @ vectors.T
        wanted = ndtri_exp(uniform + each[row, chosen])
        step = wanted - drawn[np.arange(samples), chosen]
        drawn += correlations[row][chosen] * step[:, None]
        negative = drawn <= limits[row]
        negative[np.arange(samples), chosen] = True
        total[row] += np.log(np.mean(1 / negative.sum(axis=1)))
    return total
