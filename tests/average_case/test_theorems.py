"""Theorems of Part IV, checked on computed values."""

import math

import pytest
import torch
from scipy.stats import norm

from robustbook.average_case import linear_exact

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
