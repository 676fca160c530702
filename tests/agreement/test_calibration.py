"""The calibrated inverse temperature: optimum, interval, ends of its range."""

import math

import numpy as np
import pytest
import torch
from paired_worlds import source
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax
from scipy.stats import binomtest
from scipy.stats import t as student

from robustbook.agreement import calibrate_beta


@pytest.mark.parametrize(("scale", "num_classes"), [(1, 2), (1e-3, 10), (500, 40)])
def test_it_minimizes_the_cross_entropy(scale, num_classes):
    random = np.random.default_rng(1)
    logits, labels = source(random, 300, num_classes, 3.0)
    logits = logits / 0.7 * scale
    found = calibrate_beta(logits, labels)

    def loss(beta):
        return -log_softmax(beta * logits, 1)[np.arange(300), labels].mean()

    best = minimize_scalar(
        loss, bounds=(0, 5 / scale), options={"xatol": 1e-12 / scale}
    )
    assert found.beta == pytest.approx(best.x, rel=1e-5)
    assert found.cross_entropy == pytest.approx(best.fun, rel=1e-10)
    low, high = found.interval
    assert 0 <= low < found.beta < high


def test_the_quota_of_maximum_entropy_is_met():
    logits, labels = source(np.random.default_rng(2), 200, 5, 2.0)
    found = calibrate_beta(logits, labels)
    p = np.exp(log_softmax(found.beta * logits, 1))
    expected = (p * logits).sum(1).mean()
    assert logits[np.arange(200), labels].mean() == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("misled", [False, True])
def test_the_sandwich_against_a_bootstrap(misled):
    random = np.random.default_rng(3)
    logits, labels = source(random, 2000, 4, 3.0)
    if misled:  # half of the samples far too sure: one temperature does not fit
        logits[::2] *= 5
    found = calibrate_beta(logits, labels)
    drawn = []
    for _ in range(200):
        rows = random.integers(2000, size=2000)
        drawn.append(calibrate_beta(logits[rows], labels[rows]).beta)
    assert found.standard_error == pytest.approx(np.std(drawn), rel=0.2)


@pytest.mark.parametrize(("size", "sharp"), [(50, 2.0), (50, 6.0), (500, 6.0)])
@pytest.mark.filterwarnings("ignore:calibration")
def test_the_interval_of_beta_covers(size, sharp):
    random, held = np.random.default_rng(4), 0
    for _ in range(200):
        low, high = calibrate_beta(*source(random, size, 10, sharp)).interval
        held += low <= 1 <= high
    assert binomtest(held, 200, 0.93, alternative="less").pvalue > 0.001


def test_beta_is_infinite_with_a_lower_end_where_all_answers_are_right():
    logits = 3 * torch.eye(5).repeat(40, 1)
    with pytest.warns(UserWarning, match="all 200 answers are right"):
        found = calibrate_beta(logits, torch.arange(5).repeat(40))
    low, high = found.interval
    assert (found.beta, high) == (math.inf, math.inf)
    # By hand: an error has probability r = 4 / (4 + exp(3 b)), and its logit is 3 less.
    # The mean score 3 r is what t standard errors and one error allow, in squares.
    r, t = 4 / (4 + math.exp(3 * low)), student.ppf(0.975, 199)
    assert r**2 == pytest.approx(t**2 * r * (1 - r) / 200 + 1 / 200**2, rel=1e-6)


def test_beta_is_zero_where_the_logits_contradict_the_labels():
    logits = torch.eye(2).repeat(50, 1)
    with pytest.warns(UserWarning, match="say nothing of the labels"):
        found = calibrate_beta(logits, torch.tensor([1, 0]).repeat(50))
    assert found.beta == 0
    assert found.interval[0] == 0


def test_forty_samples_draw_a_warning():
    with pytest.warns(UserWarning, match="40 samples leave β anywhere in"):
        calibrate_beta(*source(np.random.default_rng(5), 40, 3, 1.0))


@pytest.mark.parametrize(
    ("logits", "labels", "error", "message"),
    [
        (np.eye(3), [0, 1, 3], ValueError, "labels from 0 to 2, got 3"),
        (np.eye(3), [0, 1], ValueError, r"expected shape \(3,\)"),
        (np.eye(3), [0.0, 1.0, 2.5], TypeError, "expected integer labels"),
        (np.eye(3)[:1], [0], ValueError, "expected two samples or more"),
        (np.ones((5, 3)), [0, 1, 2, 0, 1], ValueError, "logits that differ"),
        ([[0.0, math.nan]] * 3, [0, 1, 0], ValueError, "finite"),
    ],
)
def test_bad_calibration_sets(logits, labels, error, message):
    with pytest.raises(error, match=message):
        calibrate_beta(logits, np.array(labels))


def test_probabilities_calibrate_as_logits_do():
    logits, labels = source(np.random.default_rng(6), 200, 5, 2.0)
    direct = calibrate_beta(logits, labels)
    p = np.exp(log_softmax(logits, 1))
    assert calibrate_beta(p, labels, probabilities=True).beta == pytest.approx(
        direct.beta, rel=1e-9
    )
