"""Kendall's τ-b and its standard error, in O(N log² N)."""

from __future__ import annotations

import numpy as np

from robustbook.margins._arrays import Indices, Vector


def ranks(values: Vector) -> Indices:
    """Dense ranks from 0: equal values have equal ranks."""
    dense: Indices = np.unique(values, return_inverse=True)[1].astype(np.int64)
    return dense


def tau_b(x: Vector, y: Vector) -> tuple[float, float]:
    """τ-b and its asymptotic standard error; NaN where either is constant.

    τ-b is T / sqrt(X Y) for three means over ordered pairs: of the product of signs,
    and of whether the pair is no tie in x and in y. Each is a U-statistic, whose
    first-order part is the mean over samples of its conditional mean; the standard
    error is that of the delta method.
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

    In the order of x, with ties in x put so that they do not count, it asks for the
    earlier samples with smaller y. Two numbers are compared by the highest bit in
    which they differ: for each bit, a running count within the numbers that agree
    above it.
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
