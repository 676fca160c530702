"""Values against arithmetic of 50 digits, closed forms and brute force."""

import itertools
import math

import mpmath
import pytest
import torch

from robustbook.agreement import (
    agreement_curve,
    gibbs_posterior,
    posterior_agreement,
    symmetric_channel_capacity,
)


def reference_kernel(clean, shifted, beta, prior=None):
    """J(beta) by its definition with 50 digits."""
    with mpmath.workdps(50):
        beta = mpmath.mpf(beta)
        total = mpmath.mpf(0)
        for f, g in zip(clean.tolist(), shifted.tolist(), strict=True):
            weights = [mpmath.e ** (beta * mpmath.mpf(value)) for value in f]
            others = [mpmath.e ** (beta * mpmath.mpf(value)) for value in g]
            overlap = mpmath.mpf(0)
            for j, (u, v) in enumerate(zip(weights, others, strict=True)):
                share = mpmath.mpf(len(f)) if prior is None else 1 / prior[j]
                overlap += u * v * share
            total += mpmath.log(overlap / mpmath.fsum(weights) / mpmath.fsum(others))
        return total / len(clean)


@pytest.mark.parametrize("seed", range(6))
def test_fifty_digits(seed):
    generator = torch.Generator().manual_seed(seed)
    scale = 10.0 ** torch.randint(-3, 4, (8, 1), generator=generator).double()
    clean = torch.randn(8, 4, generator=generator).double() * scale
    shifted = clean + torch.randn(8, 4, generator=generator).double() * scale
    result = posterior_agreement(clean, shifted)
    if math.isfinite(result.beta):
        exact = reference_kernel(clean, shifted, result.beta)
        assert abs(exact - result.pa) < 1e-12
    # Literally certified: no point of a fine grid lies above the bound.
    for exponent in range(-60, 61):
        beta = mpmath.mpf(10) ** (mpmath.mpf(exponent) / 12)
        assert reference_kernel(clean, shifted, beta) <= result.upper_bound


def test_fifty_digits_where_products_underflow():
    # Margins of 4000 at beta = 1: both posteriors are point masses in double.
    clean = torch.tensor([[4000.0, 0.0, -1.0], [0.0, 1.0, 0.5]], dtype=torch.float64)
    shifted = torch.tensor([[0.0, 4000.0, -1.0], [0.0, 1.0, 0.5]], dtype=torch.float64)
    betas = [0.1, 0.3, 1.0, 10.0]
    ours = agreement_curve(clean, shifted, betas)
    for value, beta in zip(ours.tolist(), betas, strict=True):
        exact = float(reference_kernel(clean, shifted, beta))
        assert value == pytest.approx(exact, rel=1e-13)


def test_fifty_digits_with_a_prior():
    generator = torch.Generator().manual_seed(0)
    clean = torch.randn(10, 3, generator=generator).double()
    shifted = clean + torch.randn(10, 3, generator=generator).double()
    prior = [mpmath.mpf("0.5"), mpmath.mpf("0.25"), mpmath.mpf("0.25")]
    result = posterior_agreement(clean, shifted, prior=[0.5, 0.25, 0.25])
    exact = reference_kernel(clean, shifted, result.beta, prior)
    assert abs(exact - result.pa) < 1e-12


@pytest.mark.parametrize(("samples", "classes"), [(1, 2), (3, 3), (4, 3), (6, 2)])
def test_brute_force_over_all_hypotheses(samples, classes):
    """(1/N) log sum over K^N hypotheses of p(c|X') p(c|X'') / p(c)."""
    generator = torch.Generator().manual_seed(samples)
    clean = torch.randn(samples, classes, generator=generator).double()
    shifted = clean + torch.randn(samples, classes, generator=generator).double()
    for beta in (0.0, 0.7, 3.0):
        weights = []
        for scores in (clean, shifted):
            hypotheses = itertools.product(range(classes), repeat=samples)
            total = [
                beta * sum(float(scores[i, c]) for i, c in enumerate(hypothesis))
                for hypothesis in hypotheses
            ]
            unnormalized = torch.tensor(total, dtype=torch.float64).exp()
            weights.append(unnormalized / unnormalized.sum())
        kernel = (weights[0] * weights[1] * classes**samples).sum().log() / samples
        ours = agreement_curve(clean, shifted, [beta])[0]
        assert float(ours) == pytest.approx(float(kernel), abs=1e-12)


@pytest.mark.parametrize("classes", [2, 3, 10, 1000])
@pytest.mark.parametrize("mismatches", [0, 1, 13, 40, 63, 95, 100])
@pytest.mark.parametrize("height", [1e-3, 1.0, 40.0])
def test_hard_decisions_are_a_channel_capacity(classes, mismatches, height):
    labels = torch.arange(100) % classes
    other = labels.clone()
    other[:mismatches] = (labels[:mismatches] + 1) % classes
    one_hot = torch.nn.functional.one_hot
    result = posterior_agreement(
        height * one_hot(labels, classes).double(),
        height * one_hot(other, classes).double(),
    )
    capacity = symmetric_channel_capacity(mismatches / 100, classes)
    assert result.pa == pytest.approx(capacity, abs=1e-9)
    assert result.hard_part == pytest.approx(capacity, abs=1e-15)
    assert result.confidence_part == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize("classes", [2, 3, 10, 1000])
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


def test_two_binary_pairs_in_closed_form():
    # One agreeing pair of margin m', m'' and nothing else: sup = log 2.
    # With equal margins m and a share a of disagreeing pairs, the overlap is that
    # of the binary symmetric channel: its capacity.
    clean = torch.tensor([[1.0, 0.0]] * 10, dtype=torch.float64)
    shifted = clean.clone()
    shifted[:3] = shifted[:3].flip(1)
    result = posterior_agreement(clean, shifted)
    rate = 0.3
    entropy = -rate * math.log(rate) - (1 - rate) * math.log(1 - rate)
    assert result.pa == pytest.approx(math.log(2) - entropy, abs=1e-10)
    # Stationarity: the odds of "both states equal" are (1 - a) / a, that is
    # cosh(beta) = (1 - a) / a for unit margins.
    assert math.cosh(result.beta) == pytest.approx((1 - rate) / rate, rel=1e-4)


def test_gibbs_posterior_values():
    logits = torch.tensor([[0.0, 1.0, 1.0], [3.0, -1e30, 1e30]], dtype=torch.float64)
    cold = gibbs_posterior(logits, math.inf)
    assert cold.tolist() == [[0.0, 0.5, 0.5], [0.0, 0.0, 1.0]]
    hot = gibbs_posterior(logits, 0.0)
    assert torch.allclose(hot, torch.full_like(hot, 1 / 3))
    warm = gibbs_posterior(logits[:1], 2.0)
    assert torch.allclose(warm, (2 * logits[:1]).softmax(1))
