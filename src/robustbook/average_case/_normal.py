"""The multivariate normal distribution function, for many problems at once."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

import numpy as np
import torch
from scipy.special import owens_t, stdtrit
from torch import Tensor
from torch.quasirandom import SobolEngine

from robustbook._validation import DTYPES, as_tensor, check_count
from robustbook.average_case._problem import spans

#: Constraints whose failures together have at most this share of the probability of
#: the most likely failure are left out.
NEGLIGIBLE: Final = 1e-7
#: Numbers at once: for each thread of a CPU what its cache holds, for a GPU what
#: keeps it busy.
_CPU_CHUNK: Final = 1 << 15
_CUDA_CHUNK: Final = 1 << 24
#: Where a constraint holds less often than this limit says (one in a million), the
#: tails are computed with full relative accuracy.
_QUICK_LIMIT: Final = -4.75
#: Up to so many points in all, single precision is exact enough: chance changes a
#: probability by over 1e-6, rounding by less than the second number (the third in
#: more than 20 dimensions; measured in the tests).
_SINGLE_POINTS: Final = 1 << 16
_SINGLE_ROUNDING: Final = 1e-7
_SINGLE_ROUNDING_LARGE: Final = 5e-7
#: Largest limit, of either sign, for which it is used: nothing there is rare.
_MODERATE: Final = 3.0
_SMALLEST: Final = 1e-300
#: Half the distance of Sobol points: none of them is at 0.
_HALF_CELL: Final = 2.0**-31


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
    together they change the probability of failure by less than 1e-7 of it.

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
        If shapes do not match, an entry is NaN, or a covariance is not symmetric
        and positive semidefinite.

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
    check_count("points", points)
    if points & (points - 1):
        raise ValueError(f"points: expected a power of 2, got {points}.")
    check_count("scrambles", scrambles, minimum=2)
    check_count("seed", seed, minimum=0)
    if dtype not in (None, torch.float32, torch.float64):
        raise ValueError(
            f"dtype: expected torch.float32 or torch.float64, got {dtype}."
        )
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
            factor = _factorize(limit, correlation, rounding)
            rule = _Rule(points, scrambles, seed, dtype)
            values, rounding_error = _integrate(factor, rule)
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
                f"{name}: expected floating-point numbers, got dtype {values.dtype}."
            )
    if means.device != covariances.device:
        raise ValueError(
            f"covariance: expected device {means.device}, as mean, got "
            f"{covariances.device}; move one of them."
        )
    dimension = means.shape[-1] if means.ndim else 0
    if dimension == 0 or covariances.shape[-2:] != (dimension, dimension):
        raise ValueError(
            "mean, covariance: expected shapes (..., D) and (..., D, D) with D of at "
            f"least 1, got {tuple(means.shape)} and {tuple(covariances.shape)}."
        )
    try:
        shape = np.broadcast_shapes(means.shape[:-1], covariances.shape[:-2])
    except ValueError:
        raise ValueError(
            "mean, covariance: expected shapes (..., D) and (..., D, D) whose first "
            f"dimensions broadcast, got {tuple(means.shape)} and "
            f"{tuple(covariances.shape)}."
        ) from None
    if bool(means.isnan().any()):
        raise ValueError("mean: expected numbers, got NaN; remove such problems.")
    if not bool(torch.isfinite(covariances).all()):
        raise ValueError("covariance: expected finite numbers, got NaN or infinity.")
    diagonal = covariances.diagonal(dim1=-2, dim2=-1)
    if bool((diagonal < 0).any()):
        raise ValueError(
            f"covariance: expected variances of at least 0, got "
            f"{float(diagonal.min()):g}."
        )
    scale = diagonal.double().sqrt()
    slack = 64 * torch.finfo(covariances.dtype).eps
    # A product of roots, so that large variances do not overflow.
    bound = slack * scale[..., :, None] * scale[..., None, :]
    if bool(((covariances - covariances.mT).abs() > bound).any()):
        raise ValueError(
            "covariance: expected a symmetric matrix; symmetrize it: (C + C.mT) / 2."
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


@dataclass(frozen=True, eq=False)
class _Factor:
    """Constraints ``lower @ y ≤ limits`` on independent standard normal ``y``.

    Row j of a problem of full rank ends on the diagonal. Otherwise ``last`` says
    which variable a row ends with.
    """

    limits: Tensor
    lower: Tensor
    last: Tensor
    rank: Tensor

    def __getitem__(self, rows: Tensor) -> _Factor:
        return _Factor(
            self.limits[rows], self.lower[rows], self.last[rows], self.rank[rows]
        )


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
            "negative eigenvalue."
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
    """A scrambled Sobol sequence."""
    return SobolEngine(dimension, scramble=True, seed=seed)  # type: ignore[no-untyped-call]


@lru_cache(maxsize=32)
def _sobol(
    dimension: int, points: int, scrambles: int, seed: int, dtype: torch.dtype
) -> Tensor:
    """Independently scrambled Sobol points (dimension, scrambles × points)."""
    seeds = np.random.SeedSequence([seed, 0x50B01]).generate_state(scrambles)
    drawn = [
        sobol_engine(dimension, int(number)).draw(points, dtype=torch.float64)
        for number in seeds
    ]
    return (torch.cat(drawn) + _HALF_CELL).T.contiguous().to(dtype)


@dataclass(frozen=True)
class _Rule:
    """Which points, and in what precision."""

    points: int
    scrambles: int
    seed: int
    dtype: torch.dtype | None

    @property
    def single(self) -> bool:
        """Whether single precision will do."""
        few = self.points * self.scrambles <= _SINGLE_POINTS
        return self.dtype == torch.float32 or (self.dtype is None and few)

    def uniform(self, dimension: int, dtype: torch.dtype) -> Tensor:
        """The points (dimension, scrambles × points)."""
        return _sobol(dimension, self.points, self.scrambles, self.seed, dtype)


def _integrate(factor: _Factor, rule: _Rule) -> tuple[Tensor, Tensor]:
    """Means over each scramble (problems, scrambles), and what rounding may add."""
    points, scrambles = rule.points, rule.scrambles
    count, size = factor.limits.shape
    device = factor.limits.device
    result = torch.empty(count, scrambles, dtype=torch.float64, device=device)
    regular = factor.rank == size
    # The probability is at most that of the first constraint.
    first = factor.limits.amin(dim=1)
    quick = regular & (first.abs() < _MODERATE) & rule.single
    chunk = _CUDA_CHUNK
    if device.type == "cpu":
        chunk = _CPU_CHUNK * torch.get_num_threads()
    for chosen, integrate, dtype in (
        (quick, _regular, torch.float32),
        (regular & ~quick, _regular, torch.float64),
        (~regular, _singular, torch.float64),
    ):
        rows = chosen.nonzero()[:, 0]
        if not len(rows):
            continue
        uniform = rule.uniform(max(size - 1, 1), dtype).to(device)
        # As many points as fit, and as many problems as fit with them.
        at_once = min(points, chunk)
        sums = torch.zeros(len(rows), scrambles, dtype=torch.float64, device=device)
        for inside in spans(len(rows), max(1, chunk // at_once)):
            problem = factor[rows[inside]]
            for part in spans(scrambles * points, at_once):
                values = integrate(problem, uniform[:, part])
                # Sums of single-precision products in double precision.
                total = values.sum(dim=1, dtype=torch.float64)
                sums[inside, part.start // points] += total
        result[rows] = sums / points
    rounding = _SINGLE_ROUNDING if size <= 20 else _SINGLE_ROUNDING_LARGE
    return result, torch.where(quick, rounding, 0.0)


def _regular(factor: _Factor, uniform: Tensor) -> Tensor:
    """Integrand at the points for problems of full rank: (problems, points)."""
    scale = factor.lower.diagonal(dim1=1, dim2=2)
    limits = (factor.limits / scale)[:, :, None]
    lower = factor.lower / scale[:, :, None]
    if float(limits[:, 0].min()) > _QUICK_LIMIT:
        return _regular_by_erf(limits, lower, uniform)
    count, size = factor.limits.shape
    variables = uniform.new_empty(count, size - 1, uniform.shape[1])
    below = torch.special.ndtr(limits[:, 0]).expand(count, uniform.shape[1])
    product = below.clone()
    for step in range(1, size):
        mass = (uniform[step - 1] * below).clamp_(min=_SMALLEST)
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


def _regular_by_erf(limits: Tensor, lower: Tensor, uniform: Tensor) -> Tensor:
    """The same with the error function and its inverse, which take half the time.

    Their rounding is absolute, not relative. It does no harm: the mass that a
    variable is drawn from is a factor of the product.
    """
    count, size = len(limits), limits.shape[1]
    dtype, eps = uniform.dtype, torch.finfo(uniform.dtype).eps
    # Variables are kept divided by √2, and masses times 2.
    limits = (limits / math.sqrt(2)).to(dtype)
    lower = lower.to(dtype)
    variables = uniform.new_empty(count, size - 1, uniform.shape[1])
    # Neither end of the interval (-1, 1) is reached.
    start = torch.tensor(-1 + eps, dtype=dtype, device=uniform.device)
    inside = uniform * (1 - 2 * eps)
    twice = torch.erf(limits[:, 0]).add_(1).expand(count, uniform.shape[1])
    product = twice.clone()
    for step in range(1, size):
        signed = variables[:, step - 1]
        torch.addcmul(start, inside[step - 1], twice, out=signed)
        signed.erfinv_()
        bound = torch.baddbmm(
            limits[:, step : step + 1],
            lower[:, step : step + 1, :step],
            variables[:, :step],
            alpha=-1,
        )[:, 0]
        twice = bound.erf_().add_(1)
        product *= twice
    return product * 0.5**size


def _singular(factor: _Factor, uniform: Tensor) -> Tensor:
    """Integrand for problems in which rows share their last variable."""
    count, num_points = len(factor.limits), uniform.shape[1]
    slack = factor.limits[:, :, None].expand(-1, -1, num_points).clone()
    product = torch.ones(count, num_points, dtype=torch.float64, device=uniform.device)
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
        if step < len(uniform):
            mass = (start + uniform[step] * width).clamp(_SMALLEST, 1 - 2.0**-53)
            drawn = torch.special.ndtri(mass)
            drawn = torch.where(flip, -drawn, drawn)
            slack -= column * drawn[:, None]
    return product
