"""The multivariate normal distribution function, for many problems at once."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import torch
from scipy.special import owens_t, stdtrit
from torch import Tensor

from robustbook._checks.arguments import (
    DTYPES,
    as_tensor,
    check_count,
    check_power_of_two,
)
from robustbook.average_case._integrate import Rule, factorize, integrate

#: Constraints whose failures together have at most this share of the probability of
#: the most likely failure are left out.
NEGLIGIBLE: Final = 1e-7
#: From 3 constraints on, a probability of failure below this counts as 0.
CERTAIN: Final = 1e-12
_SMALLEST: Final = 1e-300


@dataclass(frozen=True, eq=False)
class OrthantProbability:
    """Probabilities of orthants, with their standard errors.

    Attributes
    ----------
    probability : Tensor, shape (...)
        In [0, 1], float64.
    standard_error : Tensor, shape (...)
        Of the randomized integration, float64; 0 where a closed form was used. It
        is widened for the number of scrambles, so that ± 1.96 standard errors hold
        the truth in 95 % of cases.

    See Also
    --------
    orthant_probability
    """

    probability: Tensor = field(repr=False)
    standard_error: Tensor = field(repr=False)


def orthant_probability(
    mean: Any,
    covariance: Any,
    *,
    points: int = 1024,
    scrambles: int = 8,
    seed: int = 0,
    dtype: torch.dtype | None = None,
) -> OrthantProbability:
    """Probability that every coordinate of a normal vector is at least zero.

    For ``X`` normal with `mean` and `covariance`, P[X_1 ≥ 0, ..., X_D ≥ 0]. This is
    also the distribution function of the normal law with mean 0 and the same
    covariance, taken at `mean`.

    Dimensions 1 and 2 are closed forms. From 3 on, the integral is transformed to
    the unit cube by separation of variables, the most binding constraint first, and
    averaged over scrambled Sobol points; independent scrambles give the standard
    error. Coordinates that are functions of others make the covariance singular:
    their constraints bound the last variable that they depend on. A coordinate
    without variance counts as 1 or 0. Constraints that cannot matter are left out:
    together they change the probability of failure by less than 1e-7 of it, or by
    less than 1e-12.

    Parameters
    ----------
    mean : Tensor or array, shape (..., D)
        Means. Infinite ones are allowed.
    covariance : Tensor or array, shape (..., D, D)
        Symmetric and positive semidefinite; broadcast against `mean`.
    points : int, default 1024
        Points of each scramble, a power of 2.
    scrambles : int, default 8
        Independent scrambles, at least 2.
    seed : int, default 0
        Seed of the scrambles. All problems of a call share the points.
    dtype : {torch.float32, torch.float64}, optional
        What the integrand is computed in; sums are in double precision. Single
        precision adds less than 1e-7 (5e-7 from 21 dimensions on), which the
        standard error includes, and is not used where failure or success is rare.
        By default it is used for up to 65536 points in all, whose standard errors
        are larger by far.

    Returns
    -------
    OrthantProbability
        Probabilities and standard errors, of shape (...), on the device of `mean`.

    Raises
    ------
    TypeError
        If an array does not hold floating-point numbers.
    ValueError
        If shapes do not match, an entry is NaN, or a covariance is not symmetric,
        or not positive semidefinite as far as the result depends on it.

    References
    ----------
    Genz, Numerical computation of multivariate normal probabilities (1992); Gibson,
    Glasbey and Elston (1994) for the order; Genz and Kwong (2000) for singular
    covariances. Chapter 19 of this book.

    Examples
    --------
    Three independent signs, and the same sign three times:

    >>> independent = orthant_probability(torch.zeros(3), torch.eye(3))
    >>> round(float(independent.probability), 6)
    0.125
    >>> same = orthant_probability(torch.zeros(3), torch.ones(3, 3))
    >>> round(float(same.probability), 6)
    0.5
    """
    check_power_of_two("points", points)
    check_count("scrambles", scrambles, minimum=2)
    check_count("seed", seed, minimum=0)
    if dtype not in (None, torch.float32, torch.float64):
        raise ValueError(f"dtype: expected torch.float32 or torch.float64, got {dtype}")
    means, covariances = _check_problem(mean, covariance)
    shape, dimension = means.shape[:-1], means.shape[-1]
    flat_means = means.double().reshape(-1, dimension)
    flat_covariances = covariances.double().reshape(-1, dimension, dimension)
    # What rounding in the caller's type of number leaves of a zero.
    rounding = 8 * dimension * torch.finfo(covariances.dtype).eps
    probability = torch.ones_like(flat_means[:, 0])
    error = torch.zeros_like(probability)
    limits, correlations, counts = _standardize(flat_means, flat_covariances)
    for count in sorted(set(counts.tolist())):
        rows = (counts == count).nonzero()[:, 0]
        if count < 0:
            probability[rows] = 0.0
        if count <= 0:
            continue
        limit = limits[rows, :count]
        correlation = correlations[rows, :count, :count]
        if count == 1:
            probability[rows] = torch.special.ndtr(limit[:, 0])
        elif count == 2:
            probability[rows] = _bivariate(limit, correlation[:, 0, 1])
        else:
            factor = factorize(limit, correlation, rounding)
            rule = Rule(points, scrambles, seed, dtype)
            values, rounding_error = integrate(factor, rule)
            probability[rows] = values.mean(dim=1)
            error[rows] = standard_error_of_means(values) + rounding_error
    return OrthantProbability(
        probability.clamp(0, 1).reshape(shape), error.reshape(shape)
    )


def standard_error_of_means(values: Tensor) -> Tensor:
    """Standard error of the mean over the last dimension, widened for its length.

    With few values the ratio of error to standard error follows Student's law. The
    factor makes ± 1.96 standard errors an interval of 95 %.
    """
    count = values.shape[-1]
    error = values.std(dim=-1, correction=1) / math.sqrt(count)
    return error * (float(stdtrit(count - 1, 0.975)) / 1.959963984540054)


def _check_problem(mean: Any, covariance: Any) -> tuple[Tensor, Tensor]:
    means, covariances = as_tensor("mean", mean), as_tensor("covariance", covariance)
    for name, values in (("mean", means), ("covariance", covariances)):
        if values.dtype not in DTYPES:
            raise TypeError(
                f"{name}: expected floating-point numbers, got dtype {values.dtype}"
            )
    if means.device != covariances.device:
        raise ValueError(
            f"covariance: expected device {means.device}, as mean, got "
            f"{covariances.device}; move one of them"
        )
    dimension = means.shape[-1] if means.ndim else 0
    if dimension == 0 or covariances.shape[-2:] != (dimension, dimension):
        raise ValueError(
            "mean, covariance: expected shapes (..., D) and (..., D, D) with D of at "
            f"least 1, got {tuple(means.shape)} and {tuple(covariances.shape)}"
        )
    try:
        shape = np.broadcast_shapes(means.shape[:-1], covariances.shape[:-2])
    except ValueError:
        raise ValueError(
            "mean, covariance: expected shapes (..., D) and (..., D, D) whose first "
            f"dimensions broadcast, got {tuple(means.shape)} and "
            f"{tuple(covariances.shape)}"
        ) from None
    if bool(means.isnan().any()):
        raise ValueError("mean: expected numbers, got NaN; remove such problems")
    if not bool(torch.isfinite(covariances).all()):
        raise ValueError("covariance: expected finite numbers, got NaN or infinity")
    diagonal = covariances.diagonal(dim1=-2, dim2=-1)
    if bool((diagonal < 0).any()):
        raise ValueError(
            f"covariance: expected variances of at least 0, got "
            f"{float(diagonal.min()):g}"
        )
    scale = diagonal.double().sqrt()
    slack = 64 * torch.finfo(covariances.dtype).eps
    # A product of roots, so that large variances do not overflow.
    bound = slack * scale[..., :, None] * scale[..., None, :]
    if bool(((covariances - covariances.mT).abs() > bound).any()):
        raise ValueError(
            "covariance: expected a symmetric matrix; symmetrize it: (C + C.mT) / 2"
        )
    # In two dimensions that is all; in more, what matters shows in the factorization.
    limit = (1 + 1e-6) * scale[..., :, None] * scale[..., None, :]
    if bool((covariances.abs() > limit).any()):
        raise ValueError(
            "covariance: expected a positive semidefinite matrix, got a covariance "
            "larger than its two variances allow"
        )
    return (
        means.expand(*shape, dimension),
        covariances.expand(*shape, dimension, dimension),
    )


def _standardize(mean: Tensor, covariance: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Limits and correlations, smallest limit first, and how many of them matter.

    A coordinate without variance has an infinite limit, of the sign of its mean (a
    mean of 0 is kept). The number is -1 where the probability is 0.
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
    failures = torch.special.ndtr(-limits)
    from_here = failures.flip(1).cumsum(1).flip(1)
    counts = (from_here > NEGLIGIBLE * failures[:, :1]).sum(dim=1)
    counts[(counts > 2) & (from_here[:, 0] < CERTAIN)] = 0
    counts[limits[:, 0] == -torch.inf] = -1
    return limits, correlation, counts


def _bivariate(limits: Tensor, correlation: Tensor) -> Tensor:
    """P[Z_1 ≤ h, Z_2 ≤ k], by Owen's T function."""
    # The formula divides by both limits: next to 0 its value is that at 0.
    near = limits.cpu()
    h, k = torch.where(near == 0, _SMALLEST, near).unbind(dim=1)
    rho = correlation.cpu().clamp(-1, 1)
    root = ((1 - rho) * (1 + rho)).sqrt()
    parts = torch.zeros_like(h)
    for first, second in ((h, k), (k, h)):
        slope = (second / first - rho) / root
        parts += torch.from_numpy(np.asarray(owens_t(first.numpy(), slope.numpy())))
    total = (torch.special.ndtr(h) + torch.special.ndtr(k)) / 2
    value = total - parts - torch.where((h < 0) != (k < 0), 0.5, 0.0)
    # The closed form cancels where one variable is a function of the other.
    same, opposite = rho == 1, rho == -1
    smaller = torch.special.ndtr(torch.minimum(h, k))
    between = (torch.special.ndtr(h) - torch.special.ndtr(-k)).clamp_min(0)
    value = torch.where(same, smaller, torch.where(opposite, between, value))
    return value.to(limits.device)
