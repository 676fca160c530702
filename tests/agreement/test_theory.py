"""What the chapters on the kernel prove, on random problems."""

from __future__ import annotations

import math

import pytest
import torch

from robustbook.agreement import agreement_curve, posterior_agreement


def kernel(clean, shifted, beta):
    """J by its definition, for automatic differentiation."""
    joint = torch.logsumexp(beta * (clean + shifted), 1)
    alone = torch.logsumexp(beta * clean, 1) + torch.logsumexp(beta * shifted, 1)
    return math.log(clean.shape[1]) + (joint - alone).mean()


def derivatives(clean, shifted, beta):
    """Slope and curvature of J by automatic differentiation."""
    at = torch.tensor(float(beta), dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(kernel(clean, shifted, at), at, create_graph=True)
    (curvature,) = torch.autograd.grad(slope, at)
    return float(slope.detach()), float(curvature)


def variance(weights, values):
    mean = (weights * values).sum(1, keepdim=True)
    return (weights * (values - mean) ** 2).sum(1)


@pytest.mark.parametrize("classes", [2, 3, 7])
@pytest.mark.parametrize("beta", [0.0, 0.6, 2.5])
def test_the_curvature_is_a_difference_of_variances(classes, beta):
    generator = torch.Generator().manual_seed(classes)
    clean, shifted = torch.randn(2, 20, classes, generator=generator).double()
    p, q = (beta * clean).softmax(1), (beta * shifted).softmax(1)
    joint = p * q / (p * q).sum(1, keepdim=True)
    lemma = variance(joint, clean + shifted)
    lemma = lemma - variance(p, clean) - variance(q, shifted)
    slope, curvature = derivatives(clean, shifted, beta)
    assert curvature == pytest.approx(float(lemma.mean()), abs=1e-11)
    if beta == 0:
        centered = clean - clean.mean(1, keepdim=True)
        assert slope == pytest.approx(0.0, abs=1e-12)
        covariance = (centered * shifted).mean(1)
        assert curvature == pytest.approx(2 * float(covariance.mean()), abs=1e-12)


def test_two_classes_in_closed_form():
    generator = torch.Generator().manual_seed(0)
    clean, shifted = 2 * torch.randn(2, 30, 2, generator=generator).double()
    for beta in (0.1, 1.0, 7.0):
        t = torch.tanh(beta * (clean[:, 0] - clean[:, 1]) / 2)
        u = torch.tanh(beta * (shifted[:, 0] - shifted[:, 1]) / 2)
        closed = torch.log1p(t * u).mean()
        ours = agreement_curve(clean, shifted, [beta])[0]
        # 1 + t u cancels where a pair disagrees for sure.
        assert float(ours) == pytest.approx(float(closed), abs=1e-6)


def test_the_constants_of_any_number_of_hills():
    r = 20.0
    assert 5 * math.tanh(0.5) / math.cosh(1.0) > 1
    far = 2 * sum(math.exp(-(r ** (n + 0.5))) for n in range(6))
    near = 0.5 * sum(r ** (0.5 - n) for n in range(1, 60))
    assert 5 * (far + near) < 0.8 < 0.9 < math.tanh(math.sqrt(20) / 2)


@pytest.mark.parametrize("classes", [2, 3, 10])
def test_a_disagreement_costs_log_2_and_no_more(classes):
    generator = torch.Generator().manual_seed(classes)
    clean = torch.randn(500, classes, generator=generator).double()
    shifted = clean + 0.5 * torch.randn(500, classes, generator=generator)
    result = posterior_agreement(clean, shifted)
    bound = math.log(classes) - result.mismatch * math.log(2)
    assert result.mismatch > 0
    assert result.pa <= bound
    # Attained in the limit: one pair in four, tied but for a hair.
    near = torch.zeros(2, 4, classes, dtype=torch.float64)
    near[:, :3, 0] = 1.0
    near[:, 3, :2] = 1.0 - 1e-9
    near[0, 3, 0] = near[1, 3, 1] = 1.0
    bound = math.log(classes) - 0.25 * math.log(2)
    assert bound - 1e-4 < posterior_agreement(*near).pa <= bound


@pytest.mark.parametrize(
    ("clean", "shifted", "limit"),
    [([1.0, 1, 0], [1.0, 0, 1], 3 / 4), ([1.0, 1, 0], [1.0, 1, 0], 3 / 2)],
)
def test_the_far_end_counts_the_tied_classes(clean, shifted, limit):
    far = agreement_curve([clean], [shifted], [200.0])
    assert float(far[0]) == pytest.approx(math.log(limit), abs=1e-9)
