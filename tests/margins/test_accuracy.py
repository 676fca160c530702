"""Robust accuracy from a sample: unbiased, with the stated coverage."""

import itertools

import numpy as np
import pytest
import torch

from robustbook.margins import estimate_robust_accuracy, stratified_sample


def population(count, *, noise, share, seed=0):
    """Return noisy scores, correctness, margins, ε and the true robust accuracy."""
    random = np.random.default_rng(seed)
    margins = random.gamma(2, size=count)
    scores = margins + noise * random.normal(size=count)
    eps = float(np.quantile(margins, share))
    right = random.random(count) < 0.7 + 0.3 * (scores > np.median(scores))
    return scores, right, margins, eps, float((right & (margins > eps)).mean())


def simulate(people, size, repeats):
    """Return Algorithm 1's estimates, and values and coverages of the unbiased ones."""
    scores, right, margins, eps, truth = people
    random = np.random.default_rng(1)
    tuned, values, hits = [], [], []
    for seed in range(repeats):
        rows = random.choice(len(scores), size, replace=False)
        accuracy = estimate_robust_accuracy(
            scores, right, rows, margins[rows], eps, seed=seed, folds=4
        )
        sample = stratified_sample(scores, right, size, seed=seed)
        third = sample.robust_accuracy(margins[sample.indices.numpy()], eps)
        tuned.append(accuracy.estimate)
        parts = (accuracy.plain, accuracy.design_based, third)
        values.append([part.value for part in parts])
        hits.append([part.interval[0] <= truth <= part.interval[1] for part in parts])
    return np.array(tuned), np.array(values), np.mean(hits, axis=0)


def test_estimates_are_unbiased_covered_and_more_precise_with_logit_margins():
    people = population(2000, noise=0.5, share=0.4)
    _, values, hits = simulate(people, 100, 400)
    error = values.std(axis=0) / np.sqrt(len(values))
    assert (np.abs(values.mean(axis=0) - people[-1]) < 3.5 * error).all()
    # Three standard errors of a share of 0.95 in 400 are 0.033.
    assert (hits >= 0.917).all(), hits
    plain, difference, stratified = values.var(axis=0)
    assert difference < 0.6 * plain
    assert stratified < 0.6 * plain


def test_exactly_unbiased_over_all_samples():
    """The mean over all samples of 3 out of 6, equally likely, is exact."""
    scores = np.array([0.1, 0.5, 0.2, 0.9, 0.4, 0.7])
    right = np.array([True, True, True, True, False, True])
    margins = np.array([0.3, 0.1, 0.4, 0.9, 0.5, 0.6])
    truth = (right & (margins > 0.35)).mean()
    values = []
    for rows in map(np.array, itertools.permutations(range(6), 3)):
        measured = rows, margins[rows], 0.35
        accuracy = estimate_robust_accuracy(scores, right, *measured, folds=3)
        values.append([accuracy.plain.value, accuracy.design_based.value])
    np.testing.assert_allclose(np.mean(values, axis=0), truth, atol=1e-12)


def test_algorithm_one_can_be_biased_where_the_other_is_not():
    """With an uninformative score, no threshold that flags 80 % fits."""
    people = population(2000, noise=50.0, share=0.2)
    tuned, values, hits = simulate(people, 200, 60)
    truth = people[-1]
    assert abs(tuned.mean() - truth) > 0.3
    assert abs(values[:, 1].mean() - truth) < 0.02
    assert (hits > 0.88).all()


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_coverage_where_nothing_or_all_is_brittle(share):
    """Intervals have a width, and still end where they must."""
    people = population(1000, noise=0.3, share=0.995 if share == 1 else 0.005)
    _, _, hits = simulate(people, 60, 60)
    assert (hits >= 0.93).all(), hits


def test_all_measured_is_exact():
    scores, right, margins, eps, truth = population(200, noise=1.0, share=0.5)
    accuracy = estimate_robust_accuracy(scores, right, np.arange(200), margins, eps)
    for part in (accuracy.plain, accuracy.design_based):
        assert part.value == pytest.approx(truth)
        assert part.interval == pytest.approx((truth, truth))
        assert part.standard_error == 0
    sample = stratified_sample(scores, right, int(right.sum()))
    third = sample.robust_accuracy(margins[sample.indices.numpy()], eps)
    assert third.value == pytest.approx(truth)
    assert third.interval == pytest.approx((truth, truth))


def test_algorithm_one_by_hand():
    """Thresholds are the scores of the four measured samples of six."""
    scores = np.array([0.0, 1.0, 2.0, 3.0, 4.0, 5.0])
    right = np.array([True, True, True, True, True, False])
    rows, margins = np.array([1, 2, 3, 5]), np.array([0.1, 0.9, 0.2, 0.9])
    # In the sample, 2 is right and robust, 1 and 3 are brittle. With alpha 0.8 both
    # must be flagged; thresholds 3 and 5 leave none above, and 3 is the first.
    accuracy = estimate_robust_accuracy(scores, right, rows, margins, 0.5, folds=2)
    assert (accuracy.threshold, accuracy.tpr) == (3.0, 1.0)
    assert accuracy.estimate == pytest.approx(1 / 6)
    # With alpha 0.5, threshold 2 leaves one sample above, as many as were measured.
    options = {"folds": 2, "alpha": 0.5}
    loose = estimate_robust_accuracy(scores, right, rows, margins, 0.5, **options)
    assert (loose.threshold, loose.tpr) == (2.0, 0.5)
    assert loose.estimate == pytest.approx(2 / 6)
    # No decision in the sample is brittle.
    scores, right = np.arange(10.0), np.ones(10, dtype=bool)
    accuracy = estimate_robust_accuracy(scores, right, [1, 5, 7], [1.0, 2, 3], 0.5)
    assert accuracy.estimate == 1
    assert accuracy.threshold == -np.inf


def test_standard_error_of_five_by_hand():
    """Three of five are robust; a thousand samples make the correction."""
    scores, right = np.linspace(0, 1, 1000), np.ones(1000, dtype=bool)
    margins = np.array([0.1, 0.9, 0.9, 0.1, 0.9])
    rows = [100, 300, 500, 700, 900]
    plain = estimate_robust_accuracy(scores, right, rows, margins, 0.5, level=0.3).plain
    squares, factor = 5 * 0.6 * 0.4, 0.995 / 4 / 5
    assert plain.standard_error == pytest.approx(np.sqrt(factor * squares))
    z = 0.3853205
    half = z * np.sqrt(factor * (squares + z**2))
    assert plain.interval == pytest.approx((0.6 - half, 0.6 + half))


def test_three_of_ten_meet_a_share_of_three_tenths_despite_rounding():
    scores, right = np.arange(17.0), np.ones(17, dtype=bool)
    margins = np.repeat([9.0, 0.0], [7, 10])
    share = 0.1 * 3
    assert share > 3 / 10
    measured = range(17), margins, 0.5
    accuracy = estimate_robust_accuracy(scores, right, *measured, alpha=share)
    assert (accuracy.threshold, accuracy.tpr) == (9, 0.3)


def test_zero_margins_of_wrong_predictions_make_no_difference_by_design():
    scores, right, margins, eps, _ = population(500, noise=0.5, share=0.4)
    rows = np.random.default_rng(0).choice(500, 60, replace=False)
    one = estimate_robust_accuracy(scores, right, rows, margins[rows], eps)
    zeroed = np.where(right[rows], margins[rows], 0.0)
    two = estimate_robust_accuracy(scores, right, rows, zeroed, eps)
    assert one.design_based == two.design_based
    assert one.plain == two.plain


def test_stratified_sample_measures_right_predictions_once():
    scores, right, _, _, _ = population(500, noise=0.5, share=0.4)
    sample = stratified_sample(scores, right, 57, strata=8, seed=3)
    rows = sample.indices.numpy()
    assert len(sample) == len(set(rows.tolist())) == 57
    assert right[rows].all()
    counts = torch.bincount(sample.strata)
    assert len(counts) == 8
    assert int(counts.max() - counts.min()) <= 1
    assert int(sample.sizes.sum()) == right.sum()
    # Strata are intervals of scores.
    ends = [scores[rows[sample.strata.numpy() == h]] for h in range(8)]
    assert all(a.max() <= b.min() for a, b in itertools.pairwise(ends))
    other = stratified_sample(scores, right, 57, strata=8, seed=4)
    assert not torch.equal(sample.indices, other.indices)
    few = stratified_sample(scores, right, 5, strata=8)
    assert len(few.sizes) == 2


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"correct": [2, 0, 1, 1]}, TypeError, "expected booleans, or 0 and 1"),
        ({"correct": np.ones(3, bool)}, ValueError, r"correct: expected shape \(4,\)"),
        ({"indices": [0, 0]}, ValueError, "indices: expected different"),
        ({"indices": [0, 4]}, ValueError, "indices from 0 to 3, got 0 to 4"),
        ({"indices": [0, -1]}, ValueError, "indices from 0 to 3, got -1 to 0"),
        ({"indices": [0.0, 1.0]}, TypeError, "indices: expected integers"),
        ({"input_margin": [0.1]}, ValueError, "expected 2 numbers, got 1"),
        ({"input_margin": [0.1, -1.0]}, ValueError, "at least 0"),
        ({"indices": [0], "input_margin": [0.1]}, ValueError, "at least two measured"),
        ({"eps": -0.1}, ValueError, "eps: expected"),
        ({"eps": 8}, ValueError, "for 8 of 255 levels pass 8/255"),
        ({"alpha": 1.1}, ValueError, "alpha: expected"),
        ({"folds": 1}, ValueError, "folds: expected at least 2"),
        ({"level": 0.0}, ValueError, "level: expected"),
    ],
)
def test_bad_input(change, error, message):
    arguments = {
        "logit_margin": [0.1, 0.2, 0.3, 0.4],
        "correct": np.ones(4, bool),
        "indices": [0, 2],
        "input_margin": [0.1, 0.2],
        "eps": 0.15,
    }
    estimate_robust_accuracy(**arguments)
    with pytest.raises(error, match=message):
        estimate_robust_accuracy(**(arguments | change))


def test_correct_may_be_numbers_0_and_1():
    scores, right, margins, eps, _ = population(100, noise=0.5, share=0.4)
    rows = np.arange(0, 100, 3)
    results = [
        estimate_robust_accuracy(scores, right.astype(kind), rows, margins[rows], eps)
        for kind in (bool, int, float)
    ]
    assert results[0] == results[1] == results[2]


def test_bad_sizes():
    with pytest.raises(ValueError, match="at most the 2 right predictions, got 3"):
        stratified_sample([0.1, 0.2, 0.3], [True, True, False], 3)
    with pytest.raises(ValueError, match="size: expected at least 2"):
        stratified_sample([0.1, 0.2, 0.3], [True, True, False], 1)
    sample = stratified_sample([0.1, 0.2, 0.3], [True, True, False], 2)
    with pytest.raises(ValueError, match="input_margin: expected 2 numbers, got 3"):
        sample.robust_accuracy([0.1, 0.2, 0.3], 0.1)
