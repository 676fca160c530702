"""Detection of brittle decisions: values by scikit-learn, intervals by simulation."""

import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve

from robustbook.margins import detection_scores


def sample(random, count, *, ties=False):
    margins = random.gamma(2, size=count)
    scores = margins + random.normal(size=count)
    return (np.round(scores), margins) if ties else (scores, margins)


@pytest.mark.parametrize("ties", [False, True])
def test_values_are_those_of_scikit_learn(ties):
    scores, margins = sample(np.random.default_rng(0), 300, ties=ties)
    for eps in (0.5, 1.0, 2.0):
        detection = detection_scores(scores, margins, eps, resamples=100)
        brittle = margins <= eps
        assert detection.auroc == pytest.approx(roc_auc_score(brittle, -scores))
        assert detection.aupr == pytest.approx(
            average_precision_score(brittle, -scores)
        )
        false, true, _ = roc_curve(brittle, -scores, drop_intermediate=False)
        assert detection.fpr == pytest.approx(false[true >= 0.95].min())
        flagged = scores <= detection.threshold
        assert flagged[brittle].mean() >= 0.95
        assert flagged[~brittle].mean() == pytest.approx(detection.fpr)
        assert (scores < detection.threshold)[brittle].mean() < 0.95
        assert detection.num_brittle == brittle.sum()
        assert detection.prevalence == brittle.mean()


def test_ends_of_the_auroc_are_where_their_own_error_reaches_the_estimate():
    """Of five samples, three are brittle, and five of six pairs are in order."""
    detection = detection_scores(
        [0.0, 1.0, 3.0, 2.0, 4.0], [1.0, 1.0, 1.0, 9.0, 9.0], 5.0, resamples=100
    )
    assert detection.auroc == pytest.approx(5 / 6)
    for end in detection.auroc_interval:
        # Hanley and McNeil's variance, with 3/2 for both numbers less one.
        chance = 1 + 1.5 * (1 - end) / (2 - end) + 1.5 * end / (1 + end)
        variance = end * (1 - end) * chance / 6
        assert abs(end - 5 / 6) == pytest.approx(1.959964 * np.sqrt(variance))


def test_resamples_are_those_of_plain_code():
    """The vectorized scores against scikit-learn on the same resamples."""
    # The scores are uninformative and have ties.
    scores = np.random.default_rng(6).normal(size=60).round(1)
    _, margins = sample(np.random.default_rng(5), 60)
    detection = detection_scores(scores, margins, 1.0, resamples=200, seed=3)
    random = np.random.default_rng(3)
    # Resamples draw positions in the order of the scores.
    order = np.argsort(scores, kind="stable")
    plain = []
    for _ in range(200):
        rows = order[random.integers(60, size=60)]
        brittle, drawn = margins[rows] <= 1.0, -scores[rows]
        plain.append(average_precision_score(brittle, drawn))
    spread = np.arcsin(np.sqrt(plain)).std(ddof=1)
    trials = min(detection.num_brittle, 1 / (4 * spread**2))
    # The ends of Wilson's interval are where the estimate is 1.96 errors away.
    for end in detection.aupr_interval:
        error = np.sqrt(end * (1 - end) / trials)
        assert abs(end - detection.aupr) == pytest.approx(1.959964 * error)


def test_coverage():
    random = np.random.default_rng(6)
    truth = detection_scores(*sample(random, 200_000), 1.0, resamples=100)
    hits = np.zeros(3)
    for _ in range(300):
        detection = detection_scores(*sample(random, 300), 1.0, resamples=200)
        for column, name in enumerate(("auroc", "aupr", "fpr")):
            low, high = getattr(detection, f"{name}_interval")
            hits[column] += low <= getattr(truth, name) <= high
    # Three standard errors of a share of 0.95 in 300 are 0.038; AUPR's is 0.94.
    assert (hits / 300 >= [0.912, 0.902, 0.912]).all(), hits
    assert (hits[:2] / 300 <= 0.988).all(), hits


@pytest.mark.parametrize("count", [100, 400])
def test_coverage_with_few_brittle_decisions_that_are_easy_to_detect(count):
    """DeLong's interval covered this AUROC in 46 and 89 %, resamples in 49 and 88 %."""
    random, held = np.random.default_rng(2), []
    scores = stats.norm.ppf((np.arange(100_000) + 0.5) / 100_000)
    true, false = 0.1 * stats.norm.cdf(scores), 0.9 * stats.norm.cdf(scores - 4)
    truths = stats.norm.cdf(4 / np.sqrt(2)), (true / (true + false)).mean()
    for _ in range(200):
        brittle = np.arange(count) < max(1, random.binomial(count, 0.1))
        drawn = random.normal(size=count) + 4 * ~brittle
        found = detection_scores(drawn, 1.0 - brittle, 0.5, resamples=100)
        ends = found.auroc_interval, found.aupr_interval
        held.append(
            [low <= t <= high for (low, high), t in zip(ends, truths, strict=True)]
        )
    assert (np.mean(held, axis=0) >= 0.93).all()


@pytest.mark.parametrize(("count", "mean"), [(100, 1.0), (200, 2.0), (400, 4.0)])
def test_coverage_of_false_positive_rates_with_few_brittle_decisions(count, mean):
    """With ten brittle decisions, percentiles of resamples covered it in 54 %."""
    random, held = np.random.default_rng(1), []
    truth = stats.norm.cdf(stats.norm.ppf(0.95) - mean)
    for _ in range(150):
        brittle = np.arange(count) < random.binomial(count, 0.1)
        scores = random.normal(size=count) + mean * ~brittle
        found = detection_scores(scores, 1.0 - brittle, 0.5, resamples=100)
        held.append(found.fpr_interval[0] <= truth <= found.fpr_interval[1])
    assert np.mean(held) >= 0.95


def test_a_perfect_score_an_opposite_one_and_a_blind_one():
    margins = np.linspace(0.01, 1, 50)
    best = detection_scores(margins, margins, 0.3)
    assert (best.auroc, best.aupr, best.fpr) == (1, pytest.approx(1), 0)
    assert best.threshold <= 0.3
    # All pairs are in order, which does not prove that every pair would be.
    assert best.auroc_interval == (pytest.approx(0.91, abs=0.01), 1)
    assert best.aupr_interval == pytest.approx((0.796, 1), abs=0.001)
    worst = detection_scores(-margins, margins, 0.3)
    assert (worst.auroc, worst.fpr) == (0, 1)
    blind = detection_scores(np.zeros(50), margins, 0.3)
    assert (blind.auroc, blind.fpr) == (0.5, 1)
    assert blind.aupr == pytest.approx(blind.prevalence)


def test_intervals_of_a_perfect_score_exist_at_the_smallest_levels():
    margins = np.linspace(0.01, 1, 50)
    for scores, edge in ((margins, 1), (-margins, 0)):
        for level in (1e-3, 1e-6, 1e-9):
            found = detection_scores(scores, margins, 0.3, level=level, resamples=100)
            assert found.auroc_interval == pytest.approx((edge, edge), abs=level)


def test_intervals_of_average_precision_stay_between_zero_and_one():
    margins = np.array([0.1, 0.2, 0.9, 0.9, 0.9, 0.9])
    scores = np.array([1.0, 3.0, 2.0, 4.0, 5.0, 6.0])
    detection = detection_scores(scores, margins, 0.5, level=1 - 1e-9)
    low, high = detection.aupr_interval
    assert 0 < low < 0.06 < 0.99 < high <= 1


def test_infinite_margins_are_robust_and_one_brittle_decision_is_enough():
    detection = detection_scores([0.1, 0.2, 0.3], [0.1, np.inf, np.inf], 0.5)
    assert detection.num_brittle == 1
    assert detection.auroc_interval == (pytest.approx(0.283, abs=1e-3), 1.0)


@pytest.mark.parametrize(
    ("margins", "eps", "options", "message"),
    [
        ([0.1, 0.2], 0.05, {}, "got only robust ones at 0.05; .* from 0.1 to 0.2"),
        ([0.1, 0.2], 0.2, {}, "got only brittle ones at 0.2"),
        ([0.1, 0.2], -1.0, {}, "eps: expected"),
        ([0.1, 0.2], 8, {}, "the largest of which is 0.2; got 8; .* pass 8/255"),
        ([-0.1, 0.2], 0.1, {}, "input_margin: expected numbers of at least 0"),
        ([0.1, 0.2, 0.3], 0.1, {}, "expected 2 numbers, got 3"),
        ([0.1, 0.2], 0.1, {"resamples": 10}, "resamples: expected at least 100"),
    ],
)
def test_bad_input(margins, eps, options, message):
    with pytest.raises(ValueError, match=message):
        detection_scores([1.0, 2.0], margins, eps, **options)
