"""Margin consistency: Kendall's τ-b of two margins and its standard error."""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from scipy import stats

from robustbook._checks.arguments import ArrayLike, check_level
from robustbook._intervals import student_quantile
from robustbook.margins._arrays import Indices, Vector, check_vector

#: Fewer samples do not show how often two margins disagree.
FEWEST: Final = 10


@dataclass(frozen=True)
class Consistency:
    """How well one margin orders samples as another does.

    Attributes
    ----------
    tau : float
        Kendall's τ-b, in [-1, 1].
    interval : tuple of float
        Confidence interval for `tau`; all of [-1, 1] for fewer than ten samples.
    standard_error : float
        Standard error of `tau`. It is 0 where all pairs agree, which does not prove
        that no pair ever disagrees; the interval allows for that.
    spearman : float
        Spearman's ρ.
    num_samples : int
        Number of samples, N.
    """

    tau: float
    interval: tuple[float, float]
    standard_error: float
    spearman: float
    num_samples: int


def margin_consistency(
    logit_margin: ArrayLike, input_margin: ArrayLike, *, level: float = 0.95
) -> Consistency:
    """Return Kendall's τ-b of two margins with an interval, a :class:`Consistency`.

    The interval comes from the delta method for U-statistics with ties, on the scale of
    Fisher's z; where no disagreement was seen, from Clopper and Pearson's bound on the
    share of samples that disagree. It covers the sampling of inputs, not the error of
    measured margins, which are upper bounds. Source: the margin paper, section 2.2;
    Chapter 22.

    Parameters
    ----------
    logit_margin : Tensor or array, shape (N,)
        Margins of logits, or any score that is large where decisions are robust.
    input_margin : Tensor or array, shape (N,)
        Measured margins, at least 0; ``inf`` where no attack found another class.
    level : float, default 0.95
        Coverage of each interval, in (0, 1).

    Raises
    ------
    TypeError, ValueError
        If shapes or types do not match, an entry is NaN, or an option is out of range.
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
    # Ranks are correlated, as infinite margins have no differences.
    spearman = float(stats.pearsonr(stats.rankdata(x), stats.rankdata(y)).statistic)
    return Consistency(tau, interval, error, spearman, len(x))


def _interval(
    tau: float, error: float, count: int, level: float
) -> tuple[float, float]:
    """Return Student's interval on the scale of atanh, where the samples vary.

    Where each sample is in order with all others, up to a share s of all samples may
    not be: the upper end of Clopper and Pearson's interval for none among `count`. If
    those were in random order, (1 - s)^2 of the pairs would still be in order.
    """
    if count < FEWEST:
        return -1.0, 1.0
    if abs(tau) == 1 or error == 0:
        pairs_left = (0.5 - level / 2) ** (2 / count)
        return max(-1.0, tau - 1 + pairs_left), min(1.0, tau + 1 - pairs_left)
    half = student_quantile(level, count - 1) * error / (1 - tau**2)
    return math.tanh(math.atanh(tau) - half), math.tanh(math.atanh(tau) + half)


def ranks(values: Vector) -> Indices:
    """Return dense ranks from 0: equal values have equal ranks."""
    dense: Indices = np.unique(values, return_inverse=True)[1].astype(np.int64)
    return dense


def tau_b(x: Vector, y: Vector) -> tuple[float, float]:
    """Return τ-b and its asymptotic standard error; neither is constant.

    τ-b is T / sqrt(X Y) with means over ordered pairs: T of the product of signs, X and
    Y of whether the pair is untied in x and in y. Each is a U-statistic, whose
    first-order part is the mean of its conditional means; the delta method gives the
    error.
    """
    count = len(x)
    first, second = ranks(x), ranks(y)
    signs = concordance(first, second) / (count - 1)
    apart_x = 1 - (np.bincount(first)[first] - 1) / (count - 1)
    apart_y = 1 - (np.bincount(second)[second] - 1) / (count - 1)
    mean_x, mean_y = apart_x.mean(), apart_y.mean()
    tau = float(signs.mean() / np.sqrt(mean_x * mean_y))
    influence = 2 * (
        signs / np.sqrt(mean_x * mean_y)
        - tau * (apart_x / mean_x + apart_y / mean_y) / 2
    )
    # The mean of the influences is 0 by construction, hence N - 1.
    error = float(np.sqrt(np.square(influence).sum() / (count - 1) / count))
    return max(-1.0, min(1.0, tau)), error


def concordance(x: Indices, y: Indices) -> Indices:
    """Return, for each sample, how many others are concordant minus discordant."""
    x, y = x.astype(np.int32), y.astype(np.int32)
    signs = np.empty(len(x), dtype=np.int64)
    for rows in np.array_split(np.arange(len(x)), 1 + len(x) ** 2 // 2**20):
        a, b = x[rows, None], y[rows, None]
        agree = ((a > x) & (b > y)) | ((a < x) & (b < y))
        differ = ((a > x) & (b < y)) | ((a < x) & (b > y))
        signs[rows] = agree.sum(axis=1) - differ.sum(axis=1)
    return signs
