"""Agreement at given inverse temperatures: its corners by their definitions."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import softmax

from robustbook.agreement import (
    agreement_curve,
    log_probabilities,
    posterior_agreement,
    posterior_overlap,
)

INF = math.inf


@pytest.fixture
def pair():
    random = np.random.default_rng(0)
    clean = 2 * random.normal(size=(300, 7))
    return clean, clean + 2 * random.normal(size=clean.shape)


def by_loops(clean, shifted, beta, shifted_beta):
    """The definition, class by class, in plain Python."""

    def posterior(row, b):
        if math.isinf(b):
            best = [float(z == max(row)) for z in row]
            return [z / sum(best) for z in best]
        weights = [math.exp(b * (z - max(row))) for z in row]
        return [w / sum(weights) for w in weights]

    return [
        math.fsum(
            p * q
            for p, q in zip(posterior(a, beta), posterior(b, shifted_beta), strict=True)
        )
        for a, b in zip(clean.tolist(), shifted.tolist(), strict=True)
    ]


betas = st.sampled_from([0.0, 0.3, 1.0, 5.0, INF])


@given(st.integers(0, 2**31), betas, betas)
def test_the_overlap_by_its_definition(seed, beta, shifted_beta):
    random = np.random.default_rng(seed)
    # Few values, so that ties are common.
    clean, shifted = random.integers(-2, 3, (2, 6, 4)).astype(float)
    overlap = posterior_overlap(clean, shifted, beta=beta, shifted_beta=shifted_beta)
    expected = by_loops(clean, shifted, beta, shifted_beta)
    assert overlap.tolist() == pytest.approx(expected, rel=1e-12, abs=1e-15)


def test_the_largest_mean_logarithm_is_posterior_agreement(pair):
    best = posterior_agreement(*pair)
    log = posterior_overlap(*pair, beta=best.beta, log=True)
    assert float(log.mean()) + math.log(7) == pytest.approx(best.pa, abs=1e-12)
    points = [0.0, 0.4, 2.0]
    curve = agreement_curve(*pair, points)
    for beta, value in zip(points, curve.tolist(), strict=True):
        log = posterior_overlap(*pair, beta=beta, log=True)
        assert float(log.mean()) + math.log(7) == pytest.approx(value, abs=1e-12)


def test_logarithms_survive_where_the_overlap_underflows():
    clean, shifted = (
        torch.tensor([[2000.0, 0.0, 0.0]]),
        torch.tensor([[0.0, 2000.0, 0]]),
    )
    log = float(posterior_overlap(clean, shifted, beta=1, log=True)[0])
    assert log == pytest.approx(-2000 + math.log(2), rel=1e-12)
    none = posterior_overlap(clean, shifted, beta=INF, log=True)
    assert none.tolist() == [-INF]


def test_blocks_do_not_change_it(pair, monkeypatch):
    whole = posterior_overlap(*pair, beta=0.5)
    monkeypatch.setattr("robustbook.agreement._temperatures._BLOCK_ENTRIES", 50)
    assert torch.equal(posterior_overlap(*pair, beta=0.5), whole)


def test_probabilities_give_the_same_overlap_as_logits(pair):
    p, q = (softmax(side, axis=1) for side in pair)
    given = posterior_overlap(p, q, beta=0.7, probabilities=True)
    torch.testing.assert_close(given, posterior_overlap(*pair, beta=0.7))


def test_a_zero_is_counted_and_floored():
    with pytest.warns(UserWarning, match="1 of 4 probabilities are 0 .* 1e-12"):
        log = log_probabilities([[1.0, 0.0], [0.5, 0.5]])
    assert log[0].tolist() == pytest.approx([0, math.log(1e-12)])


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([[2.0, -1.0]], "expected probabilities, got -1; are they logits"),
        ([[0.5, 0.4]], "sum to 1, got a sum of 0.9 in row 0"),
        ([[math.nan, 1.0]], "finite"),
    ],
)
def test_arrays_that_are_not_probabilities_are_refused(values, message):
    with pytest.raises(ValueError, match=message):
        log_probabilities(values)


@pytest.mark.parametrize("beta", [-1.0, math.nan])
def test_a_temperature_is_not_negative(pair, beta):
    with pytest.raises(ValueError, match="beta: expected"):
        posterior_overlap(*pair, beta=beta)
    with pytest.raises(ValueError, match="shifted_beta: expected"):
        posterior_overlap(*pair, beta=1.0, shifted_beta=beta)
