"""Estimates with intervals: the record, the quantiles, and Wilson's interval."""

import math
from dataclasses import dataclass, field
from statistics import NormalDist
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Estimate:
    """An estimate, its standard error, and a confidence interval, at 95 % if not said.

    Attributes
    ----------
    value, standard_error : float
        The estimate and its error; NaN if a single sample leaves the error undefined.
    interval : (float, float)
        Ends of the confidence interval.
    """

    value: float
    standard_error: float
    interval: tuple[float, float]


@dataclass(frozen=True)
class Difference(Estimate, Generic[T]):
    """The score of a first model minus that of a second, on the same pairs.

    Attributes
    ----------
    value, standard_error, interval
        Of the difference; variation that the models share cancels.
    level : float
        Coverage of the interval.
    first, second
        The results for the two models.
    """

    level: float
    first: T = field(repr=False)
    second: T = field(repr=False)


def normal_quantile(level: float) -> float:
    """Return the half-width of the central interval that has probability `level`.

    >>> round(normal_quantile(0.95), 3)
    1.96
    """
    return NormalDist().inv_cdf(0.5 + level / 2)


def student_quantile(level: float, freedom: float) -> float:
    """Return the same for Student's law with so many degrees of freedom.

    >>> round(student_quantile(0.95, 9), 3)
    2.262
    """
    # Imported when needed: scipy.special takes 0.2 s, scipy.stats half a second.
    from scipy import special

    return float(special.stdtrit(freedom, 0.5 + level / 2))


def wilson(successes: float, trials: float, level: float = 0.95) -> tuple[float, float]:
    """Return Wilson's score interval for a share of independent trials.

    Numbers that are not whole stand for an effective sample size.

    >>> [round(end, 3) for end in wilson(0, 10)]
    [0.0, 0.278]
    """
    share, z = successes / trials, normal_quantile(level)
    center = (share + z**2 / (2 * trials)) / (1 + z**2 / trials)
    half = z * math.sqrt(share * (1 - share) / trials + (z / (2 * trials)) ** 2)
    half /= 1 + z**2 / trials
    return max(0.0, center - half), min(1.0, center + half)


def joined(share: float, *intervals: tuple[float, float]) -> tuple[float, float]:
    """Return the interval of a share whose deviations add those of several in squares.

    >>> [round(end, 3) for end in joined(0.5, (0.2, 0.53), (0.1, 0.54))]
    [0.0, 0.55]
    """
    below, above = (
        math.hypot(*(end - share for end in ends))
        for ends in zip(*intervals, strict=True)
    )
    return max(0.0, share - below), min(1.0, share + above)
