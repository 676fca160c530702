"""The multivariate normal distribution function, for many problems at once.

Separation of variables over scrambled Sobol points.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from scipy.special import owens_t, stdtrit
from torch import Tensor
from torch.quasirandom import SobolEngine

from robustbook._checks.arguments import (
    DTYPES,
    as_tensor,
    check_count,
    check_power_of_two,
    check_together,
)
from robustbook.average_case._problem import spans

#: Constraints whose failures together have at most this share of the probability of
#: the most likely failure are left out.
NEGLIGIBLE: Final = 1e-7
#: From 3 constraints on, a probability of failure below this counts as 0.
CERTAIN: Final = 1e-12
#: Numbers at once: for each thread of a CPU what its cache holds, for a GPU what
#: keeps it busy.
_CPU_CHUNK: Final = 1 << 16
_CUDA_CHUNK: Final = 1 << 24
#: Points of one problem at once, where there are many problems: they stay in the
#: cache from problem to problem.
_POINTS_AT_ONCE: Final = 1 << 10
#: Where a constraint holds less often than this limit says (one in a million), the
#: tails are computed with full relative accuracy.
_QUICK_LIMIT: Final = -4.75
#: Independent scrambles of the points.
_SCRAMBLES: Final = 8
#: Up to so many points each, single precision is exact enough: chance changes a
#: probability by over 1e-6, rounding by less than the second number (the third in
#: more than 20 dimensions; measured in the tests).
_SINGLE_POINTS: Final = 1 << 13
_SINGLE_ROUNDING: Final = 1e-7
_SINGLE_ROUNDING_LARGE: Final = 5e-7
#: Largest limit, of either sign, for which it is used: nothing there is rare.
_MODERATE: Final = 3.0
_SMALLEST: Final = 1e-300
#: Half the distance of Sobol points: none of them is at 0.
_HALF_CELL: Final = 2.0**-31

#: The integrand at some of the points: (problems, points).
_Integrand = Callable[[slice], Tensor]


@dataclass(frozen=True, eq=False)
class OrthantProbability:
    """Probabilities of orthants, with their standard errors.

    Attributes
    ----------
    probability : Tensor, shape (...)
        In [0, 1], float64.
    standard_error : Tensor, shape (...)
        Of the randomized integration, float64; 0 where a closed form was used. Widened
        for the number of scrambles: ± 1.96 of it hold the truth in 95 % of cases.
    """

    probability: Tensor = field(repr=False)
    standard_error: Tensor = field(repr=False)


def orthant_probability(
    mean: Any, covariance: Any, *, points: int = 1024, seed: int = 0
) -> OrthantProbability:
    """Probability that every coordinate of a normal vector is at least zero.

    P[X_1 ≥ 0, ..., X_D ≥ 0]: also the distribution function of the normal law with mean
    0 and the same covariance, at `mean`. Dimensions 1 and 2 are closed forms. From 3
    on, the integral is transformed to the unit cube by separation of variables, the
    most binding constraint first, and averaged over Sobol points; 8 independent
    scrambles give the standard error. It includes what single precision adds, which is
    used up to 8192 points each and where nothing is rare: less than 1e-7, or 5e-7 from
    21 dimensions on. A coordinate without variance counts as 1 or 0; a covariance may
    be singular. Constraints that change the probability of failure by less than 1e-7 of
    it, or by less than 1e-12, are left out. Source: Genz, Numerical computation of
    multivariate normal probabilities (1992); Gibson, Glasbey and Elston (1994) for the
    order; Genz and Kwong (2000) for singular covariances; Chapter 17.

    Parameters
    ----------
    mean : Tensor or array, shape (..., D)
        Means. Infinite ones are allowed.
    covariance : Tensor or array, shape (..., D, D)
        Symmetric and positive semidefinite; broadcast against `mean`.
    points : int, default 1024
        Points of each scramble, a power of 2.
    seed : int, default 0
        Seed of the scrambles. All problems of a call share the points.

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
    # What rounding in the caller's type of number leaves of a zero.
    rounding = 8 * dimension * torch.finfo(covariances.dtype).eps
    probability = torch.ones_like(flat_means[:, 0])
    error = torch.zeros_like(probability)
    limits, correlations, counts = _standardize(flat_means, flat_covariances)
    for count in sorted(set(counts.tolist())):
        rows = (counts == count).nonzero()[:, 0]
        if count <= 0:
            probability[rows] = 1.0 + count
            continue
        limit = limits[rows, :count]
        correlation = correlations[rows, :count, :count]
        if count == 1:
            probability[rows] = torch.special.ndtr(limit[:, 0])
        elif count == 2:
            probability[rows] = _bivariate(limit, correlation[:, 0, 1])
        else:
            factor = _factorize(limit, correlation, rounding)
            values, rounding_error = _integrate(factor, points, seed)
            probability[rows] = values.mean(dim=1)
            error[rows] = standard_error_of_means(values) + rounding_error
    probability = probability.clamp(0, 1).reshape(shape)
    return OrthantProbability(probability, error.reshape(shape))


def standard_error_of_means(values: Tensor) -> Tensor:
    """Standard error of the mean over the last dimension, widened for its length.

    By Student's law: ± 1.96 standard errors are then an interval of 95 %.
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
    check_together(("mean", "covariance"), means, covariances)
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
    if not bool(torch.isfinite(covariances).all()):
        raise ValueError("covariance: expected finite numbers, got NaN or infinity")
    diagonal = covariances.diagonal(dim1=-2, dim2=-1)
    low = float(diagonal.min()) if diagonal.numel() else 0.0
    if low < 0:
        raise ValueError(f"covariance: expected variances of at least 0, got {low:g}")
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
    wide = covariances.expand(*shape, dimension, dimension)
    return means.expand(*shape, dimension), wide


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


class _Factor(NamedTuple):
    """Constraints ``lower @ y ≤ limits`` on independent standard normal ``y``.

    ``last`` says with which variable a row ends: of full rank, on the diagonal.
    """

    limits: Tensor
    lower: Tensor
    last: Tensor
    rank: Tensor

    def of(self, rows: Tensor | slice) -> _Factor:
        return _Factor(*(part[rows] for part in self))


def _factorize(limits: Tensor, correlation: Tensor, tolerance: float) -> _Factor:
    """Cholesky factor, at each step of the variable least likely to comply."""
    count, size = limits.shape
    every = torch.arange(count, device=limits.device)
    lower = torch.zeros_like(correlation)
    variance = correlation.diagonal(dim1=1, dim2=2).clone()
    remaining = limits.clone()
    placed = torch.zeros_like(limits, dtype=torch.bool)
    order = []
    rank = torch.zeros(count, dtype=torch.int64, device=limits.device)
    for step in range(size):
        free = ~placed & (variance > tolerance)
        spread = torch.where(free, variance, 1.0).sqrt()
        scores = torch.where(free, remaining / spread, torch.inf)
        # Where nothing is left to choose, any unplaced coordinate does.
        scores = torch.where(placed, torch.nan, scores).nan_to_num(nan=torch.inf)
        chosen = torch.where(
            free.any(dim=1), scores.argmin(dim=1), (~placed).double().argmax(dim=1)
        )
        regular = free[every, chosen]
        rank += regular
        order.append(chosen)
        placed[every, chosen] = True
        deviation = spread[every, chosen]
        column = correlation[every, chosen]
        column = column - (lower[every, chosen][:, None, :] * lower).sum(dim=2)
        column = torch.where(placed, 0.0, column / deviation[:, None])
        column[every, chosen] = deviation
        column = torch.where(regular[:, None], column, 0.0)
        lower[:, :, step] = column
        variance = torch.where(placed, variance, variance - column.square())
        score = scores[every, chosen]
        expected = -_hazard(torch.where(regular, score, 0.0))
        remaining = remaining - column * expected[:, None]
    if bool((variance < -max(1e3 * tolerance, 1e-6)).any()):
        raise ValueError(
            "covariance: expected a positive semidefinite matrix, got one with a "
            "negative eigenvalue"
        )
    permutation = torch.stack(order, dim=1)
    lower = lower.gather(1, permutation[:, :, None].expand(-1, -1, size))
    # A coefficient that is zero but for rounding does not end a row.
    relevant = lower.abs() > math.sqrt(tolerance)
    steps = torch.arange(size, device=limits.device)
    last = torch.where(relevant, steps, -1).amax(dim=2)
    return _Factor(limits.gather(1, permutation), lower, last, rank)


def _hazard(limit: Tensor) -> Tensor:
    """phi(t) / Phi(t): minus the mean of a normal variable below t."""
    log_density = -0.5 * limit.square() - 0.5 * math.log(2 * math.pi)
    return torch.exp(log_density - torch.special.log_ndtr(limit))


def sobol_engine(dimension: int, seed: int) -> SobolEngine:
    return SobolEngine(dimension, scramble=True, seed=seed)  # type: ignore[no-untyped-call]


@lru_cache(maxsize=32)
def _sobol(dimension: int, points: int, seed: int, dtype: torch.dtype) -> Tensor:
    """Independently scrambled Sobol points (dimension, scrambles × points)."""
    seeds = np.random.SeedSequence([seed, 0x50B01]).generate_state(_SCRAMBLES)
    drawn = [
        sobol_engine(dimension, int(number)).draw(points, dtype=torch.float64)
        for number in seeds
    ]
    return (torch.cat(drawn) + _HALF_CELL).T.contiguous().to(dtype)


#: Makes it of some problems and of what it takes of the points.
_Prepare = Callable[[_Factor, tuple[Tensor, ...]], _Integrand]


def _integrate(factor: _Factor, points: int, seed: int) -> tuple[Tensor, Tensor]:
    """Means over each scramble (problems, scrambles), and what rounding may add."""
    count, size = factor.limits.shape
    device = factor.limits.device
    result = torch.empty(count, _SCRAMBLES, dtype=torch.float64, device=device)
    regular = factor.rank == size
    # The probability is at most that of the first constraint.
    first = factor.limits.amin(dim=1)
    quick = regular & (first.abs() < _MODERATE) & (points <= _SINGLE_POINTS)
    common = regular & ~quick & (first > _QUICK_LIMIT)
    kinds: list[tuple[Tensor, torch.dtype, _Prepare]] = [
        (quick, torch.float32, _common),
        (common, torch.float64, _common),
        (regular & ~quick & ~common, torch.float64, _rare),
        (~regular, torch.float64, _singular),
    ]
    for chosen, dtype, prepare in kinds:
        rows = chosen.nonzero()[:, 0]
        if len(rows):
            uniform = _sobol(max(size - 1, 1), points, seed, dtype).to(device)
            result[rows] = _means(factor.of(rows), uniform, points, prepare)
    rounding = _SINGLE_ROUNDING if size <= 20 else _SINGLE_ROUNDING_LARGE
    return result, torch.where(quick, rounding, 0.0)


def _means(factor: _Factor, uniform: Tensor, points: int, prepare: _Prepare) -> Tensor:
    """Means of the integrand over each scramble: (problems, scrambles)."""
    count, device = len(factor.limits), uniform.device
    chunk = _CUDA_CHUNK
    if device.type == "cpu":
        chunk = _CPU_CHUNK * torch.get_num_threads()
    # Whole scrambles or a part of one, a power of 2 like the points.
    target = max(_POINTS_AT_ONCE, chunk // count)
    at_once = min(points, 1 << (target.bit_length() - 1))
    at_once *= max(1, min(_SCRAMBLES, target // points))
    nodes = _nodes(uniform, prepare)
    sums = torch.zeros(count, _SCRAMBLES, dtype=torch.float64, device=device)
    for inside in spans(count, max(1, chunk // at_once)):
        integrand = prepare(factor.of(inside), nodes)
        for part in spans(uniform.shape[1], at_once):
            each = min(points, part.stop - part.start)
            # Sums of single-precision products in double precision.
            total = integrand(part)
            total = total.reshape(len(total), -1, each)
            place = slice(part.start // points, (part.stop - 1) // points + 1)
            sums[inside, place] += total.sum(dim=2, dtype=torch.float64)
    return sums / points


def _nodes(uniform: Tensor, prepare: _Prepare) -> tuple[Tensor, ...]:
    if prepare is not _common:
        return (uniform,)
    # Neither end of the interval (-1, 1) is reached.
    eps = torch.finfo(uniform.dtype).eps
    inside = uniform * (1 - 2 * eps)
    return inside, inside - (1 - eps)


def _common(factor: _Factor, nodes: tuple[Tensor, ...]) -> _Integrand:
    """Full rank, no rare event: the error function and its inverse are quick.

    Their rounding is absolute, which does no harm to a product of the masses.
    """
    inside, start = nodes
    count, size = factor.limits.shape
    scale = factor.lower.diagonal(dim1=1, dim2=2)
    # Variables are kept divided by √2; 1 + erf is twice a mass.
    limits = (factor.limits / scale / math.sqrt(2)).to(inside.dtype)[:, :, None]
    minus = (-factor.lower / scale[:, :, None]).to(inside.dtype)
    steps = [
        (limits[:, step : step + 1], minus[:, step : step + 1, :step])
        for step in range(1, size)
    ]
    first = torch.erf(limits[:, 0])

    def integrand(part: slice) -> Tensor:
        width = part.stop - part.start
        variables = inside.new_empty(count, size - 1, width)
        bound = inside.new_empty(count, 1, width)
        erf = bound[:, 0]
        product = (first + 1).repeat(1, width)
        last = first
        for step, (limit, row) in enumerate(steps, start=1):
            drawn = variables[:, step - 1]
            torch.addcmul(
                start[step - 1, part], inside[step - 1, part], last, out=drawn
            )
            drawn.erfinv_()
            torch.baddbmm(limit, row, variables[:, :step], out=bound)
            last = erf.erf_()
            product.addcmul_(product, last)
        return product.mul_(0.5**size)

    return integrand


def _rare(factor: _Factor, nodes: tuple[Tensor, ...]) -> _Integrand:
    """Full rank; tails keep their digits."""
    (uniform,) = nodes
    count, size = factor.limits.shape
    scale = factor.lower.diagonal(dim1=1, dim2=2)
    limits = (factor.limits / scale)[:, :, None]
    lower = factor.lower / scale[:, :, None]

    def integrand(part: slice) -> Tensor:
        width = part.stop - part.start
        variables = uniform.new_empty(count, size - 1, width)
        below = torch.special.ndtr(limits[:, 0]).expand(count, width)
        product = below.clone()
        for step in range(1, size):
            mass = (uniform[step - 1, part] * below).clamp_(min=_SMALLEST)
            torch.special.ndtri(mass, out=variables[:, step - 1])
            bound = torch.baddbmm(
                limits[:, step : step + 1],
                lower[:, step : step + 1, :step],
                variables[:, :step],
                alpha=-1,
            )[:, 0]
            below = torch.special.ndtr(bound)
            product *= below
        return product

    return integrand


def _singular(factor: _Factor, nodes: tuple[Tensor, ...]) -> _Integrand:
    """Rows share their last variable, which they bound from above and below."""
    (uniform,) = nodes

    def integrand(part: slice) -> Tensor:
        points = uniform[:, part]
        slack = factor.limits[:, :, None].repeat(1, 1, points.shape[1])
        product = torch.ones_like(slack[:, 0])
        for step in range(int(factor.rank.max())):
            column = factor.lower[:, :, step, None]
            ends = (factor.last == step)[:, :, None]
            divisor = torch.where(ends, column, 1.0)
            bounds = slack / divisor
            upper = torch.where(ends & (column > 0), bounds, torch.inf).amin(dim=1)
            under = torch.where(ends & (column < 0), bounds, -torch.inf).amax(dim=1)
            # Both bounds to the left of 0, where differences keep their digits.
            flip = under > 0
            left = torch.where(flip, -upper, under)
            right = torch.where(flip, -under, upper)
            start = torch.special.ndtr(left)
            width = (torch.special.ndtr(right) - start).clamp_min(0)
            product *= width
            if step < len(points):
                mass = (start + points[step] * width).clamp(_SMALLEST, 1 - 2.0**-53)
                drawn = torch.special.ndtri(mass)
                drawn = torch.where(flip, -drawn, drawn)
                slack -= column * drawn[:, None]
        return product

    return integrand
