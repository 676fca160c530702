"""What the chapters on the kernel prove, on random problems."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext

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


UNIT = Decimal(2) ** -53


def largest_error(function, exact, arguments):
    """Of a function of torch, in units of its relative rounding."""
    values = function(arguments).tolist()
    pairs = zip(values, arguments.tolist(), strict=True)
    errors = [(Decimal(v), exact(Decimal(x))) for v, x in pairs]
    return max(abs((v - e) / (e * UNIT)) for v, e in errors if e)


def test_exponential_and_logarithm_are_as_accurate_as_is_assumed():
    generator = torch.Generator().manual_seed(0)
    uniform = torch.rand(3, 1000, generator=generator, dtype=torch.float64)
    positive = torch.cat(
        # Of all sizes; of those in the kernel, 1 to K^2; and close to 1.
        [
            (600 * uniform[0] - 300).exp(),
            (14 * uniform[1]).exp(),
            1 + 10 ** (-15 * uniform[2]),
        ]
    )
    with localcontext() as context:
        context.prec = 40
        assert largest_error(torch.exp, Decimal.exp, -700 * uniform[0]) <= 4
        assert largest_error(torch.log, Decimal.ln, positive) <= 4


def exact_parts(first, second, beta):
    """C_i and D_i of one sample from its logits, in forty digits."""
    x, y = ([Decimal(v) for v in side.tolist()] for side in (first, second))
    x, y = ([v - max(side) for v in side] for side in (x, y))
    joint = sum(((a + b) * beta).exp() for a, b in zip(x, y, strict=True))
    alone = [sum((v * beta).exp() for v in side) for side in (x, y)]
    return (len(x) * joint).ln(), alone[0].ln() + alone[1].ln()


@pytest.mark.parametrize(("classes", "scale"), [(2, 1.0), (5, 3.0), (20, 30.0)])
@pytest.mark.parametrize("beta", [0.01, 0.7, 9.3])
def test_rounding_of_the_kernel_stays_below_the_bound(classes, scale, beta):
    generator = torch.Generator().manual_seed(classes)
    clean, shifted = scale * torch.randn(2, 30, classes, generator=generator).double()
    with localcontext() as context:
        context.prec = 40
        parts = [
            exact_parts(f, g, Decimal(beta))
            for f, g in zip(clean, shifted, strict=True)
        ]
        exact = sum(c - d for c, d in parts) / 30
        size = sum(abs(c) + d for c, d in parts) / 30
        bound = 3 * classes + 21 + 22 * Decimal(classes).ln() + (30 + 7) * size
        ours = Decimal(float(agreement_curve(clean, shifted, [beta])[0]))
        assert abs(ours - exact) <= bound * UNIT
