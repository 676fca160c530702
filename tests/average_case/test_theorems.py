"""Theorems of Part IV on computed values: each could be false, and is not."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from scipy.special import ndtr
from scipy.stats import norm

from robustbook.average_case import linear_exact

from .conftest import linear


@pytest.fixture
def problem():
    """A linear classifier with four classes, and inputs."""
    model = linear(4)
    return model.weights, model.bias, model.x


def test_the_probability_cannot_change_fast(problem):
    """thm-average-smoothing: under a shift, no faster than for a half-space."""
    weights, bias, x = problem
    generator = torch.Generator().manual_seed(0)
    shift = torch.randn(x.shape[1], generator=generator, dtype=torch.float64)
    exact = linear_exact(weights, bias, x, 0.7)
    for length in (0.1, 0.5, 2.0):
        y = x + length * shift / shift.norm()
        moved = linear_exact(weights, bias, y, 0.7, label=exact.labels)
        lowest = norm.cdf(norm.ppf(exact.probability.numpy()) - length / 0.7)
        assert (moved.probability.numpy() >= lowest - 1e-3).all()


def test_errors_are_close_to_noisy_inputs(problem):
    """prop-average-isoperimetry, for the first input of a linear classifier."""
    weights, bias, x = problem[0], problem[1], problem[2][:1]
    exact = linear_exact(weights, bias, x, 0.7)
    t, radius = int(exact.labels[0]), 0.7 * abs(norm.ppf(float(exact.probability[0])))
    noise = torch.Generator().manual_seed(0)
    z = x + 0.7 * torch.randn(20_000, x.shape[1], generator=noise, dtype=torch.float64)
    logits, slopes = z @ weights.T + bias, weights[t] - weights
    gaps = (logits[:, [t]] - logits) / slopes.norm(dim=1)
    away = gaps[:, torch.arange(len(slopes)) != t].amin(1)
    assert float((away <= radius).double().mean()) > 0.5 - 4 * math.sqrt(0.25 / 20_000)


@pytest.mark.parametrize("value", [0.0, 0.3, 1.0])
def test_moments_of_clipped_noise(value):
    """eq-average-clipped."""
    a, b, s = -value / 0.4, (1 - value) / 0.4, 0.4
    inside, top = ndtr(b) - ndtr(a), ndtr(-b)
    fall = norm.pdf(a) - norm.pdf(b)
    mean = value * inside + s * fall + top
    square = (value**2 + s**2) * inside + 2 * value * s * fall + top
    square += s**2 * (a * norm.pdf(a) - b * norm.pdf(b))
    z = np.random.default_rng(1).standard_normal(400_000)
    drawn = np.clip(value + 0.4 * z, 0, 1)
    assert drawn.mean() == pytest.approx(mean, abs=3e-3)
    assert drawn.var() == pytest.approx(square - mean**2, abs=3e-3)


@pytest.mark.parametrize("shift", [0, 0.5, 2])
@pytest.mark.parametrize("powers", [(0.3, 0, 0), (0, 0.2, 0), (0.1, 0, 0.1)])
def test_strips_that_widen(shift, powers):
    """lem-linear-strip."""
    z = np.linspace(-9, 9, 180_001)
    density = norm.pdf(z) * (z[1] - z[0])
    half = sum(c * abs(z) ** k for k, c in enumerate(powers))
    inside = density[abs(shift + z) <= half].sum()
    assert inside <= 2 * (z * density * half)[z >= 0].sum() + 1e-3


def test_errors_of_order_sigma_on_the_boundary():
    """No power of sigma can be gained: the margin eta + 1.5 eta^2, on the boundary."""
    for sigma in (0.05, 0.1, 0.2):
        eta = np.linspace(-9, 9, 900_001) * sigma
        density = np.exp(-((eta / sigma) ** 2) / 2)
        share = density[eta + 1.5 * eta**2 > 0].sum() / density.sum()
        assert share == pytest.approx(0.5 + ndtr(-1 / 1.5 / sigma), abs=1e-4)


JOINT = {(1, 1): 0.65, (0, 1): 0.20, (1, 0): 0.03, (0, 0): 0.12}
P, Q = 0.68, 0.85
COV = JOINT[1, 1] - P * Q
BEST = COV / (Q * (1 - Q))


def _coefficient(outcome):
    a, b = np.array(outcome, dtype=float).T
    gap = b - b.mean()
    return ((a * gap).sum() + 1) / ((gap**2).sum() + 1)


def test_variances_of_the_control_variate():
    """thm-unbiased-unbiased, parts 1 to 3."""
    a, b = np.array(list(JOINT)).T
    chance = np.array(list(JOINT.values()))

    def spread(c):
        values = a - c * (b - Q)
        assert (chance * values).sum() == pytest.approx(P)
        return (chance * (values - P) ** 2).sum()

    rho2 = COV**2 / (P * (1 - P) * Q * (1 - Q))
    assert spread(1) == pytest.approx(JOINT[0, 1] + JOINT[1, 0] - (P - Q) ** 2)
    assert spread(BEST) == pytest.approx((1 - rho2) * P * (1 - P))
    assert spread(BEST) <= min(map(spread, np.linspace(-1, 2, 301))) + 1e-12


def test_variance_of_cross_fitting():
    """thm-unbiased-unbiased, part 4: exactly, for four noisy inputs."""
    mean = variance = off = 0.0
    for outcome in itertools.product(JOINT, repeat=4):
        chance = math.prod(JOINT[pair] for pair in outcome)
        a, b = np.array(outcome, dtype=float).T
        one = (a[:2] - _coefficient(outcome[2:]) * (b[:2] - Q)).mean()
        two = (a[2:] - _coefficient(outcome[:2]) * (b[2:] - Q)).mean()
        mean += chance * (one + two) / 2
        variance += chance * ((one + two) / 2 - P) ** 2
    for pair in itertools.product(JOINT, repeat=2):
        off += math.prod(JOINT[x] for x in pair) * (_coefficient(pair) - BEST) ** 2
    rho2 = COV**2 / (P * (1 - P) * Q * (1 - Q))
    assert mean == pytest.approx(P, abs=1e-12)
    assert variance <= ((1 - rho2) * P * (1 - P) + 2 * off * Q * (1 - Q)) / 4


def test_common_failures_bound_the_correlation():
    """cor-unbiased-gain, parts 2 and 3."""
    generator = np.random.default_rng(0)
    for both, only_a, only_b, none in generator.dirichlet([8, 1, 1, 2], size=300):
        p, q = both + only_a, both + only_b
        own, other, cov = p * (1 - p), q * (1 - q), both - p * q
        low = math.sqrt(none / (1 - p) * none / (1 - q))
        low -= math.sqrt((1 - p) * (1 - q) / (p * q))
        assert cov / math.sqrt(own * other) >= low - 1e-9
        gains = own >= only_a + only_b - (p - q) ** 2
        assert gains == (cov >= other / 2) or abs(cov - other / 2) < 1e-9


def test_logits_fix_no_order():
    """prop-robust-blind: its stripes in one dimension, for three orders."""
    spots = np.array([0.0, 0.7, 2.0])
    grid = np.linspace(-8, 10, 900_001)
    densities = norm.pdf(grid - spots[:, None])
    gram = np.exp(-((spots - spots[:, None]) ** 2) / 4) / math.sqrt(4 * math.pi)
    for wanted in ((1, 2, 3), (3, 2, 1), (2, 3, 1)):
        shift = 0.01 * (np.array(wanted) - 2)
        share = 0.5 + np.linalg.solve(gram, shift) @ densities
        assert share.min() > 0
        assert share.max() < 1
        chances = densities @ ((40 * grid) % 1 < share) * (grid[1] - grid[0])
        assert abs(chances - 0.5 - shift).max() < 2e-3
        assert (np.argsort(chances) == np.argsort(wanted)).all()
