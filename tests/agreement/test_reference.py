"""Two views and more against 50 digits, closed forms and brute force."""

import math

import mpmath
import pytest
import torch
from random_views import exact_kernel, noisy, one_hot_views, over_all_hypotheses, rows

from robustbook.agreement import (
    agreement_curve,
    gibbs_posterior,
    posterior_agreement,
    symmetric_channel_capacity,
)


@pytest.mark.parametrize("prior", [None, ["0.5", "0.25", "0.125", "0.125"]])
@pytest.mark.parametrize(
    ("views", "seed"), [*((2, seed) for seed in range(6)), (3, 0), (4, 0), (6, 0)]
)
def test_fifty_digits(views, seed, prior):
    generator = torch.Generator().manual_seed(seed)
    scale = 10.0 ** torch.randint(-3, 4, (8, 1), generator=generator).double()
    problem = [scale * view for view in noisy(seed, views, 8, 4)]
    exact_prior = prior and [mpmath.mpf(rate) for rate in prior]
    prior = prior and [float(rate) for rate in prior]
    result = posterior_agreement(*problem, prior=prior)
    if math.isfinite(result.beta):
        exact = exact_kernel(problem, result.beta, exact_prior)
        assert abs(exact - result.pa) < 1e-12
    # Literally certified: no point of a fine grid lies above the bound.
    for exponent in range(-60, 61):
        beta = mpmath.mpf(10) ** (mpmath.mpf(exponent) / 12)
        assert exact_kernel(problem, beta, exact_prior) <= result.upper_bound


@pytest.mark.parametrize(
    "views",
    [
        # Margins of 4000 at beta = 1: both posteriors are point masses in double.
        (rows([4000.0, 0, -1], [0, 1, 0.5]), rows([0, 4000.0, -1], [0, 1, 0.5])),
        (rows([4000.0, 0, -1]), rows([0.0, 4000, -1]), rows([0.0, 1, 3000])),
    ],
)
def test_fifty_digits_where_products_underflow(views):
    betas = [0.01, 0.1, 0.3, 1.0, 10.0]
    ours = agreement_curve(*views, betas)
    for value, beta in zip(ours.tolist(), betas, strict=True):
        assert value == pytest.approx(float(exact_kernel(views, beta)), rel=1e-13)


@pytest.mark.parametrize(
    ("views", "samples", "classes"),
    [(2, 1, 2), (2, 3, 3), (2, 4, 3), (2, 6, 2), (3, 2, 2), (3, 3, 3), (3, 5, 2)],
)
def test_brute_force_over_all_hypotheses(views, samples, classes):
    problem = noisy(samples, views, samples, classes)
    for beta in (0.0, 0.7, 3.0):
        ours = float(agreement_curve(*problem, [beta]))
        assert ours == pytest.approx(over_all_hypotheses(problem, beta), abs=1e-12)


@pytest.mark.parametrize("classes", [2, 3, 10, 1000])
@pytest.mark.parametrize("mismatches", [0, 1, 13, 40, 63, 95, 100])
@pytest.mark.parametrize("height", [1e-3, 1.0, 40.0])
def test_hard_decisions_are_a_channel_capacity(classes, mismatches, height):
    labels = torch.arange(100) % classes
    other = labels.clone()
    other[:mismatches] = (labels[:mismatches] + 1) % classes
    result = posterior_agreement(*one_hot_views([labels, other], classes, height))
    capacity = symmetric_channel_capacity(mismatches / 100, classes)
    assert result.pa == pytest.approx(capacity, abs=1e-9)
    assert result.hard_part == pytest.approx(capacity, abs=1e-15)
    assert result.confidence_part == pytest.approx(0.0, abs=1e-9)
    if classes == 2 and 0 < mismatches < 50:
        # The odds of "both states equal" are those of an agreement.
        odds = (100 - mismatches) / mismatches
        assert math.cosh(result.beta * height) == pytest.approx(odds, rel=1e-4)


@pytest.mark.parametrize("classes", [2, 3, 10, 1000, 10**12])
@pytest.mark.parametrize("mismatch", [0.0, 1e-9, 0.1, 0.45, 0.49999999])
def test_capacity_against_fifty_digits(classes, mismatch):
    with mpmath.workdps(50):
        m = mpmath.mpf(mismatch)
        entropy = mpmath.mpf(0)
        for p in (m, 1 - m):
            entropy -= p * mpmath.log(p) if p > 0 else 0
        exact = mpmath.log(classes) - entropy - m * mpmath.log(classes - 1)
    ours = symmetric_channel_capacity(mismatch, classes)
    # Near the limit (K - 1) / K the rates themselves round.
    assert ours == pytest.approx(float(exact), rel=1e-9, abs=2e-16)


def test_gibbs_posterior_values():
    logits = torch.tensor([[0.0, 1.0, 1.0], [3.0, -1e30, 1e30]], dtype=torch.float64)
    cold = gibbs_posterior(logits, math.inf)
    assert cold.tolist() == [[0.0, 0.5, 0.5], [0.0, 0.0, 1.0]]
    hot = gibbs_posterior(logits, 0.0)
    assert torch.allclose(hot, torch.full_like(hot, 1 / 3))
    warm = gibbs_posterior(logits[:1], 2.0)
    assert torch.allclose(warm, (2 * logits[:1]).softmax(1))
