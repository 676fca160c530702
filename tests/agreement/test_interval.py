"""Intervals of posterior agreement: counted for hard answers, simulated for soft."""

import math

import numpy as np
import pytest
import torch
from scipy import stats

from robustbook.agreement import (
    compare_agreement,
    interval_of_difference,
    posterior_agreement,
    symmetric_channel_capacity,
)

SIZES = (10, 30, 100, 200, 1000)
RATES = (0.0, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5)
#: By classes, size and mismatch: no interval of theirs reaches .93.
SHORT = {(2, 10, 0.3): 0.92, (1000, 100, 0.999): 0.90}


def hard_pairs(changed, count, classes):
    clean = torch.zeros(count, classes)
    clean[:, 0] = 1
    shifted = clean.clone()
    shifted[:changed, :2] = torch.tensor([0.0, 1.0])
    return clean, shifted


def hard_interval(changed, count, classes):
    """The interval of measured pairs, without the search: their agreement is known."""
    from robustbook.agreement._uncertainty import interval_of_two_views

    share, chance = changed / count, (classes - 1) / classes
    error = 0.0
    if 0 < share < chance:
        error = math.sqrt(share * (1 - share) / (count - 1))
        error *= math.log((1 - share) * (classes - 1) / share)
    value = symmetric_channel_capacity(share, classes)
    low, high = interval_of_two_views(value, error, share, count, classes, 0.95, 0.0)
    return max(0.0, low), min(math.log(classes), high)


@pytest.mark.parametrize("changed", [0, 1, 7, 40])
def test_the_interval_of_hard_answers_depends_on_how_many_change(changed):
    result = posterior_agreement(*hard_pairs(changed, 50, 3))
    assert result.interval() == pytest.approx(hard_interval(changed, 50, 3), abs=1e-6)


@pytest.mark.parametrize("seen", [0, 1, 5, 200])
def test_the_lower_end_is_the_score_interval_of_a_number_of_contradictions(seen):
    from robustbook.agreement._uncertainty import lower_end

    loss, count, q = 2.5, 10**9, stats.norm.ppf(0.975)
    error = loss * math.sqrt(seen) / count
    low = lower_end(0.7, error, count, 0.95, loss)
    supposed = seen + (0.7 - low) * count / loss
    assert supposed - seen == pytest.approx(q * math.sqrt(supposed), rel=1e-4)


@pytest.mark.parametrize("classes", [2, 10, 1000])
@pytest.mark.parametrize("count", SIZES)
def test_intervals_of_hard_answers_cover(classes, count):
    chance = (classes - 1) / classes
    numbers = np.arange(count + 1)
    ends = np.array([hard_interval(int(k), count, classes) for k in numbers])
    for rate in (*RATES, 0.95 * chance, chance):
        truth = symmetric_channel_capacity(rate, classes)
        held = (ends[:, 0] - 1e-12 <= truth) & (truth <= ends[:, 1] + 1e-12)
        coverage = stats.binom.pmf(numbers, count, rate) @ held
        assert coverage >= SHORT.get((classes, count, rate), 0.93), rate


def soft_pairs(random, count, *, flips):
    """Answers of two confidences, some of which change to another confident one."""
    label = random.integers(10, size=count)
    clean = random.normal(size=(count, 10))
    clean[np.arange(count), label] += random.choice([4.0, 8.0], size=count)
    shifted = clean + 0.5 * random.normal(size=(count, 10))
    changed = np.flatnonzero(random.random(count) < flips)
    shifted[changed] = random.normal(size=(len(changed), 10))
    shifted[changed, (label[changed] + 1) % 10] += 8
    return torch.tensor(clean), torch.tensor(shifted)


@pytest.mark.parametrize(("count", "flips"), [(100, 0.01), (300, 0.003), (30, 0.05)])
def test_intervals_of_soft_answers_cover_where_few_change(count, flips):
    """Plus or minus 1.96 standard errors hold the truth in .25 to .75 of them."""
    random = np.random.default_rng(0)
    truth = posterior_agreement(*soft_pairs(random, 100_000, flips=flips), tol=1e-6).pa
    held, normal = 0, 0
    for _ in range(150):
        result = posterior_agreement(*soft_pairs(random, count, flips=flips), tol=1e-6)
        low, high = result.interval()
        held += low <= truth <= high
        normal += abs(result.pa - truth) <= 1.96 * result.standard_error
    # Three standard errors below .93, in 150 draws.
    assert held / 150 >= 0.87
    assert normal / 150 < 0.85


def test_an_interval_has_the_ends_of_the_measure_and_a_level():
    result = posterior_agreement(*hard_pairs(0, 20, 4))
    low, high = result.interval()
    assert 0 < low < high == pytest.approx(math.log(4))
    assert result.interval(0.5)[0] > low
    three = posterior_agreement(*hard_pairs(3, 30, 4), hard_pairs(5, 30, 4)[1])
    low, high = three.interval()
    half = stats.t.ppf(0.975, 29) * three.standard_error
    assert 0 <= low < three.pa < three.pa + half == pytest.approx(high)
    assert posterior_agreement(*hard_pairs(0, 1, 4)).interval() == (0, math.log(4))
    with pytest.raises(ValueError, match="level"):
        result.interval(1.0)


def test_equal_results_have_a_difference_with_an_interval_of_some_width():
    pairs = hard_pairs(2, 12, 3)
    comparison = compare_agreement(*pairs, *pairs)
    low, high = comparison.interval
    assert low < 0 < high
    ends = interval_of_difference(comparison.first, comparison.second, 0.95)
    assert (
        ends
        == comparison.interval
        == interval_of_difference(comparison.second, comparison.first)
    )
    fewer = posterior_agreement(*hard_pairs(2, 11, 3))
    with pytest.raises(ValueError, match="same samples as a, 12 of them, got 11"):
        interval_of_difference(comparison.first, fewer)


def test_the_interval_of_a_difference_covers_where_one_model_shows_no_change():
    # By Student's interval of the paired contributions in 77 % of samples.
    random = np.random.default_rng(4)
    shares = 0.05, 0.0
    one, other = (
        posterior_agreement(*soft_pairs(random, 100_000, flips=flips), tol=1e-6).pa
        for flips in shares
    )
    held = 0
    for _ in range(150):
        made = [
            view for flips in shares for view in soft_pairs(random, 30, flips=flips)
        ]
        low, high = compare_agreement(*made, tol=1e-6).interval
        held += low <= one - other <= high
    assert held >= 0.92 * 150


def test_equal_models_differ_significantly_in_one_draw_of_twenty():
    random = np.random.default_rng(1)
    apart = 0
    for _ in range(300):
        one, other = (soft_pairs(random, 60, flips=0.2) for _ in "ab")
        low, high = compare_agreement(*one, *other, tol=1e-6).interval
        apart += not low <= 0 <= high
    assert 0.015 <= apart / 300 <= 0.095
