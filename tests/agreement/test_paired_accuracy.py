"""The estimated accuracy under a shift: naive forms, coverage, hostile input."""

import math

import numpy as np
import pytest
import torch
from paired_worlds import accuracy_of, answers_of, clean_logits, source
from scipy.special import softmax
from scipy.stats import binomtest

from robustbook.agreement import (
    calibrate_beta,
    compare_paired_accuracy,
    paired_accuracy,
)
from robustbook.scores import same_answer_rate

pytestmark = pytest.mark.filterwarnings("ignore:calibration")


def pairs(random, size, num_classes, sharp, keep):
    logits = clean_logits(random, size, num_classes, sharp)
    return logits, np.eye(num_classes)[answers_of(random, logits, keep)]


@pytest.fixture
def world():
    random = np.random.default_rng(0)
    return *pairs(random, 400, 6, 4.0, 0.6), source(random, 300, 6, 4.0)


def test_it_is_the_mean_probability_of_the_shifted_answer(world):
    clean, shifted, labeled = world
    estimate = paired_accuracy(clean, shifted, calibrated_on=labeled)
    beta = calibrate_beta(*labeled).beta
    p = softmax(beta * clean, axis=1)[np.arange(400), shifted.argmax(1)]
    assert estimate.value == pytest.approx(p.mean(), rel=1e-12)
    np.testing.assert_allclose(estimate.per_sample, p, rtol=1e-12)
    assert estimate.interval[0] < estimate.from_pairs[0] < estimate.value
    assert estimate.interval[1] > estimate.from_calibration[1] > estimate.value


def test_the_standard_error_against_a_bootstrap(world):
    clean, shifted, (logits, labels) = world
    random, values = np.random.default_rng(1), []
    for _ in range(300):
        rows, own = random.integers(400, size=400), random.integers(300, size=300)
        values.append(
            paired_accuracy(
                clean[rows], shifted[rows], calibrated_on=(logits[own], labels[own])
            ).value
        )
    estimate = paired_accuracy(clean, shifted, calibrated_on=(logits, labels))
    assert estimate.standard_error == pytest.approx(np.std(values), rel=0.2)


# Classes, sharpness of the posteriors, share of answers kept, pairs, calibration.
CELLS = [
    (2, 1.5, 1.0, 50, 50),
    (2, 1.5, 0.5, 500, 50),
    (10, 6.0, 1.0, 50, 500),  # few wrong answers
    (10, 9.0, 1.0, 50, 50),
    (10, 9.0, 0.02, 50, 500),  # few right ones
    (10, 9.0, 0.02, 500, 50),
    (10, 3.0, 0.0, 500, 500),
    pytest.param((100, 8.0, 1.0, 500, 50), marks=pytest.mark.slow),
    pytest.param((1000, 11.0, 0.5, 50, 50), marks=pytest.mark.slow),
]


@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_the_interval_covers(cell):
    num_classes, sharp, keep, size, labeled = cell
    random, held = np.random.default_rng(7), 0
    size_of_truth = 10**7 // num_classes
    truth = accuracy_of(num_classes, sharp, keep, size=min(200_000, size_of_truth))
    for _ in range(150):
        clean, shifted = pairs(random, size, num_classes, sharp, keep)
        calibrated_on = source(random, labeled, num_classes, sharp)
        low, high = paired_accuracy(
            clean, shifted, calibrated_on=calibrated_on
        ).interval
        held += low <= truth <= high
    assert binomtest(held, 150, 0.93, alternative="less").pvalue > 0.001


@pytest.mark.parametrize("by_class", ["answer", "label"])
def test_estimates_by_class_equal_loops_and_their_intervals_cover(by_class):
    random, held, cells = np.random.default_rng(9), 0, 0
    big, big_shifted = pairs(random, 100_000, 4, 3.0, 0.7)
    p, answer = softmax(big, axis=1), big_shifted.argmax(1)
    hit = [p[answer == k, k].sum() for k in range(4)]
    weight = np.bincount(answer) if by_class == "answer" else p.sum(0)
    truth = np.array(hit) / weight
    for _ in range(60):
        clean, shifted = pairs(random, 200, 4, 3.0, 0.7)
        estimate = paired_accuracy(
            clean, shifted, calibrated_on=source(random, 200, 4, 3.0), by_class=by_class
        )
        value, low, high = estimate.by_class.T.numpy()
        held += int(((low <= truth) & (truth <= high)).sum())
        cells += 4
    assert held / cells > 0.93
    p, answer = softmax(estimate.calibration.beta * clean, axis=1), shifted.argmax(1)
    for k in range(4):
        weight = (answer == k).sum() if by_class == "answer" else p[:, k].sum()
        assert value[k] == pytest.approx(p[answer == k, k].sum() / weight, rel=1e-9)


def test_a_class_that_is_never_answered_is_undefined(world):
    clean, _, labeled = world
    shifted = np.eye(6)[np.zeros(400, dtype=int)]
    estimate = paired_accuracy(clean, shifted, calibrated_on=labeled, by_class="answer")
    assert not estimate.by_class[0].isnan().any()
    assert estimate.by_class[1:].isnan().all()


@pytest.mark.parametrize("labeled", [50, 400])
def test_the_difference_of_two_models_covers(labeled):
    random, held, widths = np.random.default_rng(10), 0, []
    truth = accuracy_of(5, 4.0, 0.8) - accuracy_of(5, 4.0, 0.6)
    for _ in range(150):
        clean = clean_logits(random, 200, 5, 4.0)
        a, b = (np.eye(5)[answers_of(random, clean, keep)] for keep in (0.8, 0.6))
        logits, labels = source(random, labeled, 5, 4.0)
        found = compare_paired_accuracy(
            clean, a, clean / 3, b, calibrated_on=(logits, logits / 3, labels)
        )
        held += found.interval[0] <= truth <= found.interval[1]
        one, two = found.first.interval, found.second.interval
        widths.append(
            (found.interval[1] - found.interval[0])
            / math.hypot(one[1] - one[0], two[1] - two[0])
        )
    assert binomtest(held, 150, 0.93, alternative="less").pvalue > 0.001
    # Variation that both share, in pairs and labels, cancels.
    assert np.mean(widths) < (0.95 if labeled == 50 else 1.0)


def test_the_difference_covers_where_few_pairs_tell_the_models_apart():
    """Five in a hundred answers differ, in 50 pairs: often none."""
    random, held = np.random.default_rng(13), 0
    truth = accuracy_of(10, 4.0, 0.5) - accuracy_of(10, 4.0, 0.45)
    for _ in range(200):
        clean = clean_logits(random, 50, 10, 4.0)
        top, draw = clean.argmax(1), random.random(50)
        other = (top + random.integers(1, 10, size=50)) % 10
        a, b = (np.eye(10)[np.where(draw < keep, top, other)] for keep in (0.5, 0.45))
        logits, labels = source(random, 300, 10, 4.0)
        found = compare_paired_accuracy(
            clean, a, clean, b, calibrated_on=(logits, logits, labels)
        )
        held += found.interval[0] <= truth <= found.interval[1]
    assert binomtest(held, 200, 0.93, alternative="less").pvalue > 0.05


def test_a_model_differs_from_itself_by_nothing(world):
    clean, shifted, (logits, labels) = world
    found = compare_paired_accuracy(
        clean, shifted, clean, shifted, calibrated_on=(logits, logits, labels)
    )
    assert found.value == 0
    assert found.standard_error == pytest.approx(0, abs=1e-9)
    assert found.interval[0] <= 0 <= found.interval[1]


def test_separable_calibration_leaves_the_same_answer_rate_and_a_lower_end():
    logits = 3 * torch.eye(5).repeat(40, 1)
    shifted = logits.roll(20, 0)[:, [1, 0, 2, 3, 4]]
    with pytest.warns(UserWarning, match="all 200 answers are right"):
        found = paired_accuracy(
            logits, shifted, calibrated_on=(logits, torch.arange(5).repeat(40))
        )
    assert found.value == same_answer_rate(logits, shifted)
    assert found.interval[0] < found.from_pairs[0]


def test_the_interval_of_a_single_pair_is_everything(world):
    clean, shifted, labeled = world
    found = paired_accuracy(clean[:1], shifted[:1], calibrated_on=labeled)
    assert found.interval == (0, 1)


def test_a_class_missing_in_the_source_draws_a_warning():
    random = np.random.default_rng(11)
    logits, labels = source(random, 600, 4, 5.0)
    clean, shifted = pairs(random, 600, 4, 5.0, 0.9)
    rest = labels != 3
    with pytest.warns(UserWarning, match="class 3 is frequent in the pairs and absent"):
        paired_accuracy(clean, shifted, calibrated_on=(logits[rest], labels[rest]))


@pytest.mark.parametrize(
    ("calibrated_on", "error", "message"),
    [
        (None, TypeError, "without labels, posterior_agreement compares the pairs"),
        (np.eye(6), TypeError, r"expected \(logits, labels\)"),
        ((np.eye(5), [0, 1, 2, 3, 4]), ValueError, "logits of 6 classes"),
        ((np.eye(6), [0, 1, 2, 3, 4, 6]), ValueError, "labels from 0 to 5, got 6"),
    ],
)
def test_bad_calibration_sets(world, calibrated_on, error, message):
    clean, shifted, _ = world
    with pytest.raises(error, match=message):
        paired_accuracy(clean, shifted, calibrated_on=calibrated_on)


def test_bad_options(world):
    clean, shifted, labeled = world
    with pytest.raises(ValueError, match="by_class: expected one of answer, label"):
        paired_accuracy(clean, shifted, calibrated_on=labeled, by_class="classes")
    with pytest.raises(TypeError, match=r"expected \(logits_a, logits_b, labels\)"):
        compare_paired_accuracy(clean, shifted, clean, shifted, calibrated_on=labeled)
    with pytest.raises(ValueError, match="level"):
        paired_accuracy(clean, shifted, calibrated_on=labeled, level=1.5)
