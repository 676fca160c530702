"""Rank correlations: values by scipy, intervals by simulation."""

import time

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from robustbook.margins import margin_consistency
from robustbook.margins._consistency import concordance, ranks, tau_b

small = st.lists(
    st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=3, max_size=30
)


@settings(deadline=None)
@given(small)
def test_counts_by_brute_force(pairs):
    x, y = (
        ranks(np.array(part, dtype=np.float64)) for part in zip(*pairs, strict=True)
    )
    expected = np.sign(np.subtract.outer(x, x)) * np.sign(np.subtract.outer(y, y))
    np.testing.assert_array_equal(concordance(x, y), expected.sum(axis=1))


def test_standard_error_of_five_by_hand():
    """Pairs (1, 2), (3, 4) and (3, 5) are out of order: sums of signs over four."""
    signs = np.array([2, 2, 0, 2, 2]) / 4
    error = margin_consistency([1.0, 2, 3, 4, 5], [2.0, 1, 5, 3, 4]).standard_error
    assert error == pytest.approx(2 * signs.std(ddof=1) / 5**0.5)


@settings(deadline=None)
@given(small)
def test_tau_and_rho_are_scipys(pairs):
    x, y = (np.array(part, dtype=np.float64) for part in zip(*pairs, strict=True))
    if len(set(x)) == 1 or len(set(y)) == 1:
        with pytest.raises(ValueError, match="at least two different values"):
            margin_consistency(x, y)
        return
    result = margin_consistency(x, y)
    assert result.tau == pytest.approx(stats.kendalltau(x, y).statistic)
    assert result.spearman == pytest.approx(stats.spearmanr(x, y).statistic)
    low, high = result.interval
    assert -1 <= low <= result.tau + 1e-12
    assert result.tau <= high + 1e-12 <= 1 + 1e-12
    # Only the order counts, and the opposite order changes the sign.
    other = margin_consistency(np.exp(x), 3 * y - 1)
    assert other.tau == result.tau
    assert other.standard_error == result.standard_error
    assert margin_consistency(-x, y).tau == pytest.approx(-result.tau)
    swapped = margin_consistency(y, x)
    assert swapped.standard_error == pytest.approx(result.standard_error)


def sample(random, count, *, step):
    """Return noisy margins, rounded to `step` so that there are ties."""
    x = random.gamma(2, size=count)
    y = x + random.normal(size=count)
    return (x, y) if step == 0 else (np.round(x / step), np.round(y / step))


@pytest.mark.parametrize("step", [0.0, 0.7])
def test_standard_error_is_the_spread_over_samples(step):
    random = np.random.default_rng(0)
    result = [tau_b(*sample(random, 200, step=step)) for _ in range(600)]
    taus, errors = np.array(result).T
    # A standard deviation of 600 values has an error of 3 %.
    assert errors.mean() == pytest.approx(taus.std(), rel=0.09)


@pytest.mark.parametrize("step", [0.0, 0.7])
@pytest.mark.parametrize("count", [30, 300])
def test_coverage(step, count):
    random = np.random.default_rng(1)
    truth = stats.kendalltau(*sample(random, 100_000, step=step)).statistic
    hits = 0
    for _ in range(600):
        low, high = margin_consistency(*sample(random, count, step=step)).interval
        hits += low <= truth <= high
    # Three standard errors of a share of 0.95 in 600 are 0.027.
    assert 0.923 <= hits / 600 <= 0.977


@pytest.mark.parametrize("count", [3, 5, 10, 30])
@pytest.mark.parametrize("noise", [0.01, 0.1, 1.0])
def test_coverage_where_hardly_any_pair_disagrees(count, noise):
    random = np.random.default_rng(3)

    def draw(size):
        x = random.gamma(2, size=size)
        return x, x + noise * random.normal(size=size)

    truth = stats.kendalltau(*draw(100_000)).statistic
    ends = np.array([margin_consistency(*draw(count)).interval for _ in range(600)])
    assert ((ends[:, 0] <= truth) & (truth <= ends[:, 1])).mean() >= 0.923
    assert (ends[:, 0] < ends[:, 1]).all()


def test_perfect_order_and_infinite_margins():
    result = margin_consistency(torch.arange(5.0), [0.1, 0.2, 0.3, 0.4, np.inf])
    assert (result.tau, result.interval, result.spearman) == (1, (-1, 1), 1)
    # With ties, rounding would give more than 1.
    many = np.array([3.0, 5, 0, 2, 3, 2, 4, 6, 2, 5, 0, 3])
    for sign in (1, -1):
        result = margin_consistency(many, sign * many)
        assert result.tau == sign
        # Up to 26.5 % of all samples, of which none is among 12, may be out of order.
        assert min(map(abs, result.interval)) == pytest.approx((1 - 0.2646) ** 2, 1e-3)
    tied = margin_consistency([1.0, 2, 3, 4], [0.1, 0.2, np.inf, np.inf])
    assert tied.tau == pytest.approx(stats.kendalltau([1, 2, 3, 4], [1, 2, 3, 3])[0])


def test_ten_thousand_in_less_than_a_second():
    x, y = sample(np.random.default_rng(4), 10_000, step=0.01)
    margin_consistency(x[:100], y[:100])
    start = time.process_time()
    result = margin_consistency(x, y)
    assert time.process_time() - start < 1
    assert result.interval[1] - result.interval[0] < 0.03


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (([1.0, 2, 3], [1.0, 2]), {}, "input_margin: expected 3 numbers, got 2"),
        (([1.0, 2, np.nan], [1.0, 2, 3]), {}, "logit_margin: .* nan at index 2"),
        (([1.0, 2], [1.0, 2]), {}, "at least three samples"),
        (([1.0, 1, 1], [1.0, 2, 3]), {}, "logit_margin: .*different values"),
        (([], []), {}, "at least one sample"),
        (([[1.0]], [[1.0]]), {}, r"expected shape \(N,\)"),
        (([1.0, 2, 3], [1.0, 2, 3]), {"level": 1.0}, r"level: .*\(0, 1\)"),
    ],
)
def test_bad_input(arguments, options, message):
    with pytest.raises(ValueError, match=message):
        margin_consistency(*arguments, **options)
