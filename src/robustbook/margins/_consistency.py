"""Margin consistency: Kendall's τ-b of two margins, in O(N log² N), and its error."""

import math
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from scipy import stats

from robustbook._checks.arguments import check_level
from robustbook.margins._arrays import DOCS, Indices, Vector, check_vector

#: Fewer samples say nothing of how often two margins disagree.
FEWEST: Final = 10


@dataclass(frozen=True)
class Consistency:
    """How well one margin orders samples as another does.

    Attributes
    ----------
    tau : float
        Kendall's τ-b, in [-1, 1].
    interval : tuple of float
        Confidence interval for it: all of [-1, 1] for fewer than ten samples.
    standard_error : float
        Of `tau`. 0 where all pairs agree: no disagreement was seen, which is no proof
        that there is none, and the interval takes that in.
    spearman : float
        Spearman's ρ.
    num_samples : int
        N.
    """

    tau: float
    interval: tuple[float, float]
    standard_error: float
    spearman: float
    num_samples: int


@DOCS.fill
def margin_consistency(
    logit_margin: Any, input_margin: Any, *, level: float = 0.95
) -> Consistency:
    """Kendall's τ-b of two margins, with an interval: :class:`Consistency`.

    By the delta method for U-statistics, ties counted, on the scale of Fisher's z;
    where no disagreement was seen, by Clopper and Pearson's bound on the share of
    samples that disagree. The interval is for the sampling of inputs; that measured
    margins are upper bounds is not in it. Source: the margin paper, section 2.2;
    Chapter 21.

    Parameters
    ----------
    {logit_margin} {input_margin} {level}

    Raises
    ------
    {TypeError, ValueError}
        Among them: fewer than three samples, or a margin that is constant.

    Examples
    --------
    >>> result = margin_consistency([1.0, 2.0, 4.0, 3.0], [0.1, 0.2, 0.3, 0.3])
    >>> round(result.tau, 4)
    0.9129
    """
    x = check_vector("logit_margin", logit_margin)
    y = check_vector("input_margin", input_margin, length=len(x))
    check_level(level)
    if len(x) < 3:
        raise ValueError(f"logit_margin: expected at least three samples, got {len(x)}")
    for name, values in (("logit_margin", x), ("input_margin", y)):
        if (values == values[0]).all():
            raise ValueError(
                f"{name}: expected at least two different values, got {values[0]:g} "
                f"{len(values)} times; a rank correlation is not defined"
            )
    tau, error = tau_b(x, y)
    interval = _interval(tau, error, len(x), level)
    # Of ranks: differences of infinite margins are not numbers.
    spearman = float(stats.pearsonr(stats.rankdata(x), stats.rankdata(y)).statistic)
    return Consistency(tau, interval, error, spearman, len(x))


def _interval(
    tau: float, error: float, count: int, level: float
) -> tuple[float, float]:
    """Student's on the scale of atanh, where the samples vary; else what they allow.

    Where each sample is in order with all others, up to a share s of all samples may
    not be: the upper end of Clopper and Pearson's interval for none among `count`. If
    those were in random order, (1 - s)^2 of the pairs would still be in theirs.
    """
    if count < FEWEST:
        return -1.0, 1.0
    if abs(tau) == 1 or error == 0:
        pairs_left = (0.5 - level / 2) ** (2 / count)
        return max(-1.0, tau - 1 + pairs_left), min(1.0, tau + 1 - pairs_left)
    half = float(stats.t.ppf(0.5 + level / 2, count - 1)) * error / (1 - tau**2)
    return math.tanh(math.atanh(tau) - half), math.tanh(math.atanh(tau) + half)


def ranks(values: Vector) -> Indices:
    """Dense ranks from 0: equal values have equal ranks."""
    dense: Indices = np.unique(values, return_inverse=True)[1].astype(np.int64)
    return dense


def tau_b(x: Vector, y: Vector) -> tuple[float, float]:
    """τ-b and its asymptotic standard error; NaN where either is constant.

    τ-b is T / sqrt(X Y) for means over ordered pairs: of the product of signs, and of
    whether the pair is no tie in x and in y. Each is a U-statistic, whose first-order
    part is the mean of its conditional means; the error is that of the delta method.
    """
    count = len(x)
    first, second = ranks(x), ranks(y)
    if count < 2 or first.max() == 0 or second.max() == 0:
        return np.nan, np.nan
    signs = concordance(first, second) / (count - 1)
    apart_x = 1 - (np.bincount(first)[first] - 1) / (count - 1)
    apart_y = 1 - (np.bincount(second)[second] - 1) / (count - 1)
    mean_x, mean_y = apart_x.mean(), apart_y.mean()
    tau = float(signs.mean() / np.sqrt(mean_x * mean_y))
    influence = 2 * (
        signs / np.sqrt(mean_x * mean_y)
        - tau * (apart_x / mean_x + apart_y / mean_y) / 2
    )
    # n - 1 samples of a mean that is 0 by construction.
    error = float(np.sqrt(np.square(influence).sum() / (count - 1) / count))
    return max(-1.0, min(1.0, tau)), error


def concordance(x: Indices, y: Indices) -> Indices:
    """For each sample, how many others are concordant minus how many discordant."""
    back_x, back_y = x.max() - x, y.max() - y
    below = smaller_pairs(x, y) + smaller_pairs(back_x, back_y)
    return below - smaller_pairs(x, back_y) - smaller_pairs(back_x, y)


def smaller_pairs(x: Indices, y: Indices) -> Indices:
    """For each sample, how many others are smaller in both x and y.

    That is, in the order of x, how many earlier ones have smaller y. Two numbers differ
    first in some bit: for each, a running count within those that agree above it.
    """
    order = np.lexsort((-y, x))
    numbers = y[order]
    smaller = np.zeros(len(numbers), dtype=np.int64)
    for bit in range(int(numbers.max()).bit_length()):
        above = numbers >> (bit + 1)
        places = np.argsort(above, kind="stable")
        groups = above[places]
        ones = (numbers[places] >> bit) & 1
        zeros_before = np.concatenate([[0], np.cumsum(1 - ones)])
        start = np.searchsorted(groups, groups, side="left")
        within = zeros_before[:-1] - zeros_before[start]
        smaller[places] += within * ones
    result = np.empty_like(smaller)
    result[order] = smaller
    return result
