"""Statements that the chapters on the kernel prove, on random problems."""

import math
from decimal import Decimal, localcontext

import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar
from scipy.special import rel_entr
from scipy.stats import binom, chi2

from robustbook.agreement import (
    agreement_curve,
    posterior_agreement,
    symmetric_channel_capacity,
)
from robustbook.agreement.solver import Kernel


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
    lemma = variance(joint, clean + shifted) - variance(p, clean) - variance(q, shifted)
    point = Kernel(clean, shifted).evaluate(beta)
    assert point.curvature == pytest.approx(float(lemma.mean()), abs=1e-11)
    rise = ((joint - p) * clean + (joint - q) * shifted).sum(1).mean()
    assert point.slope == pytest.approx(float(rise), abs=1e-12)


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
    near[0, 3, :2] = 1.0  # A tie excuses all but log 2.
    tied = posterior_agreement(*near)
    assert tied.mismatch == 0.25
    assert tied.pa == pytest.approx(bound, abs=2e-9)


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


def divergence(x, q):
    """Binary relative entropy in nats."""
    return rel_entr(x, q) + rel_entr(1 - x, 1 - q)


def test_the_confidence_part_is_knowledge_minus_miscalibration():
    rng = np.random.default_rng(0)
    # Every binary model: margins u and v, of unequal sizes on the two sides.
    u, v = rng.choice([0.5, 1.0, 2.5], (2, 600)) * rng.choice([-1, 1], (2, 600))
    v = np.where(rng.random(600) < 0.55, np.abs(v) * np.sign(u), v)
    result = posterior_agreement(*(np.stack([0 * w, w], 1) for w in (u, v)))
    agree = np.sign(u) == np.sign(v)
    kinds = np.abs(np.stack([u, v], 1))
    sizes, kind = np.unique(kinds, axis=0, return_inverse=True)
    weight = np.bincount(kind.ravel()) / 600
    rate = np.bincount(kind.ravel(), agree) / np.bincount(kind.ravel())

    def miss(beta):
        forecast = (1 + np.tanh(beta * sizes / 2).prod(1)) / 2
        return (weight * divergence(rate, forecast)).sum()

    options = {"xatol": 1e-10}
    r = minimize_scalar(miss, bounds=(0, 8), options=options).fun
    knowledge = (weight * divergence(rate, agree.mean())).sum()
    assert result.mismatch < 0.5
    assert result.confidence_part == pytest.approx(knowledge - r, abs=1e-7)


@pytest.mark.parametrize("classes", [2, 10])
def test_pure_chance_scores_half_a_chi_square(classes):
    total = 1000
    agree = np.arange(total + 1)
    scores = [symmetric_channel_capacity(1 - a / total, classes) for a in agree]
    value = 2 * total * np.array(scores)
    weight = binom.pmf(agree, total, 1 / classes)
    assert (weight * value).sum() / 2 == pytest.approx(0.25, abs=0.02)
    for x in (0.5, 1.0, 2.7, 6.0):
        exceeds = weight[value > x].sum()
        assert exceeds == pytest.approx(chi2.sf(x, 1) / 2, abs=0.03)
