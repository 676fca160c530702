"""Do classes differ, and how well does a proxy order images? With errors."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from scipy.stats import bootstrap, permutation_test, sem, spearmanr

from robustbook.studies._rows import Row

__all__ = [
    "area_within_classes",
    "bootstrap_interval",
    "class_differences",
    "concordance",
    "mean_error",
    "rank_correlation",
    "rank_correlation_error",
    "rounded",
]

Values = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

PERMUTATIONS: Final = 4999


def class_differences(
    values: Values, classes: Integers, generator: np.random.Generator
) -> Row:
    """Test whether the means of classes differ, and say by how much.

    Parameters
    ----------
    values : ndarray, shape (N,)
        One number for each image.
    classes : ndarray of int, shape (N,)
        Its class; classes with one image only are left out.
    generator : numpy.random.Generator
        Shuffles the classes.

    Returns
    -------
    dict
        ``p_value`` of the variance between classes among permutations; ``spread``,
        the standard deviation of the true class means: sampling is taken out;
        ``range`` of the observed ones; number of ``classes``.
    """
    groups = [values[classes == k] for k in np.unique(classes)]
    groups = [group for group in groups if len(group) > 1]

    def between(*parts: Values, axis: int = -1) -> Any:
        # What differs from the F statistic here does not change the order.
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
    means = np.array([group.mean() for group in groups])
    errors = np.array([sem(group) for group in groups])
    spread = math.sqrt(max(0.0, means.var(ddof=1) - (errors**2).mean()))
    return {
        "p_value": float(test.pvalue),
        "spread": rounded(spread),
        "range": rounded(np.ptp(means)),
        "classes": len(groups),
    }


def bootstrap_interval(
    statistic: Callable[[Integers], float],
    size: int,
    generator: np.random.Generator,
    *,
    resamples: int,
) -> tuple[float, float]:
    """95% interval of a correlation: normal, with the bootstrap's standard error.

    Resampling adds noise, so it draws a correlation toward 0: a percentile interval
    would lie beside the estimate.

    Parameters
    ----------
    statistic : callable
        Of the positions of the images that were drawn.
    size : int
        Number of images.
    generator : numpy.random.Generator
        Draws them.
    resamples : int
        How many times.

    Returns
    -------
    (float, float)
        Both ends, in [-1, 1].
    """
    drawn = bootstrap(
        (np.arange(size),),
        lambda index: statistic(index),
        vectorized=False,
        n_resamples=resamples,
        method="percentile",
        random_state=generator,
    )
    center, half = statistic(np.arange(size)), 1.96 * float(drawn.standard_error)
    return rounded(max(-1.0, center - half)), rounded(min(1.0, center + half))


def concordance(proxy: Values, p: Values) -> tuple[float, float]:
    """Share of the pairs of different p that a proxy orders rightly; and its error.

    Ties of the proxy count one half. This is (1 + D) / 2 with Somers' D, which
    SciPy has for small tables only, and without its error: here that of a ratio of
    two U-statistics, from their first projections.

    Parameters
    ----------
    proxy, p : ndarray, shape (N,)
        Numbers of the same images.

    Returns
    -------
    (float, float)
        Share and standard error; NaN if all p are equal.
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


def area_within_classes(
    values: Values, upper: Integers, classes: Integers
) -> tuple[float, float]:
    """Area under the ROC curve within classes, averaged; with DeLong's error.

    Parameters
    ----------
    values : ndarray, shape (N,)
        What is to tell.
    upper : ndarray of {0, 1}, shape (N,)
        What is to be told.
    classes : ndarray of int, shape (N,)
        Only images of one class are compared.

    Returns
    -------
    (float, float)
        Area and standard error.
    """
    areas, variances = [], []
    for number in np.unique(classes):
        high = values[(classes == number) & (upper == 1)]
        low = values[(classes == number) & (upper == 0)]
        wins = (high[:, None] > low[None]) + 0.5 * (high[:, None] == low[None])
        areas.append(wins.mean())
        variances.append(sem(wins.mean(1)) ** 2 + sem(wins.mean(0)) ** 2)
    return float(np.mean(areas)), math.sqrt(sum(variances)) / len(areas)


def rank_correlation(a: Values, b: Values) -> float:
    """Spearman's correlation of what is finite; 0 if one does not vary at all."""
    there = np.isfinite(a) & np.isfinite(b)
    a, b = a[there], b[there]
    if len(a) < 3:
        return math.nan
    if np.ptp(a) == 0 or np.ptp(b) == 0:
        return 0.0
    return float(spearmanr(a, b).statistic)


def rank_correlation_error(a: Values, b: Values) -> float:
    """Standard error of Spearman's correlation (Bonett and Wright)."""
    value = rank_correlation(a, b)
    return (1 - value**2) * math.sqrt((1 + value**2 / 2) / (len(a) - 3))


def mean_error(values: Values) -> float:
    """Standard error of a mean."""
    return float(sem(values))


def rounded(value: Any) -> float:
    """Six digits: what is stored."""
    return float(f"{float(value):.6g}")
