"""Statistics that studies share: errors, intervals, tests and orders."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from scipy.stats import bootstrap, permutation_test, sem, spearmanr
from torch import Tensor

from robustbook.studies.run import Row, significant

Values = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

PERMUTATIONS: Final = 4999


def share_row(name: str, share: float, count: int) -> Row:
    """A share of independent samples and its error, in columns named after `name`."""
    return {name: share, f"{name}_se": math.sqrt(share * (1 - share) / count)}


def mean_error(values: Values | Tensor) -> float:
    """Standard error of the mean of independent values."""
    array = np.asarray(values, dtype=np.float64)
    return float(array.std(ddof=1) / math.sqrt(len(array)))


def mean_row(
    name: str, values: Values | Tensor, rounded: Callable[[Any], float] = float
) -> Row:
    """A mean and its standard error, in columns named after `name`; None of one."""
    error = rounded(mean_error(values)) if len(values) > 1 else None
    return {name: rounded(values.mean()), f"{name}_se": error}


def interval_row(name: str, value: Any, ends: tuple[Any, Any]) -> Row:
    """A value and the ends of its interval, in columns named after `name`."""
    return {name: value, f"{name}_low": ends[0], f"{name}_high": ends[1]}


def clustered_error(values: Tensor, clusters: Tensor) -> float:
    """Standard error of a mean where only samples of different clusters are unrelated.

    NaN if there is one cluster only.
    """
    array = np.asarray(values, dtype=np.float64)
    _, index = np.unique(np.asarray(clusters), return_inverse=True)
    sums = np.bincount(index, array - array.mean())
    if len(sums) < 2:
        return math.nan
    return math.sqrt(len(sums) / (len(sums) - 1) * (sums**2).sum()) / len(array)


def ratio_of_means(plain: Values, other: Values) -> tuple[float, float]:
    """Mean of the one over mean of the other, and its jackknife error."""
    left = (plain.sum() - plain) / (other.sum() - other)
    size = len(left)
    error = math.sqrt((size - 1) / size * float(((left - left.mean()) ** 2).sum()))
    return float(plain.mean() / other.mean()), error


def middle_95(values: Values) -> tuple[float | None, float | None]:
    """Both ends of the middle 95 % of the known values; None for fewer than two."""
    known = values[~np.isnan(values)]
    if len(known) < 2:
        return None, None
    low, high = np.quantile(known, [0.025, 0.975])
    return float(low), float(high)


def bootstrap_weights(count: int, draws: int, random: np.random.Generator) -> Values:
    """How often each of `count` samples is in each resample: (draws, count)."""
    return random.multinomial(count, [1 / count] * count, draws).astype(np.float64)


def class_differences(
    values: Values, classes: Integers, generator: np.random.Generator
) -> float:
    """P-value of the variance between classes among permutations of the images.

    Classes of one image are left out.
    """
    groups = [values[classes == k] for k in np.unique(classes)]
    groups = [group for group in groups if len(group) > 1]

    def between(*parts: Values, axis: int = -1) -> Any:
        # The F statistic differs from this by terms that do not change the order.
        return sum(part.sum(axis) ** 2 / part.shape[axis] for part in parts)

    test = permutation_test(
        groups,
        between,
        permutation_type="independent",
        alternative="greater",
        n_resamples=PERMUTATIONS,
        batch=100,
        vectorized=True,
        random_state=generator,
    )
    return float(test.pvalue)


def correlation_interval(
    value: float, resampled: Values
) -> tuple[float | None, float | None]:
    """95% interval of a correlation: normal, with the standard deviation of resamples.

    Resampling adds noise, so it draws a correlation toward 0: a percentile interval
    would lie beside the estimate. None where fewer than two resamples are known.
    """
    known = resampled[~np.isnan(resampled)]
    if math.isnan(value) or len(known) < 2:
        return None, None
    half = 1.96 * float(known.std(ddof=1))
    return significant(max(-1.0, value - half)), significant(min(1.0, value + half))


def bootstrap_interval(
    statistic: Callable[[Integers], float],
    size: int,
    generator: np.random.Generator,
    *,
    resamples: int,
) -> tuple[float | None, float | None]:
    """Interval of a correlation of the positions that are drawn, by a bootstrap."""
    drawn = bootstrap(
        (np.arange(size),),
        statistic,
        vectorized=False,
        n_resamples=resamples,
        method="percentile",
        random_state=generator,
    )
    value = statistic(np.arange(size))
    return correlation_interval(value, drawn.bootstrap_distribution)


def share_ordered(proxy: Values, p: Values) -> tuple[float, float]:
    """Share of the pairs of different p that a proxy orders rightly; and its error.

    Ties of the proxy count one half. This is (1 + D) / 2 with Somers' D, which
    SciPy has for small tables only, and without its error: here that of a ratio of
    two U-statistics, from their first projections. NaN if all p are equal.
    """
    above = p[:, None] > p[None]
    better = np.sign(proxy[:, None] - proxy[None])
    right = np.where(above, (1 + better) / 2, 0.0)
    # Each image's pairs, with it on either side.
    wins = (right.sum(1) + right.sum(0)) / (len(p) - 1)
    pairs = (above.sum(1) + above.sum(0)) / (len(p) - 1)
    if pairs.sum() == 0:
        return math.nan, math.nan
    share = wins.sum() / pairs.sum()
    return float(share), float(2 * sem(wins - share * pairs) / pairs.mean())


def weighted_auroc(
    scores: Values, failed: npt.NDArray[np.bool_], weights: npt.NDArray[Any]
) -> Values:
    """Return the chance that a failure scores lower than a survivor; ties count half.

    The first value is that of the samples (N,), the others those of resamples in which
    the samples have these weights (R, N); NaN where a failure or a survivor is missing.
    """
    if not len(scores):
        return np.full(1 + len(weights), np.nan)
    order = np.argsort(scores, kind="stable")
    ranked = scores[order]
    starts = np.flatnonzero(np.r_[True, ranked[1:] != ranked[:-1]])
    counts = np.vstack([np.ones(len(scores)), weights])[:, order]
    bad = np.add.reduceat(counts * failed[order], starts, axis=1)
    good = np.add.reduceat(counts * ~failed[order], starts, axis=1)
    below = np.cumsum(bad, axis=1) - bad / 2
    pairs = bad.sum(axis=1) * good.sum(axis=1)
    with np.errstate(invalid="ignore"):
        aurocs: Values = (good * below).sum(axis=1) / pairs
    return aurocs


def area_within_classes(
    values: Values, upper: Integers, classes: Integers
) -> tuple[float, float]:
    """Area under the ROC curve within classes, averaged; with DeLong's error.

    Classes with fewer than two values at either end, which tell no error, are left out.
    """
    areas, variances = [], []
    for number in np.unique(classes):
        high = values[(classes == number) & (upper == 1)]
        low = values[(classes == number) & (upper == 0)]
        if min(len(high), len(low)) < 2:
            continue
        wins = (high[:, None] > low[None]) + 0.5 * (high[:, None] == low[None])
        areas.append(wins.mean())
        variances.append(sem(wins.mean(1)) ** 2 + sem(wins.mean(0)) ** 2)
    return float(np.mean(areas)), math.sqrt(sum(variances)) / len(areas)


def rank_correlation(a: Values, b: Values) -> float:
    """Spearman's correlation of the finite values; 0 if one side does not vary."""
    there = np.isfinite(a) & np.isfinite(b)
    a, b = a[there], b[there]
    if len(a) < 3:
        return math.nan
    if np.ptp(a) == 0 or np.ptp(b) == 0:
        return 0.0
    return float(spearmanr(a, b).statistic)


def rank_correlation_error(a: Values, b: Values) -> float:
    """Standard error of Spearman's correlation of finite values (Bonett and Wright).

    NaN for fewer than four.
    """
    value, count = rank_correlation(a, b), int((np.isfinite(a) & np.isfinite(b)).sum())
    if count < 4:
        return math.nan
    return (1 - value**2) * math.sqrt((1 + value**2 / 2) / (count - 3))
