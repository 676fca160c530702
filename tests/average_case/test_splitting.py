"""Adaptive multilevel splitting against half-spaces, whose failures are exact."""

import pytest
import torch
from scipy.stats import norm

from robustbook.average_case import splitting

SIGMA = 0.5


def half_space(failure, size):
    """A model whose class 0 fails with this probability, for inputs of zeros."""
    slope = torch.linspace(-1, 2, size, dtype=torch.float64)
    offset = norm.ppf(failure) * SIGMA * float(slope.norm())

    def model(x):
        return torch.stack([torch.zeros(len(x), dtype=x.dtype), x @ slope + offset], 1)

    return model


@pytest.mark.parametrize("failure", [0.3, 1e-12])
def test_half_spaces(failure):
    x = torch.zeros(8, 6, dtype=torch.float64)
    result = splitting(half_space(failure, 6), x, SIGMA, moves=5)
    ratio = result.failure / failure
    # Its mean over inputs with noise of their own has a known error, if unbiased.
    error = (result.standard_error / failure).square().mean().sqrt() / len(x) ** 0.5
    assert abs(float(ratio.mean()) - 1) < 4 * float(error)
    assert float(error) < 0.1


def test_noise_belongs_to_the_seed():
    x = torch.zeros(1, 6, dtype=torch.float64)
    once, again, other = (
        splitting(half_space(1e-3, 6), x, SIGMA, repeats=3, seed=s).failure
        for s in (0, 0, 1)
    )
    assert torch.equal(once, again)
    assert not torch.equal(once, other)


def test_several_sigmas_and_failures_that_never_come():
    x = torch.zeros(2, 6, dtype=torch.float64)
    result = splitting(half_space(1e-3, 6), x, [1e-3, SIGMA], repeats=3, moves=2)
    assert result.failure.shape == (2, 2)
    assert (result.failure[0] == 0).all()  # 1500 standard deviations away
    assert (result.failure[1] > 0).all()
    assert (result.calls > 0).all()


def test_too_few_particles():
    with pytest.raises(ValueError, match="particles"):
        splitting(half_space(0.1, 6), torch.zeros(1, 6), SIGMA, particles=5)
