"""The normal quantile and Wilson's interval, for all that reports intervals."""

import math
from statistics import NormalDist


def normal_quantile(level: float) -> float:
    """Return the half-width of the central interval that has probability `level`.

    >>> round(normal_quantile(0.95), 3)
    1.96
    """
    return NormalDist().inv_cdf(0.5 + level / 2)


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
