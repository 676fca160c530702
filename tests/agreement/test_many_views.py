"""Three views and more, and how far pairs of views determine their agreement."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from random_views import noisy, one_hot_views, problems, rows
from scipy.optimize import minimize_scalar

from robustbook.agreement import (
    agreement_curve,
    posterior_agreement,
    symmetric_channel_capacity,
)
from robustbook.agreement.solver import agreement_search

TOL = 1e-9
SETTINGS = settings(max_examples=40, deadline=None, derandomize=True)


@SETTINGS
@given(problems(st.integers(3, 5)))
def test_two_of_the_views_alone_are_the_measure_of_pairs(views):
    # A view that says nothing adds nothing.
    nothing = torch.zeros_like(views[0])
    pair = posterior_agreement(*views[:2]).pa
    third = posterior_agreement(*views[:2], nothing).pa
    assert third == pytest.approx(pair, abs=2 * TOL)


@SETTINGS
@given(problems(st.integers(3, 5)))
def test_the_deficit_never_falls_when_a_view_is_added(views):
    """(m - 1) log K - PA: at least that of any views among them."""
    log_k = math.log(views[0].shape[1])
    deficit = {
        subset: (size - 1) * log_k - posterior_agreement(*(views[v] for v in subset)).pa
        for size in range(2, len(views) + 1)
        for subset in itertools.combinations(range(len(views)), size)
    }
    for subset, other in itertools.product(deficit, deficit):
        if set(subset) < set(other):
            assert deficit[subset] <= deficit[other] + 2 * TOL
    # And, over all pairs, at least their sum over m - 1.
    for subset, own in deficit.items():
        pairs = sum(deficit[pair] for pair in itertools.combinations(subset, 2))
        assert own >= pairs / (len(subset) - 1) - 10 * TOL


@SETTINGS
@given(problems(st.integers(3, 5)), st.floats(0.01, 5))
def test_the_chain_rule(views, beta):
    """Views one by one, each against the sum of the logits before it."""
    whole = float(agreement_curve(*views, [beta]))
    sums = list(itertools.accumulate(views))
    links = list(zip(sums, views[1:], strict=False))
    chain = math.fsum(float(agreement_curve(*link, [beta])) for link in links)
    assert whole == pytest.approx(chain, rel=1e-9, abs=1e-9)
    pa = math.fsum(posterior_agreement(*link).pa for link in links)
    assert posterior_agreement(*views).pa <= pa + 10 * TOL


def test_at_zero_the_curvature_is_the_sum_over_pairs():
    views = noisy(1, 4, classes=4)
    trace = agreement_search(*views)
    centered = [view - view.mean(1, keepdim=True) for view in views]
    covariances = [
        float((one * other).mean())
        for one, other in itertools.combinations(centered, 2)
    ]
    step = 1e-3
    numeric = 2 * float(agreement_curve(*views, [step])) / step**2
    assert numeric == pytest.approx(2 * sum(covariances), rel=1e-2)
    assert trace.value > 0


#: Sums of two of these over four classes are independent; all three are not.
CHARACTERS = rows([1.0, 1, 0, 0]), rows([1.0, 0, 1, 0]), rows([1.0, 0, 0, 1])


def test_three_views_may_agree_although_no_two_of_them_do():
    for pair in itertools.combinations(CHARACTERS, 2):
        # tol: the kernel is flat, J = 0 everywhere.
        assert posterior_agreement(*pair, tol=1e-7).pa == pytest.approx(0.0, abs=1e-7)
    result = posterior_agreement(*CHARACTERS)
    assert result.pa == pytest.approx(math.log(2), abs=1e-12)
    # The bound by the pairs is attained: 0 / 2 + log(4) / 2.
    assert result.pa == pytest.approx(0.5 * math.log(4), abs=1e-12)
    tanh = [math.tanh(beta / 2) for beta in (0.5, 1.0, 4.0)]
    ours = agreement_curve(*CHARACTERS, [0.5, 1.0, 4.0])
    closed = [math.log1p(t**3) for t in tanh]
    np.testing.assert_allclose(ours, closed, atol=1e-14)


def test_all_pairs_of_views_may_agree_almost_fully_and_the_three_not_at_all():
    # One sample of large logits whose sets of best classes meet in pairs only.
    odd = rows([1.0, 1, 0]), rows([1.0, 0, 1]), rows([0.0, 1, 1])
    same = rows(*[[1e-3, 0, 0]] * 99)
    views = [torch.cat([view, same]) for view in odd]
    for pair in itertools.combinations(views, 2):
        pa = 0.99 * math.log(3) + 0.01 * math.log(3 / 4)
        assert posterior_agreement(*pair).pa == pytest.approx(pa, abs=1e-9)
    assert posterior_agreement(*views).pa == 0.0


@pytest.mark.parametrize("count", [2, 3])
def test_two_classes_are_decided_by_their_pairs(count):
    views = noisy(2, count, classes=2)
    for beta in (0.3, 1.0, 3.0):
        t = [torch.tanh(beta * (view[:, 0] - view[:, 1]) / 2) for view in views]
        pairs = sum(a * b for a, b in itertools.combinations(t, 2))
        ours = agreement_curve(*views, [beta])
        assert float(ours) == pytest.approx(float(pairs.log1p().mean()), abs=1e-6)


@pytest.mark.parametrize(
    ("views", "classes"), [(3, 2), (3, 3), (3, 10), (4, 3), (5, 4)]
)
@pytest.mark.parametrize("noise", [0.1, 0.4, 0.9])
def test_hard_decisions_are_noisy_readers_of_one_hidden_class(views, classes, noise):
    """The best rate of m symmetric readers, by likelihood, is the best beta."""
    generator = torch.Generator().manual_seed(views + classes)
    truth = torch.randint(classes, (300,), generator=generator)
    guesses = torch.randint(classes, (views, 300), generator=generator)
    blind = torch.rand(views, 300, generator=generator) < noise
    votes = torch.where(blind, guesses, truth)
    result = posterior_agreement(*one_hot_views(votes, classes, 3.0))
    counts = torch.nn.functional.one_hot(votes.T, classes).sum(1).double()

    def loss(right):
        wrong = (1 - right) / (classes - 1)
        density = right**counts * wrong ** (views - counts)
        return -float((density.sum(1) * classes ** (views - 1)).log().mean())

    best = minimize_scalar(
        loss, bounds=(1 / classes, 1 - 1e-9), method="bounded", options={"xatol": 1e-12}
    )
    assert result.pa == pytest.approx(max(0.0, -best.fun), abs=1e-7)
    assert result.hard_part == pytest.approx(result.pa, abs=2 * TOL)
    # No readers fit better than the votes themselves: the entropy of their patterns.
    relative = (votes - votes[0]) % classes
    _, frequency = relative.T.unique(dim=0, return_counts=True)
    shares = frequency.double() / 300
    entropy = -float((shares * shares.log()).sum())
    assert result.hard_part <= (views - 1) * math.log(classes) - entropy + TOL


@pytest.mark.parametrize("odd", [0, 10, 30, 60, 80])
def test_three_hard_views_of_two_classes_are_a_channel_of_four_letters(odd):
    votes = torch.zeros(3, 100, dtype=torch.int64)
    votes[2, :odd] = 1
    result = posterior_agreement(*one_hot_views(votes, 2))
    assert result.mismatch == odd / 100
    assert result.pa == pytest.approx(symmetric_channel_capacity(odd / 100, 4), abs=TOL)


def test_the_mismatch_counts_first_argmaxes_of_ties():
    views = rows([1.0, 1], [0, 0]), rows([1.0, 0], [0, 1]), rows([1.0, 1], [1, 1])
    assert posterior_agreement(*views).mismatch == 0.5


def test_bad_views_are_named():
    views = noisy(6, 3)
    with pytest.raises(ValueError, match=r"views\[2\]: expected the shape of logits"):
        posterior_agreement(*views[:2], views[2][:-1])
    views[2][3, 1] = math.nan
    with pytest.raises(ValueError, match=r"views\[2\]: expected finite .* \(3, 1\)"):
        posterior_agreement(*views)
    with pytest.raises(ValueError, match="views: expected at most 101"):
        posterior_agreement(*[torch.eye(10)] * 102)
    with pytest.raises(TypeError, match="views: expected two or more arrays, got 1"):
        agreement_curve(torch.eye(3), [0.0, 1.0])
