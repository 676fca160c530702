"""How sure an agreement is: standard errors and intervals, and hard decisions."""

from __future__ import annotations

import math
from typing import Final

from torch import Tensor

from robustbook._checks.arguments import check_count, check_fraction
from robustbook._intervals import normal_quantile, student_quantile, wilson
from robustbook.agreement.solver import Shards

#: Where contributions vary this much more than hard answers do, the number of changed
#: answers does not determine the upper end of the interval.
_SOFT_RATIO: Final = 3.0
#: Contributions and agreement this close to those of hard answers count as hard.
_HARD_TOLERANCE: Final = 1e-6


def symmetric_channel_capacity(mismatch: float, num_classes: int) -> float:
    """Posterior agreement of hard decisions: a channel capacity.

    The K-ary symmetric channel changes its input to one of the K - 1 other letters,
    each with probability mismatch / (K - 1). One-hot logits with this share of
    mismatched predictions have its capacity as their posterior agreement, as long as
    mismatch < (K - 1) / K, and 0 beyond, where Shannon's capacity rises again: no
    temperature turns a mismatch into a match. Source: Chapter 8 (not in the papers).

    Parameters
    ----------
    mismatch : float
        Share of pairs whose predictions differ, in [0, 1].
    num_classes : int
        K, at least 2.

    Returns
    -------
    float
        Nats: log K - H_b(mismatch) - mismatch log(K - 1), or 0.

    Examples
    --------
    >>> round(symmetric_channel_capacity(0.11, 2), 4)
    0.3466
    >>> symmetric_channel_capacity(0.9, 10)
    0.0
    """
    share = check_fraction("mismatch", mismatch)
    return hard_agreement(share, check_count("num_classes", num_classes, minimum=2))


def hard_agreement(share: float, classes: int) -> float:
    """:func:`symmetric_channel_capacity` of checked numbers."""
    if share * classes >= classes - 1:
        return 0.0
    # The relative entropy to the uniform distribution has no cancellation near 0.
    capacity = (1.0 - share) * math.log(classes * (1.0 - share))
    if share:
        capacity += share * math.log(classes * share / (classes - 1))
    return max(0.0, capacity)


def standard_error_of_mean(values: Tensor) -> float:
    """Standard error of the mean of numbers (N,); NaN for a single one."""
    count = len(values)
    return float(values.std()) / math.sqrt(count) if count > 1 else math.nan


def errors_of_agreement(
    contributions: Tensor, num_classes: int, num_views: int, shards: Shards
) -> tuple[float, float]:
    """Standard error and contradiction loss over all shards; see :class:`Agreement`."""
    negative = contributions[contributions < 0]

    def sums() -> list[float]:
        values = contributions, negative
        pairs = [(float(len(each)), float(each.sum())) for each in values]
        return [*pairs[0], *pairs[1], float(negative.square().sum())]

    count, total, number, lost, squares = shards.reduce(sums, [math.fsum] * 5)
    error = math.nan
    if count > 1:
        deviations = contributions - total / count
        (apart,) = shards.reduce(lambda: [float(deviations.square_().sum())])
        error = math.sqrt(apart / (count - 1) / count)
    others = (total - lost) / max(1.0, count - number)
    costs = number * others - lost
    squares += number * others**2 - 2 * others * lost
    odds = (num_classes - 1) * (count - number - 1) / (number + 1)
    unseen = (num_views - 1) * math.log(odds) if odds > 1 else 0.0
    costs += unseen
    return error, (squares + unseen**2) / costs if costs > 0 else 0.0


def interval_of_two_views(
    pa: float,
    standard_error: float,
    mismatch: float,
    count: int,
    num_classes: int,
    level: float,
    contradiction_loss: float,
) -> tuple[float, float]:
    """Interval for the agreement of two views; see :meth:`Agreement.interval`."""
    hard = hard_agreement(mismatch, num_classes)
    below, above = _hard_interval(mismatch, count, num_classes, level)
    half = student_half_width(standard_error, count, level)
    if math.isnan(half):
        return 0.0, math.inf
    hard_error = 0.0
    if 0 < mismatch < (num_classes - 1) / num_classes:
        odds = (1 - mismatch) * (num_classes - 1) / mismatch
        spread = math.sqrt(mismatch * (1 - mismatch) / (count - 1))
        hard_error = spread * math.log(odds)
    # Student's quantile takes the place of the normal one in Wilson's interval.
    small = student_half_width(1.0, count, level) / normal_quantile(level)
    low = lower_end(pa, standard_error, count, level, contradiction_loss)
    if max(abs(standard_error - hard_error), abs(pa - hard)) < _HARD_TOLERANCE:
        low = pa - (small if hard_error else 1.0) * (hard - below)
    if hard_error == 0:
        return low, pa + math.hypot(above - hard, half)
    ratio = standard_error / hard_error
    up = half if ratio > _SOFT_RATIO else ratio * small * (above - hard)
    return low, pa + up


def lower_end(
    pa: float, standard_error: float, count: int, level: float, loss: float
) -> float:
    """Lower end, if contradictions are as frequent as this end implies.

    If each contradiction costs `loss`, more of them that cost t in all raise the
    variance of the mean by t loss / count. As in Wilson's interval, the end solves
    t² = q² (standard_error² + t loss / count).
    """
    shift = student_half_width(1.0, count, level) ** 2 * loss / count / 2
    half = student_half_width(standard_error, count, level)
    return pa - shift - math.hypot(shift, half)


def student_half_width(standard_error: float, count: int, level: float) -> float:
    """Half-width of Student's interval for a mean of `count`; NaN for one sample."""
    if count < 2:
        return math.nan
    return student_quantile(level, count - 1) * standard_error


def _hard_interval(
    mismatch: float, count: int, num_classes: int, level: float
) -> tuple[float, float]:
    """Capacity at the ends of Wilson's interval for the mismatch.

    For one to three changed answers Wilson's lower end is too high; it is replaced by
    Poisson's, as Brown, Cai and DasGupta (2001) propose.
    """
    fewest, most = wilson(mismatch * count, count, level)
    changed = round(mismatch * count)
    if 1 <= changed <= 3:
        from scipy import special

        fewest = float(special.gammaincinv(changed, 1 - level)) / count
    return hard_agreement(most, num_classes), hard_agreement(fewest, num_classes)
