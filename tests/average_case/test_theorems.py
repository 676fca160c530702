"""Theorems of Part IV, checked on computed values."""

import itertools
import math

import numpy as np
import pytest
import torch
from scipy.stats import norm

from robustbook.average_case import linear_exact
from robustbook.average_case._sampling import _coefficients

from .conftest import linear


@pytest.fixture
def problem():
    """A linear classifier with four classes, and inputs."""
    model = linear(4)
    return model.weights, model.bias, model.x


def test_the_probability_cannot_change_fast(problem):
    """thm-average-smoothing: no faster change under a shift than for a half-space."""
    weights, bias, x = problem
    generator = torch.Generator().manual_seed(0)
    shift = torch.randn(x.shape[1], generator=generator, dtype=torch.float64)
    exact = linear_exact(weights, bias, x, 0.7)
    for length in (0.1, 0.5, 2.0):
        y = x + length * shift / shift.norm()
        moved = linear_exact(weights, bias, y, 0.7, labels=exact.labels)
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


JOINT = {(1, 1): 0.65, (0, 1): 0.20, (1, 0): 0.03, (0, 0): 0.12}
P, Q = 0.68, 0.85
COV = JOINT[1, 1] - P * Q
BEST = COV / (Q * (1 - Q))


def test_variance_of_cross_fitting():
    """thm-unbiased-unbiased, part 4: all outcomes of four noisy inputs, two a fold."""
    outcomes = np.array([*itertools.product(JOINT, repeat=4)]).reshape(-1, 2, 2, 2)
    chance = np.prod([*itertools.product(JOINT.values(), repeat=4)], axis=1)
    model, linear = np.moveaxis(outcomes, -1, 0)
    counts = torch.tensor(np.stack([model, linear, model * linear], -1).sum(2))[None]
    sizes = torch.tensor([2.0, 2.0], dtype=torch.float64)
    coefficient = _coefficients(counts, sizes)[0].numpy()
    values = (model.mean(2) - coefficient * (linear.mean(2) - Q)).mean(1)
    assert chance @ values == pytest.approx(P, abs=1e-12)
    rho2 = COV**2 / (P * (1 - P) * Q * (1 - Q))
    off = chance @ (coefficient[:, 0] - BEST) ** 2
    bound = ((1 - rho2) * P * (1 - P) + 2 * off * Q * (1 - Q)) / 4
    assert chance @ (values - P) ** 2 <= bound
