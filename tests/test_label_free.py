"""Estimates without labels of the shift, against second forms and hand-made cases."""

import math

import numpy as np
import pytest
import torch
from scipy.optimize import linear_sum_assignment

from robustbook import label_free as lf


def rows(count, classes, seed, sure=2.0):
    random = np.random.default_rng(seed)
    logits = sure * random.normal(size=(count, classes))
    return np.exp(logits) / np.exp(logits).sum(1, keepdims=True)


@pytest.fixture
def source():
    p = rows(80, 4, 1)
    answers = p.argmax(1)
    wrong = np.random.default_rng(2).random(80) < 0.3
    return p, np.where(wrong, (answers + 1) % 4, answers)


def test_confidence_and_its_difference(source):
    p, labels = source
    q = rows(50, 4, 3, sure=1.0)
    sure = sum(max(row) for row in q) / 50
    assert lf.average_confidence(q) == pytest.approx(sure)
    right = np.mean([max(range(4), key=row.__getitem__) for row in p] == labels)
    fall = np.mean([max(row) for row in p]) - sure
    found = lf.difference_of_confidences(q, source)
    assert found == pytest.approx(right - fall)
    assert lf.difference_of_confidences(p, source) == pytest.approx(right)


@pytest.mark.parametrize("score", ["maximum", "entropy"])
def test_the_threshold_is_exact_on_the_source(source, score):
    p, labels = source
    right = float((p.argmax(1) == labels).mean())
    found = lf.average_thresholded_confidence(p, source, score=score)
    assert found == pytest.approx(right)


def test_the_two_scores_differ_and_all_wrong_is_none(source):
    p, _ = source
    q = rows(60, 4, 5, sure=1.5)
    both = {
        lf.average_thresholded_confidence(q, source, score=score)
        for score in ("maximum", "entropy")
    }
    assert len(both) == 2
    wrong = (p, (p.argmax(1) + 1) % 4)
    assert lf.average_thresholded_confidence(q, wrong) == 0


@pytest.mark.parametrize("classes", [2, 5])
def test_transport_is_the_best_assignment(classes):
    q = rows(60, classes, 7)
    labels = np.random.default_rng(8).integers(classes, size=60)
    gain = q[:, labels]
    best = gain[linear_sum_assignment(gain, maximize=True)].mean()
    assert lf.confidence_optimal_transport(q, labels) == pytest.approx(best)


def test_nuclear_norm_is_the_trace_of_a_root():
    q = rows(30, 5, 9)
    roots = np.sqrt(np.linalg.eigvalsh(q.T @ q))
    assert lf.nuclear_norm(q) == pytest.approx(roots.sum() / math.sqrt(30 * 5))
    same = np.tile([[0.25] * 4], (8, 1))
    assert lf.nuclear_norm(same) < lf.nuclear_norm(rows(8, 4, 1, sure=9.0))


def test_mutual_information_is_a_mean_divergence_from_the_mean():
    q = rows(40, 6, 11)
    middle = q.mean(0)
    expected = np.mean([(row * np.log(row / middle)).sum() for row in q])
    assert lf.mutual_information(q) == pytest.approx(expected)
    assert lf.mutual_information(q[:1].repeat(9, axis=0)) == pytest.approx(0, abs=1e-12)


def test_effective_invariance_is_a_corner_of_the_kernel():
    from robustbook.agreement import posterior_overlap

    p, q = rows(50, 3, 12), rows(50, 3, 13)
    pair = np.log(p), np.log(q)
    sides = (
        posterior_overlap(*pair, beta=one, shifted_beta=other)
        for one, other in ((1, math.inf), (math.inf, 1))
    )
    first, second = sides
    same = posterior_overlap(*pair, beta=math.inf)
    expected = float(((first * second).sqrt() * same).mean())
    assert lf.effective_invariance(p, q) == pytest.approx(expected)


def test_networks_on_a_line_are_found():
    from scipy.stats import norm

    random = np.random.default_rng(14)
    agreements = random.uniform(0.5, 0.95, size=20)
    accuracies = random.uniform(0.6, 0.9, size=6)

    def shift(share):
        return norm.cdf(0.7 * norm.ppf(share) - 0.2)

    found = lf.agreement_on_the_line(accuracies, agreements, shift(agreements))
    assert found == pytest.approx(shift(accuracies))


def test_an_attack_that_makes_sure_deceives_what_sees_one_side_only():
    """All answers are wrong, and surer than before."""
    clean = rows(200, 4, 15, sure=1.0)
    labels = clean.argmax(1)
    attacked = np.full((200, 4), 0.01)
    attacked[np.arange(200), (labels + 1) % 4] = 0.97
    assert lf.average_confidence(attacked) > 0.9
    assert lf.average_thresholded_confidence(attacked, (clean, labels)) > 0.9
    assert lf.effective_invariance(clean, attacked) == 0


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda q: lf.average_confidence(3 * q), ValueError, "sum to 1"),
        (lambda q: lf.average_confidence(-q), ValueError, "are they logits"),
        (lambda q: lf.effective_invariance(q, q[:2]), ValueError, "clean"),
        (lambda q: lf.difference_of_confidences(q, q[:, 0]), TypeError, "a pair"),
        (
            lambda q: lf.difference_of_confidences(q, (rows(9, 3, 0), [0] * 9)),
            ValueError,
            "4 classes",
        ),
        (
            lambda q: lf.average_thresholded_confidence(q, (q, [4] * len(q))),
            ValueError,
            "source labels",
        ),
        (
            lambda q: lf.average_thresholded_confidence(q, (q, [0] * 9), score="x"),
            ValueError,
            "score",
        ),
        (
            lambda q: lf.confidence_optimal_transport(q, [0.5]),
            (TypeError, ValueError),
            "source_labels",
        ),
        (
            lambda q: lf.agreement_on_the_line([1.0], [0.5, 0.6], [0.4, 0.5]),
            ValueError,
            "source_accuracy",
        ),
        (
            lambda q: lf.agreement_on_the_line([0.9], [0.5, 0.5], [0.4, 0.5]),
            ValueError,
            "different",
        ),
    ],
)
def test_mistakes_are_named(call, error, message):
    with pytest.raises(error, match=message):
        call(torch.tensor(rows(20, 4, 16)))
