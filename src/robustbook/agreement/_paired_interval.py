"""The interval of an accuracy that is estimated from pairs and a calibration.

Two variances add: that of the pairs, by a score interval for a mean of numbers in
[0, 1], and that of the calibration, by what its interval of beta does to the estimate.
Their distances from the estimate are added in squares, to each side by itself.
"""

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy.stats import t as student
from torch import Tensor

from robustbook.agreement._calibration import Calibration
from robustbook.agreement._temperatures import (
    log_posterior,
    posterior_overlap,
    row_slices,
)

Array = npt.NDArray[np.float64]
#: Where the estimate varies little, it counts as varying as much as so many right and
#: wrong answers would: a few pairs do not show rare ones.
_PRIOR_EVENTS = 2.0
#: Of each side of the interval of beta, at how many points the estimate is computed.
_STEPS = 3


def accuracy_interval(
    pair: tuple[Tensor, Tensor], calibration: Calibration, by: str | None
) -> tuple[Array, Array, Array, Array]:
    """Estimates (C,), and ends (2, C) in all, by the pairs and by the calibration."""
    sums = _sums(pair, calibration.beta, by)
    with np.errstate(invalid="ignore", divide="ignore"):
        value = sums[1] / sums[0]
        own = _wilson(sums, value, calibration.level)
        points = [_sums(pair, beta, by)[:2] for beta in _grid(calibration)]
        moved = np.array([value, *(top / weight for weight, top in points)])
    other = np.array([moved.min(0), moved.max(0)])
    half = np.hypot(own - value, other - value)
    ends = np.clip([value - half[0], value + half[1]], 0.0, 1.0)
    return value, ends, own, other


def _sums(pair: tuple[Tensor, Tensor], beta: float, by: str | None) -> Array:
    """Sums of w, wv, w², w²v and w²v², where the estimate is a mean of v, weighted."""
    clean, shifted = pair
    if by is None:
        values = posterior_overlap(clean, shifted, beta=beta, shifted_beta=math.inf)
        ones = torch.ones_like(values)
        moments = torch.stack([ones, values, ones, values, values**2]).sum(1)
        return moments[:, None].cpu().numpy()
    total: Any = 0.0
    for rows in row_slices(clean):
        p = log_posterior(clean[rows], beta).exp()
        answer = log_posterior(shifted[rows], math.inf).exp()
        w, v = (answer, p) if by == "answer" else (p, answer)
        total = total + torch.stack([w, w * v, w**2, w**2 * v, (w * v) ** 2]).sum(1)
    result: Array = total.cpu().numpy()
    return result


def _wilson(sums: Array, value: Array, level: float) -> Array:
    """Wilson's interval, for contributions that vary less than right and wrong do."""
    weight, _, squares, cross, spread = sums
    count = weight**2 / squares
    variance = (spread - 2 * value * cross + value**2 * squares) / squares
    variance = np.maximum(variance, 0.0) * count / np.maximum(count - 1, 1e-300)
    most = value * (1 - value)
    share = (count * variance + _PRIOR_EVENTS) / (count * most + _PRIOR_EVENTS)
    quantile = student.ppf((1 + level) / 2, np.maximum(count - 1, 1e-9))
    wide = np.minimum(quantile**2 * share / count, 1e12)
    middle, half = value + wide / 2, np.sqrt(wide * most + wide**2 / 4)
    return np.clip(np.array([middle - half, middle + half]) / (1 + wide), 0.0, 1.0)


def _grid(calibration: Calibration) -> list[float]:
    """Inverse temperatures over their interval, the best left out."""
    (low, high), best = calibration.interval, calibration.beta
    points = {low, high}
    for end in (low, high):
        if 0 < end < math.inf and 0 < best < math.inf:
            points.update(np.geomspace(best, end, _STEPS + 1)[1:].tolist())
        elif math.isinf(end):
            start = best if 0 < best < math.inf else low
            points.update(2.0**step * start for step in range(1, _STEPS + 1))
    return sorted(points - {best})
