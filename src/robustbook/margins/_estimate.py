"""Estimates of a share in a finite population, with intervals that end where it can."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from robustbook.margins._arrays import Flags, Indices, Vector


@dataclass(frozen=True)
class Estimate:
    """An unbiased estimate with a confidence interval.

    Attributes
    ----------
    value : float
        The estimate. Unbiased estimates may lie slightly outside [0, 1].
    standard_error : float
        Estimated; with the correction for a finite population.
    interval : tuple of float
        Confidence interval, within what the sample leaves possible.
    level : float
        Its coverage.
    """

    value: float
    standard_error: float
    interval: tuple[float, float]
    level: float


def quantile(level: float) -> float:
    """The two-sided quantile of the normal distribution."""
    return NormalDist().inv_cdf(0.5 + level / 2)


def bounded_interval(
    value: float,
    residuals: Vector,
    outcome: Flags,
    right: Flags,
    rows: Indices,
    level: float,
) -> Estimate:
    """The normal interval of a simple random sample, widened and cut.

    Widened by as much as Wilson's interval is at zero successes: where no residual
    was seen, the interval is no point. Cut to what the measured outcomes and the
    wrong predictions leave possible, which is certain.
    """
    size, count = len(rows), len(right)
    correction = 1 - size / count
    squares = float(np.square(residuals).sum())
    error = np.sqrt(correction * squares / (size - 1) / size)
    z = quantile(level)
    half = z * np.sqrt(correction * (squares + z**2) / (size - 1) / size)
    least = float(outcome.sum()) / count
    most = (right.sum() - (right[rows] & ~outcome).sum()) / count
    return Estimate(
        value, float(error), clipped(value, float(half), least, float(most)), level
    )


def clipped(
    value: float, half: float, least: float, most: float
) -> tuple[float, float]:
    """Cut an interval to what is possible."""
    low, high = (float(min(max(value + d, least), most)) for d in (-half, half))
    return low, high
