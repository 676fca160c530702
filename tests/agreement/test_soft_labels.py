"""Agreement with soft labels against grids, closed forms and fifty digits."""

import math

import mpmath
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax

from robustbook.agreement import CertificateError, soft_label_agreement

BETAS = np.concatenate([[0.0], np.geomspace(1e-3, 1e3, 801)])


def kernel(logits, votes, beta):
    """J by its definition."""
    posterior = np.exp(log_softmax(beta * logits, axis=1))
    labels = votes / votes.sum(axis=1, keepdims=True)
    overlap = (posterior * labels).sum(axis=1)
    with np.errstate(divide="ignore"):
        return np.log(logits.shape[1] * overlap).mean()


def drawn(seed, samples=40, classes=5, votes=20):
    random = np.random.default_rng(seed)
    logits = 3 * random.normal(size=(samples, classes))
    chances = np.exp(log_softmax(logits + random.normal(size=logits.shape), axis=1))
    return logits, random.multinomial(votes, chances)


@settings(max_examples=25, deadline=None, derandomize=True)
@given(
    logits=hnp.arrays(np.float64, (4, 3), elements=st.floats(-30, 30)),
    votes=hnp.arrays(np.int64, (4, 3), elements=st.integers(0, 9)),
)
def test_no_temperature_does_better_than_the_bound(logits, votes):
    votes[:, 0] += votes.sum(axis=1) == 0
    result = soft_label_agreement(logits, votes)
    assert 0 <= result.pa <= result.upper_bound <= result.pa + 1e-6
    best = max(kernel(logits, votes, beta) for beta in BETAS)
    assert best <= result.upper_bound + 1e-12
    assert best <= result.pa + 1e-6
    share = votes.max(axis=1) / votes.sum(axis=1)
    assert result.pa <= math.log(3) + np.log(share).mean() + 1e-12
    assert float(result.per_sample.mean()) == pytest.approx(result.pa, abs=1e-12)
    if math.isfinite(result.beta):
        assert kernel(logits, votes, result.beta) == pytest.approx(result.pa, abs=1e-9)


def test_with_labels_it_is_the_cross_entropy_after_temperature_scaling():
    logits, votes = drawn(0, votes=1)

    def cross_entropy(log_beta):
        return -(votes * log_softmax(math.exp(log_beta) * logits, axis=1)).sum(1).mean()

    best = minimize_scalar(cross_entropy, bounds=(-9, 9), method="bounded")
    result = soft_label_agreement(logits, votes, tol=1e-9)
    assert result.pa == pytest.approx(math.log(5) - best.fun, abs=1e-8)
    assert result.beta == pytest.approx(math.exp(best.x), rel=1e-3)


def test_fifty_digits_at_the_maximizer_of_two_hills():
    # Six samples are told apart by tiny differences, five by large ones.
    logits = np.array([[0.01, 0.0, 0.0]] * 6 + [[9.0, 8.0, 0.0]] * 5)
    votes = np.array([[0, 1, 0]] + [[1, 0, 0]] * 5 + [[300, 695, 5]] * 5)
    result = soft_label_agreement(logits, votes, tol=1e-9)
    with mpmath.workdps(50):
        total = mpmath.mpf(0)
        for f, q in zip(logits.tolist(), votes.tolist(), strict=True):
            weights = [mpmath.e ** (mpmath.mpf(result.beta) * mpmath.mpf(x)) for x in f]
            overlap = mpmath.fdot(weights, q) / mpmath.fsum(weights) / sum(q)
            total += mpmath.log(3 * overlap)
        assert float(total / len(logits)) == pytest.approx(result.pa, abs=1e-13)
    values = [kernel(logits, votes, beta) for beta in BETAS]
    tops = [
        b for a, b, c in zip(values, values[1:], values[2:], strict=False) if a < b > c
    ]
    assert len(tops) == 2
    assert max(values) <= result.upper_bound


def test_beta_is_infinite_where_the_crowd_shares_every_first_choice():
    logits, _ = drawn(1)
    shares = np.array([0.2, 0.5, 0.6, 0.9] * 10)
    votes = np.tile((1 - shares)[:, None] / 4, 5)
    votes[np.arange(40), logits.argmax(axis=1)] = shares
    result = soft_label_agreement(logits, votes)
    # Where the share is 1 / K all answers count alike.
    assert result.pa == pytest.approx(math.log(5) + np.log(shares).mean(), abs=1e-6)
    exact = soft_label_agreement(
        logits[shares == 0.9], np.eye(5)[logits[shares == 0.9].argmax(axis=1)]
    )
    assert exact.pa == pytest.approx(math.log(5), abs=1e-6)


def test_agreement_is_zero_if_a_side_is_uniform_or_says_the_opposite():
    logits, votes = drawn(2)
    for some, others in (
        (np.zeros_like(logits), votes),
        (logits, np.ones_like(votes)),
        (logits, np.eye(5)[logits.argmin(axis=1)]),
    ):
        result = soft_label_agreement(some, others)
        assert result.pa == pytest.approx(0.0, abs=1e-12)
        assert result.upper_bound <= 1e-6


def test_units_of_logits_sizes_of_crowds_and_names_do_not_matter():
    logits, votes = drawn(3)
    first = soft_label_agreement(logits, votes)
    order = [3, 0, 4, 2, 1]
    for other in (
        soft_label_agreement(1e-4 * logits + 7, votes),
        soft_label_agreement(1e-241 * logits, votes),
        soft_label_agreement(logits, votes * np.arange(1, 41)[:, None]),
        soft_label_agreement(logits[:, order], votes[:, order]),
        soft_label_agreement(torch.tensor(logits).float(), torch.tensor(votes)),
    ):
        assert other.pa == pytest.approx(first.pa, abs=1e-6)


def test_a_crowd_is_agreed_with_at_least_as_well_as_its_members():
    logits, votes = drawn(4)
    place = np.repeat(np.arange(votes.size), votes.ravel())
    persons = soft_label_agreement(logits[place // 5], np.eye(5)[place % 5])
    crowd = soft_label_agreement(logits, votes)
    assert persons.pa < crowd.pa
    entropy = -np.where(votes, votes * np.log(np.maximum(votes, 1) / 20), 0).sum() / 20
    assert persons.pa <= math.log(5) - entropy / len(votes)


@pytest.mark.parametrize(
    ("votes", "message"),
    [
        (np.ones((40, 4)), r"soft_labels: expected shape \(40, 5\) as logits"),
        (-np.ones((40, 5)), "soft_labels: expected finite numbers of at least 0"),
        (np.full((40, 5), np.nan), "soft_labels: expected finite numbers"),
        (np.eye(40, 5), "soft_labels: expected a positive sum, got 0 in row 5"),
    ],
)
def test_bad_votes_and_impossible_tolerances_are_refused(votes, message):
    with pytest.raises(ValueError, match=message):
        soft_label_agreement(drawn(5)[0], votes)
    with pytest.raises(CertificateError, match="Set tol above"):
        soft_label_agreement(*drawn(6), tol=1e-18)
