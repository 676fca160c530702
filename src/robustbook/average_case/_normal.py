"""The multivariate normal distribution function, for many problems at once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np
import torch
from torch import Tensor

from robustbook._checks.arguments import (
    ArrayLike,
    as_real,
    as_tensor,
    check_count,
    check_power_of_two,
)
from robustbook.average_case import _separation
from robustbook.average_case._union import bivariate, failure_probability

#: If an orthant is less likely than not, constraints are left out whose failures
#: together have at most this share of the probability of the most likely failure.
NEGLIGIBLE: Final = 1e-7


@dataclass(frozen=True, eq=False)
class OrthantProbability:
    """Probabilities of orthants, with their standard errors.

    Attributes
    ----------
    probability : Tensor, shape (...)
        In [0, 1], float64.
    standard_error : Tensor, shape (...)
        Standard error of `probability` and of `failure`, float64; 0 where a closed form
        was used. It is widened for the small number of scrambles and for regions that
        all points may have missed: ± 1.96 standard errors covered at least 92 % for
        every problem that was tried, up to 30 constraints, rare and nearly singular
        ones among them.
    failure : Tensor, shape (...)
        1 - `probability`, float64, with the digits that the difference would lose.
    """

    probability: Tensor
    standard_error: Tensor
    failure: Tensor = field(repr=False)


def orthant_probability(
    mean: ArrayLike, covariance: ArrayLike, *, points: int = 1024, seed: int = 0
) -> OrthantProbability:
    """Compute the probability that every coordinate of a normal vector is at least 0.

    P[X_1 ≥ 0, ..., X_D ≥ 0] is also the distribution function of the normal law with
    mean 0 and the same covariance, at `mean`. Dimensions 1 and 2 have closed forms. In
    3 or more, each constraint that fails with probability up to 1/5 is integrated given
    its failure, by separation of variables over Sobol points, and the others together;
    8 independent scrambles give the standard error. So the smaller one of probability
    and failure keeps its relative accuracy. The error includes that of single
    precision, less than 1e-7 for each integral, or 5e-7 in 21 dimensions or more. A
    coordinate without variance counts as 1 or 0; a covariance may be singular. Source:
    Genz, Numerical computation of multivariate normal probabilities (1992); Genz and
    Kwong (2000) for singular covariances; Owen, Maximov and Chertkov (2019) for rare
    failures; Chapter 18.

    Parameters
    ----------
    mean : Tensor or array, shape (..., D)
        Means, which may be infinite.
    covariance : Tensor or array, shape (..., D, D)
        Symmetric and positive semidefinite; broadcast against `mean`.
    points : int, default 1024
        Points in each scramble, a power of 2.
    seed : int, default 0
        Seed of the scrambles. All problems of a call share the points.

    Returns
    -------
    OrthantProbability
        Probabilities and standard errors, of shape (...), on the device of `mean`.

    Raises
    ------
    TypeError
        If an array does not hold real numbers.
    ValueError
        If shapes do not match, an entry is NaN, or a covariance is not symmetric,
        or not positive semidefinite as far as the result depends on it.

    Examples
    --------
    >>> independent = orthant_probability(torch.zeros(3), torch.eye(3))
    >>> round(float(independent.probability), 6)
    0.125
    >>> same = orthant_probability(torch.zeros(3), torch.ones(3, 3))
    >>> round(float(same.probability), 6)
    0.5
    """
    check_power_of_two("points", points)
    check_count("seed", seed, minimum=0)
    means, covariances = _check_problem(mean, covariance)
    shape, dimension = means.shape[:-1], means.shape[-1]
    flat_means = means.double().reshape(-1, dimension)
    flat_covariances = covariances.double().reshape(-1, dimension, dimension)
    # A zero may have become this large by rounding in the caller's dtype.
    rounding = 8 * dimension * torch.finfo(covariances.dtype).eps
    limits, correlations = _standardize(flat_means, flat_covariances)
    failure = torch.zeros_like(limits[:, 0])
    error = torch.zeros_like(failure)
    likely = limits[:, 0] >= 0
    rows = likely.nonzero()[:, 0]
    if len(rows):
        failure[rows], error[rows] = failure_probability(
            limits[rows], correlations[rows], points, seed, rounding
        )
    failure.clamp_(0, 1)
    probability = 1 - failure
    rows = (~likely).nonzero()[:, 0]
    if len(rows):
        probability[rows], error[rows] = joint_probability(
            limits[rows], correlations[rows], points, seed, rounding
        )
        failure[rows] = 1 - probability[rows]
    results = (each.reshape(shape) for each in (probability, error, failure))
    return OrthantProbability(*results)


def joint_probability(
    limits: Tensor, correlation: Tensor, points: int, seed: int, tolerance: float
) -> tuple[Tensor, Tensor]:
    """Return P[Z_i ≤ limit_i for all i] (n,) and its standard error.

    All constraints are integrated together, so that a small probability keeps its
    digits and a small failure does not. `limits` (n, D) ascend.
    """
    probability = torch.zeros_like(limits[:, 0])
    error = torch.zeros_like(probability)
    failures = torch.special.ndtr(-limits)
    from_here = failures.flip(1).cumsum(1).flip(1)
    counts = (from_here > NEGLIGIBLE * failures[:, :1]).sum(dim=1)
    counts[limits[:, 0] == -torch.inf] = 0
    for count in sorted(set(counts.tolist()) - {0}):
        rows = (counts == count).nonzero()[:, 0]
        limit = limits[rows, :count]
        matrix = correlation[rows, :count, :count]
        if count == 1:
            probability[rows] = torch.special.ndtr(limit[:, 0])
        elif count == 2:
            probability[rows] = bivariate(limit, matrix[:, 0, 1]).clamp(0, 1)
        else:
            factor = _separation.factorize(limit, matrix, tolerance)
            values, off = _separation.integrate(factor, points, seed)
            probability[rows] = values.mean(dim=1)
            error[rows] = _separation.standard_error_of_means(values) + off
    return probability, error


def _check_problem(mean: ArrayLike, covariance: ArrayLike) -> tuple[Tensor, Tensor]:
    means, covariances = as_tensor("mean", mean), as_tensor("covariance", covariance)
    if not means.is_floating_point():
        means = as_real("mean", means)
    if not covariances.is_floating_point():
        covariances = as_real("covariance", covariances)
    dimension = means.shape[-1] if means.ndim else 0
    try:
        shape = np.broadcast_shapes(means.shape[:-1], covariances.shape[:-2])
    except ValueError:
        dimension = 0
    if dimension == 0 or covariances.shape[-2:] != (dimension, dimension):
        raise ValueError(
            "mean, covariance: expected shapes (..., D) and (..., D, D) with D of at "
            "least 1, whose first dimensions broadcast, got "
            f"{tuple(means.shape)} and {tuple(covariances.shape)}"
        )
    if bool(means.isnan().any()):
        raise ValueError("mean: expected numbers, got NaN; remove such problems")
    check_covariance(covariances)
    wide = covariances.expand(*shape, dimension, dimension)
    return means.expand(*shape, dimension), wide


def check_covariance(matrices: Tensor) -> None:
    """Refuse matrices (..., D, D) that are not symmetric, or for D = 2 semidefinite.

    For larger D, the factorization finds negative eigenvalues.
    """
    if not bool(torch.isfinite(matrices).all()):
        raise ValueError("covariance: expected finite numbers, got NaN or infinity")
    diagonal = matrices.diagonal(dim1=-2, dim2=-1)
    low = float(diagonal.min()) if diagonal.numel() else 0.0
    if low < 0:
        raise ValueError(
            "covariance: expected a positive semidefinite matrix, with variances of at "
            f"least 0, got a variance of {low:g}"
        )
    # A product of roots, so that large variances do not overflow.
    scale = diagonal.double().sqrt()
    largest = scale[..., :, None] * scale[..., None, :]
    slack = 64 * torch.finfo(matrices.dtype).eps
    if bool(((matrices - matrices.mT).abs() > slack * largest).any()):
        raise ValueError(
            "covariance: expected a symmetric matrix; symmetrize it: (C + C.mT) / 2"
        )
    if bool((matrices.abs() > (1 + 1e-6) * largest).any()):
        raise ValueError(
            "covariance: expected a positive semidefinite matrix, got a covariance "
            "larger than its two variances allow"
        )


def _standardize(mean: Tensor, covariance: Tensor) -> tuple[Tensor, Tensor]:
    """Return limits and correlations, smallest limit first.

    A coordinate without variance has an infinite limit of the sign of its mean; a mean
    of 0 counts as positive.
    """
    scale = covariance.diagonal(dim1=1, dim2=2).sqrt()
    fixed = scale == 0
    signs = torch.where(mean >= 0, torch.inf, -torch.inf)
    limits = torch.where(fixed, signs, mean / torch.where(fixed, 1.0, scale))
    limits, order = limits.sort(dim=1)
    scale = torch.where(fixed, 1.0, scale)
    correlation = covariance / scale[:, :, None] / scale[:, None, :]
    size = order.shape[1]
    correlation = correlation.gather(1, order[:, :, None].expand(-1, -1, size))
    correlation = correlation.gather(2, order[:, None, :].expand(-1, size, -1))
    return limits, correlation
