"""Theorems of the chapters on margins, on small random samples."""

import math
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
import torch
from scipy.stats import hypergeom

from robustbook.margins import (
    detection_scores,
    estimate_robust_accuracy,
    gradient_normalized_margin,
    logit_margin,
    margin_consistency,
)


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def detects(inputs, scores):
    """Return whether some threshold separates brittle decisions at every eps."""
    return all(
        not (scores[inputs > eps] <= scores[inputs <= eps].max()).any()
        for eps in np.unique(inputs)
    )


def auroc(inputs, scores, brittle):
    """Return the AUROC where the given number of smallest inputs is brittle."""
    eps = np.sort(inputs)[brittle - 1]
    return detection_scores(scores, inputs, eps, resamples=100).auroc


def tau(inputs, scores):
    return margin_consistency(scores, inputs).tau


def test_the_logit_margin_detects_exactly_if_it_separates(rng):
    seen = set()
    for _ in range(500):
        a, b = rng.integers(0, 5, (2, 4)).astype(float)
        less, same = a[:, None] < a, a[:, None] == a
        separating = bool((b[:, None] < b)[less].all())
        consistent = bool(((a[:, None] <= a) == (b[:, None] <= b)).all())
        assert detects(a, b) == separating
        assert consistent == (separating and (b[:, None] == b)[same].all())
        if less.any():  # Somers' D, by hand
            somers = np.sign(b - b[:, None])[less].mean()
            assert (somers == 1) == separating
        if len(set(a)) > 1 and len(set(b)) > 1:
            assert (tau(a, b) > 1 - 1e-12) == consistent
        seen.add((separating, consistent))
    assert len(seen) == 3


@pytest.mark.parametrize("count", [3, 7, 60])
@pytest.mark.parametrize("noise", [0.1, 1.0, 9.0])
def test_spearman_averages_detection_and_tau_is_a_lower_bound(rng, count, noise):
    a = rng.random(count)
    b = a + 0.3 * noise * rng.normal(size=count)
    size = np.arange(1, count)
    areas = np.array([auroc(a, b, brittle) for brittle in size])
    mean = np.average(2 * areas - 1, weights=size * (count - size))
    assert mean == pytest.approx(margin_consistency(b, a).spearman, abs=1e-12)
    floor = 1 - (1 - tau(a, b)) * count * (count - 1) / (4 * size * (count - size))
    assert (areas >= floor - 1e-12).all()


@pytest.mark.parametrize("brittle", [4, 20])
def test_the_lower_bound_is_reached_and_a_perfect_detector_can_have_a_poor_tau(brittle):
    rank = np.arange(40.0)
    share = 4 * brittle * (40 - brittle) / (40 * 39)
    within = np.r_[rank[:brittle][::-1], rank[brittle:][::-1]]
    assert auroc(rank, within, brittle) == 1
    assert tau(rank, within) == pytest.approx(share - 1)
    across = np.r_[rank[:brittle] + 40 - brittle, rank[brittle:] - brittle]
    assert auroc(rank, across, brittle) == 0
    assert tau(rank, across) == pytest.approx(1 - share)


@pytest.mark.parametrize("correlation", [-0.6, 0.0, 0.5])
def test_tau_of_normal_margins_and_slopes(rng, correlation):
    both = 0.4 * correlation
    cloud = rng.multivariate_normal([0, 0], [[1, both], [both, 0.16]], 20_000)
    rho = (1 + both) / math.sqrt(1 + 2 * both + 0.16)
    found = tau(cloud[:, 0], cloud.sum(1))
    assert found == pytest.approx(2 / math.pi * math.asin(rho), abs=0.015)


def test_where_three_classes_meet_every_order_can_be_reversed():
    rise, fall = np.linspace(4.0, 5.0, 50), np.linspace(3.0, 2.0, 50)
    logits = np.stack([0 * fall, -fall, -rise], 1)  # of (0, x1, 4 x2)
    inputs = np.minimum(fall, rise / 4)
    assert tau(inputs, logit_margin(logits)) == -1


def test_errors_of_the_search_leave_tau_within_its_bounds(rng):
    for _ in range(40):
        true = np.exp(rng.normal(size=30))
        score = true * np.exp(0.5 * rng.normal(size=30))
        found = true * (1 + 0.3 * rng.random(30))
        pairs = np.triu_indices(30, 1)
        apart = np.subtract.outer(np.log(found), np.log(found))[pairs]
        agree = np.sign(np.subtract.outer(score, score)[pairs] * apart)
        close = np.abs(apart) <= math.log(1.3)
        measured = tau(found, score)
        low = measured - 2 * (close & (agree > 0)).mean()
        high = measured + 2 * (close & (agree < 0)).mean()
        assert low - 1e-12 <= tau(true, score) <= high + 1e-12


def test_units_change_no_order_and_ties_by_the_formula(rng):
    size = rng.random(30)
    score = size + 0.5 * rng.random(30)
    eps = float(np.quantile(size, 0.4))
    coarse = np.round(4 * score)
    plain, units, tied = (
        detection_scores(s, size, eps, resamples=100)
        for s in (score, np.exp(3 * score), coarse)
    )
    assert replace(units, threshold=plain.threshold) == plain
    assert units.threshold == pytest.approx(np.exp(3 * plain.threshold))
    assert tied.fpr >= plain.fpr
    low = size <= eps
    sign = np.sign(score[~low] - score[low][:, None])
    same = coarse[~low] == coarse[low][:, None]
    change = ((sign < 0) & same).mean() - ((sign > 0) & same).mean()
    assert tied.auroc - plain.auroc == pytest.approx(change / 2)


def test_the_best_head_by_squared_error_can_detect_worse_than_logits():
    feature, size = np.array([0, 0, 1, 1]), np.array([0.1, 1.1, 0.5, 0.5])
    mean = np.array([0.6, 0.6, 0.5, 0.5])
    assert auroc(size, mean, 1) == pytest.approx(1 / 6)
    assert auroc(size, feature, 1) == pytest.approx(5 / 6)


def test_features_and_gradient_fail_where_the_other_works():
    t = 1 + torch.linspace(0, 0.5, 50, dtype=torch.float64)[:, None]
    x = torch.cat([1 + t, -2 - 2 * t])

    def fold(z):
        return torch.maximum(z, -z / 2)

    margins = gradient_normalized_margin(
        lambda z: torch.cat([fold(z) - 1, 0 * z], 1), x
    )
    assert torch.allclose(margins, torch.cat([t, 2 * t])[:, 0])
    assert torch.allclose(fold(x)[:50], fold(x)[50:])

    def bump(z):
        u = z * torch.exp(-z * z)
        return torch.cat([u, -u], 1)

    far = 1 + torch.arange(1, 20, dtype=torch.float64)[:, None] / 20
    slopes = gradient_normalized_margin(bump, far)
    assert torch.allclose(slopes, far[:, 0] / (2 * far[:, 0] ** 2 - 1))
    far = far[:, 0]
    assert tau(far, slopes) == tau(far, logit_margin(bump(far[:, None]))) == -1


def chance_below(above, below, measured, population):
    """P(more of the `above` than of the `below` in a random subset)."""
    either = above + below
    sizes = np.arange(1, min(measured, either) + 1)
    count = hypergeom.pmf(sizes, population, either, measured)
    return float((count * hypergeom.sf(sizes // 2, either, above, sizes)).sum())


@pytest.mark.parametrize("key", range(3))
def test_the_tuned_threshold(key):
    """Its difference form, its exact distribution and Hoeffding's bound."""
    size, measured = 9, 4
    trial = np.random.default_rng(key)
    score = trial.permutation(size).astype(float)
    right, robust = trial.random((2, size)) < [[0.75], [0.5]]
    score[~right] = -1.0  # No cut between the right ones.
    y = right & robust
    grid = np.r_[-np.inf, np.unique(score)]
    share = {cut: (right & (score > cut)).mean() for cut in grid}
    hits, errors = dict.fromkeys(grid, 0), []
    for subset in combinations(range(size), measured):
        rows = list(subset)
        tuned = estimate_robust_accuracy(
            score, right, rows, 1.0 * robust[rows], 0.5, alpha=0.0, folds=2
        )
        counted = right & (score > tuned.threshold)
        assert counted.mean() == tuned.estimate
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
