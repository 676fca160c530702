"""Theorems of Chapter 23, by enumeration of all subsets of small populations."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest
from scipy.stats import hypergeom


def test_the_mean_and_variance_of_a_random_subset() -> None:
    y = np.array([0.3, 1, 0, 1, 1, 0, 2.0])
    subsets = [y[list(rows)] for rows in combinations(range(7), 3)]
    means = [subset.mean() for subset in subsets]
    assert np.mean(means) == pytest.approx(y.mean())
    assert np.var(means) == pytest.approx((1 - 3 / 7) * y.var(ddof=1) / 3)
    assert np.mean([s.var(ddof=1) for s in subsets]) == pytest.approx(y.var(ddof=1))


def chance_below(above: int, below: int, measured: int, population: int) -> float:
    """P(more of the `above` than of the `below` in a random subset)."""
    either = above + below
    sizes = np.arange(1, min(measured, either) + 1)
    count = hypergeom.pmf(sizes, population, either, measured)
    return float((count * hypergeom.sf(sizes // 2, either, above, sizes)).sum())


@pytest.mark.parametrize("key", range(3))
def test_the_tuned_threshold(key: int) -> None:
    """Its difference form, its exact distribution and Hoeffding's bound."""
    size, measured = 9, 4
    trial = np.random.default_rng(key)
    score = trial.permutation(size).astype(float)
    right, robust = trial.random((2, size)) < [[0.75], [0.5]]
    y = right & robust
    grid = np.r_[-np.inf, np.sort(score)]
    share = {cut: (right & (score > cut)).mean() for cut in grid}
    hits, errors = dict.fromkeys(grid, 0), []
    for subset in combinations(range(size), measured):
        rows = np.array(subset)
        ranked = np.sort(score[rows][right[rows]])[::-1]
        cut = np.r_[ranked, -np.inf][y[rows].sum()]
        counted = right & (score > cut)
        assert counted[rows].sum() == y[rows].sum()
        errors.append(abs(counted.mean() - y.mean()))
        for other in grid:
            hits[other] += counted.mean() < share[other] - 1e-12
    for cut in grid:
        z = right & (score > cut)
        above, below = int((z & ~y).sum()), int((y & ~z).sum())
        exact = chance_below(above, below, measured, size)
        assert hits[cut] / math.comb(size, measured) == pytest.approx(exact)
    for t in np.arange(1, size) / size:
        bound = 2 * math.exp(-measured * t**2 / 2)
        assert np.mean(np.array(errors) > t + 1e-9) <= bound
