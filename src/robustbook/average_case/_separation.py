"""Orthant probabilities by separation of variables over scrambled Sobol points.

Sources: Genz, Numerical computation of multivariate normal probabilities (1992);
Gibson, Glasbey and Elston (1994) for the order of the constraints; Genz and Kwong
(2000) for singular covariances; Chapter 18.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.quasirandom import SobolEngine

from robustbook._intervals import normal_quantile, student_quantile
from robustbook.average_case._problem import spans

#: Numbers in a batch: as many as the cache holds for each thread of a CPU, and enough
#: to keep a GPU busy.
_CPU_CHUNK: Final = 1 << 16
_CUDA_CHUNK: Final = 1 << 24
#: Points of a problem in a batch of many problems: they stay in the cache from problem
#: to problem.
_POINTS_AT_ONCE: Final = 1 << 10
#: For constraints that hold less often than at this limit (one in a million), the tails
#: are computed with full relative accuracy.
_QUICK_LIMIT: Final = -4.75
#: Independent scrambles of the points.
SCRAMBLES: Final = 8
#: Up to this number of points, single precision is exact enough: sampling changes a
#: probability by over 1e-6, rounding by less than the second number, or the third in
#: more than 20 dimensions (measured in the tests).
SINGLE_POINTS: Final = 1 << 13
_SINGLE_ROUNDING: Final = 1e-7
_SINGLE_ROUNDING_LARGE: Final = 5e-7
#: Largest absolute limit for which single precision is used: no failure is rare there.
_MODERATE: Final = 3.0
SMALLEST: Final = 1e-300
#: Half the distance of Sobol points, which keeps all of them away from 0.
_HALF_CELL: Final = 2.0**-31


def standard_error_of_means(values: Tensor) -> Tensor:
    """Return the standard error of the mean over the last dimension.

    It is widened by Student's law, so that ± 1.96 of it are an interval of 95 %.
    """
    count = values.shape[-1]
    error = values.std(dim=-1, correction=1) / math.sqrt(count)
    return error * (student_quantile(0.95, count - 1) / normal_quantile(0.95))


class Factor(NamedTuple):
    """Constraints ``lower @ y ≤ limits`` on independent standard normal ``y``.

    ``last`` is the last variable of each row: with full rank, that on the diagonal.
    """

    limits: Tensor
    lower: Tensor
    last: Tensor
    rank: Tensor

    def of(self, rows: Tensor | slice) -> Factor:
        return Factor(*(part[rows] for part in self))


def factorize(limits: Tensor, correlation: Tensor, tolerance: float) -> Factor:
    """Return the Cholesky factor, the least likely constraint first at each step."""
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
        # Where no variance is left, any coordinate that is not placed will do.
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
    # A coefficient that is zero up to rounding does not end a row.
    relevant = lower.abs() > math.sqrt(tolerance)
    steps = torch.arange(size, device=limits.device)
    last = torch.where(relevant, steps, -1).amax(dim=2)
    return Factor(limits.gather(1, permutation), lower, last, rank)


def cholesky(limits: Tensor, correlation: Tensor, tolerance: float) -> Factor:
    """Return the factor in the given order, where it has full rank."""
    count, size = limits.shape
    lower, info = torch.linalg.cholesky_ex(correlation)
    smallest = lower.diagonal(dim1=1, dim2=2).amin(dim=1)
    singular = (info != 0) | ~(smallest.square() > max(16 * tolerance, 1e-10))
    steps = torch.arange(size, device=limits.device).expand(count, size)
    factor = Factor(limits, lower, steps.clone(), steps[:, -1] + 1)
    rows = singular.nonzero()[:, 0]
    if len(rows):
        other = factorize(limits[rows], correlation[rows], tolerance)
        factor = Factor(
            *(a.index_copy(0, rows, b) for a, b in zip(factor, other, strict=True))
        )
    return factor


def _hazard(limit: Tensor) -> Tensor:
    """Return phi(t) / Phi(t), minus the mean of a normal variable below t."""
    log_density = -0.5 * limit.square() - 0.5 * math.log(2 * math.pi)
    return torch.exp(log_density - torch.special.log_ndtr(limit))


def sobol_engine(dimension: int, seed: int) -> SobolEngine:
    return SobolEngine(dimension, scramble=True, seed=seed)  # type: ignore[no-untyped-call]


@lru_cache(maxsize=32)
def _sobol(dimension: int, points: int, seed: int, dtype: torch.dtype) -> Tensor:
    """Draw independently scrambled Sobol points (dimension, scrambles × points)."""
    seeds = np.random.SeedSequence([seed, 0x50B01]).generate_state(SCRAMBLES)
    drawn = [
        sobol_engine(dimension, int(number)).draw(points, dtype=torch.float64)
        for number in seeds
    ]
    return (torch.cat(drawn) + _HALF_CELL).T.contiguous().to(dtype)


def integrate(
    factor: Factor, points: int, seed: int, *, shift: int = 0, single: bool = True
) -> tuple[Tensor, Tensor]:
    """Return means over each scramble (problems, scrambles), and errors of rounding.

    With a `shift`, the points are moved modulo 1, so that integrals that are added have
    independent errors. Unless `single`, all is computed in double precision.
    """
    count, size = factor.limits.shape
    device = factor.limits.device
    result = torch.empty(count, SCRAMBLES, dtype=torch.float64, device=device)
    regular = factor.rank == size
    # The probability is at most that of the first constraint.
    first = factor.limits.amin(dim=1)
    quick = regular & (first.abs() < _MODERATE) & (single & (points <= SINGLE_POINTS))
    common = regular & ~quick & (first > _QUICK_LIMIT)
    for chosen, dtype, integrand in (
        (quick, torch.float32, _common),
        (common, torch.float64, _common),
        (regular & ~quick & ~common, torch.float64, _rare),
        (~regular, torch.float64, _singular),
    ):
        rows = chosen.nonzero()[:, 0]
        if len(rows):
            # Rounding the size up lets integrals of several sizes share a table.
            wide = 1 << (size - 1).bit_length() if shift else max(size - 1, 1)
            uniform = _sobol(wide, points, seed, dtype)[: max(size - 1, 1)]
            if shift:
                moved = np.random.default_rng([seed, shift]).random((wide, SCRAMBLES))
                steps = torch.from_numpy(moved[: len(uniform)]).to(dtype)
                uniform = (uniform + steps.repeat_interleave(points, dim=1)) % 1
            uniform = uniform.to(device)
            result[rows] = _means(factor.of(rows), uniform, points, integrand)
    rounding = _SINGLE_ROUNDING if size <= 20 else _SINGLE_ROUNDING_LARGE
    return result, torch.where(quick, rounding, 0.0)


def _means(
    factor: Factor,
    uniform: Tensor,
    points: int,
    integrand: Callable[[Factor, Tensor], Tensor],
) -> Tensor:
    """Return means of the integrand over each scramble: (problems, scrambles)."""
    count, device = len(factor.limits), uniform.device
    chunk = _CUDA_CHUNK
    if device.type == "cpu":
        chunk = _CPU_CHUNK * torch.get_num_threads()
    # A batch is a number of complete scrambles or a part of one, a power of 2.
    target = max(_POINTS_AT_ONCE, chunk // count)
    at_once = min(points, 1 << (target.bit_length() - 1))
    at_once *= max(1, min(SCRAMBLES, target // points))
    sums = torch.zeros(count, SCRAMBLES, dtype=torch.float64, device=device)
    for inside in spans(count, max(1, chunk // at_once)):
        for part in spans(uniform.shape[1], at_once):
            each = min(points, part.stop - part.start)
            total = integrand(factor.of(inside), uniform[:, part])
            total = total.reshape(len(total), -1, each)
            place = slice(part.start // points, (part.stop - 1) // points + 1)
            # Sums of single-precision products in double precision.
            sums[inside, place] += total.sum(dim=2, dtype=torch.float64)
    return sums / points


def _common(factor: Factor, uniform: Tensor) -> Tensor:
    """Integrate problems of full rank without rare events: (problems, points).

    The error function and its inverse are quick. Their rounding errors are absolute,
    which does not harm a product of probabilities that are not small.
    """
    count, size = factor.limits.shape
    scale = factor.lower.diagonal(dim1=1, dim2=2)
    # Variables are kept divided by √2; 1 + erf is twice a mass.
    limits = (factor.limits / scale / math.sqrt(2)).to(uniform.dtype)[:, :, None]
    minus = (-factor.lower / scale[:, :, None]).to(uniform.dtype)
    # The ends of the interval (-1, 1) are excluded.
    eps = torch.finfo(uniform.dtype).eps
    inside = uniform * (1 - 2 * eps)
    start = inside - (1 - eps)
    variables = uniform.new_empty(count, size - 1, uniform.shape[1])
    last = torch.erf(limits[:, 0])
    product = (last + 1).repeat(1, uniform.shape[1])
    for step in range(1, size):
        drawn = variables[:, step - 1]
        torch.addcmul(start[step - 1], inside[step - 1], last, out=drawn).erfinv_()
        limit, row = limits[:, step : step + 1], minus[:, step : step + 1, :step]
        last = torch.baddbmm(limit, row, variables[:, :step])[:, 0].erf_()
        product.addcmul_(product, last)
    return product.mul_(0.5**size)


def _rare(factor: Factor, uniform: Tensor) -> Tensor:
    """Integrate problems of full rank whose tails must keep their digits."""
    count, size = factor.limits.shape
    scale = factor.lower.diagonal(dim1=1, dim2=2)
    limits = (factor.limits / scale)[:, :, None]
    minus = -factor.lower / scale[:, :, None]
    variables = uniform.new_empty(count, size - 1, uniform.shape[1])
    below = torch.special.ndtr(limits[:, 0]).expand(count, uniform.shape[1])
    product = below.clone()
    for step in range(1, size):
        mass = (uniform[step - 1] * below).clamp_(min=SMALLEST)
        torch.special.ndtri(mass, out=variables[:, step - 1])
        limit, row = limits[:, step : step + 1], minus[:, step : step + 1, :step]
        bound = torch.baddbmm(limit, row, variables[:, :step])[:, 0]
        below = torch.special.ndtr(bound)
        product *= below
    return product


def _singular(factor: Factor, uniform: Tensor) -> Tensor:
    """Integrate singular problems: rows that end in one variable bound it together."""
    slack = factor.limits[:, :, None].repeat(1, 1, uniform.shape[1])
    product = torch.ones_like(slack[:, 0])
    for step in range(int(factor.rank.max())):
        column = factor.lower[:, :, step, None]
        ends = (factor.last == step)[:, :, None]
        bounds = slack / torch.where(ends, column, 1.0)
        upper = torch.where(ends & (column > 0), bounds, torch.inf).amin(dim=1)
        under = torch.where(ends & (column < 0), bounds, -torch.inf).amax(dim=1)
        # Bounds are mirrored to the left of 0, where differences keep digits.
        flip = under > 0
        left = torch.where(flip, -upper, under)
        right = torch.where(flip, -under, upper)
        start = torch.special.ndtr(left)
        width = (torch.special.ndtr(right) - start).clamp_min(0)
        product *= width
        if step < len(uniform):
            mass = (start + uniform[step] * width).clamp(SMALLEST, 1 - 2.0**-53)
            drawn = torch.special.ndtri(mass)
            drawn = torch.where(flip, -drawn, drawn)
            slack -= column * drawn[:, None]
    return product
