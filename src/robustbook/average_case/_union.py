"""Probability that at least one of several normal constraints fails.

The union is split by the first constraint that fails, where the most likely failures
come first: P[some fail] = Σ_i P[i fails, and all before it hold]. The first two terms
have closed forms. Common failures are integrated together, as the complement of an
orthant probability. Each of the others is an orthant probability whose variables are
drawn given that constraint i fails, so that no point is wasted, however rare the
failure is. A term is at most P[i fails] and the sum at least the largest of these, so
the relative error of the sum does not grow as failures become rare.
Sources: Genz (1992) for each term; Owen, Maximov and Chertkov, Importance sampling the
union of rare events (2019), for sampling given the failure of one event; Chapter 18.
"""

from typing import Final

import numpy as np
import torch
from scipy.special import owens_t
from torch import Tensor

from robustbook.average_case import _separation
from robustbook.average_case._separation import (
    SCRAMBLES,
    SMALLEST,
    standard_error_of_means,
)

#: Failures more likely than this are integrated together.
COMMON: Final = 0.2
#: Constraints whose failures together have at most this share of the probability of the
#: most likely failure are not integrated: half of their sum is added, the other half is
#: the error. If the sum of all is at most the second number, none is integrated.
NEGLIGIBLE: Final = 1e-5
CERTAIN: Final = 1e-12
#: Each rare term gets a quarter of the points, or less if there are many terms.
_SHARE: Final = 4
#: Every third time, all points of an integral miss a set of conditional probability
#: 1 / points, and scrambles that all miss it agree. This share of its probability is
#: added to the error, a heuristic whose size gave all problems in the tests coverage.
_MISSED: Final = 1 / 8


def failure_probability(
    limits: Tensor, correlation: Tensor, points: int, seed: int, tolerance: float
) -> tuple[Tensor, Tensor]:
    """Return P[Z_i > limit_i for some i] (n,) and its error, limits ascending."""
    size = limits.shape[1]
    chances = torch.special.ndtr(-limits)
    tails = chances.flip(1).cumsum(1).flip(1)
    kept = (tails > NEGLIGIBLE * chances[:, :1]).sum(dim=1)
    kept = torch.where(tails[:, 0] < CERTAIN, 0, kept)
    # The first two have closed forms in any case.
    kept = torch.maximum(kept, (chances[:, :2] > 0).sum(dim=1))
    common = (chances > COMMON).sum(dim=1)
    common = torch.where(common > 2, common, kept.clamp(max=2))
    rest = torch.nn.functional.pad(tails, (0, 1)).gather(1, kept[:, None]) / 2
    values = rest.repeat(1, SCRAMBLES)
    error = rest[:, 0] / 1.96
    missed = torch.zeros_like(error)
    for several in sorted(set(common.tolist()) - {0}):
        rows = (common == several).nonzero()[:, 0]
        limit = limits[rows, :several]
        matrix = correlation[rows, :several, :several]
        if several == 1:
            values[rows] += chances[rows, :1]
        elif several == 2:
            both = bivariate(-limit, matrix[:, 0, 1])
            values[rows] += (chances[rows, :2].sum(dim=1) - both)[:, None]
        else:
            factor = _separation.factorize(limit, matrix, tolerance)
            means, rounding = _separation.integrate(factor, points, seed)
            values[rows] += 1 - means
            error[rows] += rounding
            missed[rows] += (chances[rows, 0] / (SCRAMBLES * points)).square()
    # All terms together get about as many points as a single integral.
    fewer = [
        _SHARE ** (1 + ((terms // 8).bit_length() + 1) // 2)
        for terms in range(size + 1)
    ]
    share = torch.tensor(fewer, device=limits.device)[kept - common]
    single = points <= _separation.SINGLE_POINTS
    for last in range(2, size):
        live = (common <= last) & (kept > last)
        for part in sorted(set(share[live].tolist())):
            rows = (live & (share == part)).nonzero()[:, 0]
            each = max(1, points // part)
            factor = _given_failure(limits[rows], correlation[rows], last, tolerance)
            means, rounding = _separation.integrate(
                factor, each, seed, shift=last, single=single
            )
            values[rows] += means
            error[rows] += rounding
            missed[rows] += (chances[rows, last] / (SCRAMBLES * each)).square()
    spread = standard_error_of_means(values).square() + _MISSED**2 * missed
    return values.mean(dim=1), spread.sqrt() + error


def _given_failure(
    limits: Tensor, correlation: Tensor, last: int, tolerance: float
) -> _separation.Factor:
    """Factorize the constraints before `last`, with the reversed `last` in front."""
    order = [last, *range(last)]
    signs = torch.ones(last + 1, dtype=limits.dtype, device=limits.device)
    signs[0] = -1
    matrix = correlation[:, order][:, :, order] * signs * signs[:, None]
    return _separation.cholesky(limits[:, order] * signs, matrix, tolerance)


def bivariate(limits: Tensor, correlation: Tensor) -> Tensor:
    """Return P[Z_1 ≤ h, Z_2 ≤ k], by Owen's T function."""
    # The formula divides by both limits, so 0 is replaced by a tiny number.
    near = limits.cpu()
    h, k = torch.where(near == 0, SMALLEST, near).unbind(dim=1)
    rho = correlation.cpu().clamp(-1, 1)
    root = ((1 - rho) * (1 + rho)).sqrt()
    parts = torch.zeros_like(h)
    for first, second in ((h, k), (k, h)):
        slope = (second / first - rho) / root
        parts += torch.from_numpy(np.asarray(owens_t(first.numpy(), slope.numpy())))
    total = (torch.special.ndtr(h) + torch.special.ndtr(k)) / 2
    value = total - parts - torch.where((h < 0) != (k < 0), 0.5, 0.0)
    # The closed form cancels if one variable is a function of the other.
    same, opposite = rho == 1, rho == -1
    smaller = torch.special.ndtr(torch.minimum(h, k))
    between = (torch.special.ndtr(h) - torch.special.ndtr(-k)).clamp_min(0)
    value = torch.where(same, smaller, torch.where(opposite, between, value))
    return value.to(limits.device)
