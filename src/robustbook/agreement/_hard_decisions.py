"""Agreement of hard decisions, and the interval that follows from it."""

from __future__ import annotations

import math
from typing import Final

from scipy import special, stats

from robustbook._checks.arguments import check_count, check_fraction
from robustbook.agreement._docs import SHARED


@SHARED.fill
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

    {TypeError} {ValueError}

    Examples
    --------
    >>> round(symmetric_channel_capacity(0.11, 2), 4)
    0.3466
    >>> symmetric_channel_capacity(0.9, 10)
    0.0
    """
    share = check_fraction("mismatch", mismatch)
    classes = check_count("num_classes", num_classes, minimum=2)
    if share * classes >= classes - 1:
        return 0.0
    # Relative entropy to the uniform distribution: no cancellation near 0.
    correct = special.xlogy(1.0 - share, classes * (1.0 - share))
    wrong = special.xlogy(share, classes * share / (classes - 1))
    return max(0.0, float(correct + wrong))


def student_half_width(standard_error: float, count: int, level: float) -> float:
    """Half of Student's interval for a mean of `count`; NaN for one sample."""
    if count < 2:
        return math.nan
    return float(stats.t.ppf(0.5 + level / 2, count - 1)) * standard_error


def agreement_interval(
    pa: float,
    standard_error: float,
    mismatch: float,
    count: int,
    num_classes: int,
    level: float,
    contradiction_loss: float,
) -> tuple[float, float]:
    """Interval for the agreement of two views; see :meth:`Agreement.interval`."""
    hard = symmetric_channel_capacity(mismatch, num_classes)
    below, above = _ends_of_hard(mismatch, count, num_classes, level)
    half = student_half_width(standard_error, count, level)
    if math.isnan(half):
        return 0.0, math.inf
    hard_error = 0.0
    if 0 < mismatch < (num_classes - 1) / num_classes:
        odds = (1 - mismatch) * (num_classes - 1) / mismatch
        spread = math.sqrt(mismatch * (1 - mismatch) / (count - 1))
        hard_error = spread * math.log(odds)
    # Student's quantile in place of the normal one that Wilson's interval has.
    small = student_half_width(1.0, count, level) / stats.norm.ppf(0.5 + level / 2)
    low = lower_end(pa, standard_error, count, level, contradiction_loss)
    if max(abs(standard_error - hard_error), abs(pa - hard)) < _AS_HARD:
        low = pa - (small if hard_error else 1.0) * (hard - below)
    if hard_error == 0:
        return low, pa + math.hypot(above - hard, half)
    ratio = standard_error / hard_error
    up = half if ratio > _TOO_SOFT else ratio * small * (above - hard)
    return low, pa + up


def lower_end(
    pa: float, standard_error: float, count: int, level: float, loss: float
) -> float:
    """Lower end, which supposes that contradictions are as frequent as it says.

    Of contradictions that cost `loss` each, more by a loss of t in all raise the
    variance of the mean by t loss / count. The end solves
    t² = q² (standard_error² + t loss / count), as Wilson's solves its own.
    """
    shift = student_half_width(1.0, count, level) ** 2 * loss / count / 2
    half = student_half_width(standard_error, count, level)
    return pa - shift - math.hypot(shift, half)


#: Where contributions vary so much more than the answers, these say nothing of them.
_TOO_SOFT: Final = 3.0
#: So close to those of hard answers, contributions and agreement are taken for theirs.
_AS_HARD: Final = 1e-6


def _ends_of_hard(
    mismatch: float, count: int, num_classes: int, level: float
) -> tuple[float, float]:
    """Capacity at the ends of Wilson's interval for the mismatch.

    For one to three changed answers, its lower end is too high; there it is Poisson's,
    as Brown, Cai and DasGupta (2001) have it.
    """
    square = float(stats.norm.ppf(0.5 + level / 2)) ** 2
    center = mismatch + square / (2 * count)
    variance = mismatch * (1 - mismatch) / count + square / (4 * count**2)
    half = math.sqrt(square * variance)
    fewest, most = ((center + side * half) / (1 + square / count) for side in (-1, 1))
    changed = round(mismatch * count)
    if 1 <= changed <= 3:
        fewest = float(stats.chi2.ppf(1 - level, 2 * changed)) / (2 * count)
    low, high = (
        symmetric_channel_capacity(min(1.0, max(0.0, end)), num_classes)
        for end in (most, fewest)
    )
    return low, high
