"""Bad input is an error or a warning, never a number."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

from robustbook.average_case import (
    control_variate,
    linear_exact,
    mmse,
    monte_carlo,
    mv_sigmoid,
    orthant_probability,
    printed_bound,
    softmax_proxy,
    taylor,
)

X = torch.rand(4, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
ESTIMATES = pytest.mark.parametrize(
    "estimate", [monte_carlo, control_variate, taylor, mmse]
)


def identity(x: torch.Tensor) -> torch.Tensor:
    return x


@ESTIMATES
@pytest.mark.parametrize("sigma", [0, -1.0, float("nan"), float("inf"), [0.1, 0.0]])
def test_sigma_must_be_positive(estimate, sigma):
    with pytest.raises(ValueError, match="sigma: expected positive finite"):
        estimate(identity, X, sigma)


@ESTIMATES
def test_sigma_must_be_numbers(estimate):
    for sigma in (None, True, "0.1"):
        with pytest.raises(TypeError, match="sigma"):
            estimate(identity, X, sigma)
    for sigma in ([], [[0.1]]):
        with pytest.raises(ValueError, match="one number or a sequence"):
            estimate(identity, X, sigma)


@ESTIMATES
def test_inputs(estimate):
    with pytest.raises(TypeError, match="x: expected float32"):
        estimate(identity, X.long(), 0.1)
    with pytest.raises(ValueError, match=r"x\[None\]"):
        estimate(identity, X[0], 0.1)
    with pytest.raises(ValueError, match="finite"):
        estimate(identity, X * torch.nan, 0.1)
    with pytest.raises(ValueError, match="at least one input"):
        estimate(identity, X[:0], 0.1)


@ESTIMATES
def test_models(estimate):
    with pytest.raises(TypeError, match="callable"):
        estimate("a model", X, 0.1)
    with pytest.raises(TypeError, match="tensor of logits"):
        estimate(lambda x: x.tolist(), X, 0.1)
    with pytest.raises(ValueError, match="K of at least 2"):
        estimate(lambda x: x[:, :1], X, 0.1)
    with pytest.raises(ValueError, match="finite logits"):
        estimate(lambda x: x / 0, X, 0.1)


@ESTIMATES
def test_logits_that_break_under_noise(estimate):
    """Finite on the inputs, not beyond them."""

    def model(x: torch.Tensor) -> torch.Tensor:
        return torch.where(x.abs() > 1.5, torch.inf, x)

    if estimate is taylor:
        taylor(model, X, 0.9)
        return
    with pytest.raises(ValueError, match="noisy inputs"):
        estimate(model, X, 0.9, samples=256)


@pytest.mark.parametrize("estimate", [control_variate, taylor, mmse])
def test_gradients_must_exist(estimate):
    with pytest.raises(ValueError, match=r"no_grad and detach"):
        estimate(lambda x: x.detach(), X, 0.1)
    if estimate is mmse:
        return  # noise moves every input off the root at 0
    with pytest.raises(ValueError, match="finite gradients"):
        estimate(lambda x: (x - X[0, 0]).abs().sqrt() + 0 * x, X, 0.1, label=None)


@ESTIMATES
def test_labels(estimate):
    with pytest.raises(ValueError, match="one label a sample"):
        estimate(identity, X, 0.1, label=torch.zeros(3, dtype=torch.int64))
    with pytest.raises(ValueError, match="from 0 to 2"):
        estimate(identity, X, 0.1, label=torch.full((4,), 3))
    with pytest.raises(TypeError, match="integer"):
        estimate(identity, X, 0.1, label=torch.zeros(4))


@ESTIMATES
def test_counts(estimate):
    with pytest.raises(ValueError, match="batch_size"):
        estimate(identity, X, 0.1, batch_size=0)
    with pytest.raises(ValueError, match="seed"):
        estimate(identity, X, 0.1, seed=-1)
    if estimate is not taylor:
        with pytest.raises(ValueError, match="samples"):
            estimate(identity, X, 0.1, samples=0)
    if estimate is not monte_carlo:
        with pytest.raises(ValueError, match="points"):
            estimate(identity, X, 0.1, points=0)
    if estimate in (taylor, mmse):
        with pytest.raises(ValueError, match="cdf"):
            estimate(identity, X, 0.1, cdf="normal")
        with pytest.raises(ValueError, match="power of 2"):
            estimate(identity, X, 0.1, points=3)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"linearization": "best"}, ValueError, "linearization"),
        ({"noise": "halton"}, ValueError, "noise"),
        ({"noise": "sobol", "samples": 1000}, ValueError, "power of 2"),
        ({"noise": "sobol", "scrambles": 5}, ValueError, "even"),
        ({"coefficient": "one"}, TypeError, "coefficient"),
        ({"coefficient": math.inf}, ValueError, "coefficient"),
        ({"coefficient": -math.inf}, ValueError, "coefficient"),
    ],
)
def test_options_of_the_control_variate(options, error, message):
    with pytest.raises(error, match=message):
        control_variate(identity, X, 0.1, **options)


def test_a_precision_is_positive():
    with pytest.raises(ValueError, match="precision"):
        monte_carlo(identity, X, 0.1, precision=0)


@ESTIMATES
def test_training_mode_warns(estimate):
    model = nn.Sequential(nn.Dropout(0.0), nn.Linear(3, 3)).double()
    with pytest.warns(UserWarning, match=r"model\.eval"):
        estimate(model, X, 0.1)


@ESTIMATES
def test_logits_without_spread_warn(estimate):
    with pytest.warns(UserWarning, match="1 of 4 inputs have equal logits"):
        estimate(lambda x: x * (x[:, :1] > x[:, :1].min()), X, 0.1)


def test_sigma_lost_in_rounding_warns():
    with pytest.warns(UserWarning, match="rounding of torch.float32"):
        monte_carlo(identity, X.float(), 1e-7, samples=10)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sigma": None}, "exactly one"),
        ({"covariance": torch.eye(3)}, "exactly one"),
        ({"weights": torch.eye(4)}, "weights"),
        ({"bias": torch.zeros(2)}, "bias"),
        ({"sigma": None, "covariance": torch.ones(3, 3).triu()}, "symmetric"),
        ({"sigma": None, "covariance": 2 - 3 * torch.eye(3)}, "semidefinite"),
        ({"sigma": None, "covariance": -torch.ones(3)}, "at least 0"),
        ({"sigma": None, "covariance": torch.eye(2)}, "covariance: expected shape"),
    ],
)
def test_linear_exact(change, message):
    problem = {"weights": torch.eye(3), "bias": torch.zeros(3), "x": X, "sigma": 0.1}
    with pytest.raises(ValueError, match=message):
        linear_exact(**(problem | change))


def test_sigmoid_and_softmax():
    with pytest.raises(ValueError, match="NaN"):
        mv_sigmoid([0.0, float("nan")])
    with pytest.raises(ValueError, match="single number"):
        mv_sigmoid(1.0)
    with pytest.raises(ValueError, match="scale"):
        mv_sigmoid([1.0], scale=0)
    for value in (0, -1, [1.0, 0.0]):
        with pytest.raises(ValueError, match="temperature"):
            softmax_proxy(identity, X, temperature=value)


def test_extremes():
    """Tiny weights, no margins, an unreachable precision."""
    weights, bias = torch.eye(3).double(), torch.zeros(3).double()
    expected = linear_exact(weights, bias, X, 0.3).probability
    for scale in (1e-200, 1e90):
        probability = linear_exact(scale * weights, bias, X, 0.3).probability
        assert torch.allclose(probability, expected, atol=1e-9)
    flat = linear_exact(0 * weights, bias + torch.tensor([0, 1.0, 0]), X, 0.3)
    assert flat.probability.tolist() == [1.0] * 4
    assert mv_sigmoid(torch.zeros(2, 0)).tolist() == [1.0, 1.0]
    capped = monte_carlo(identity, X, 0.1, precision=1e-300, samples=300)
    assert capped.trials.tolist() == [300] * 4
    with pytest.raises(TypeError, match="antithetic"):
        mmse(identity, X, 0.1, antithetic="no")


def test_levels():
    result = monte_carlo(identity, X, 0.1, samples=10)
    with pytest.raises(ValueError, match="level"):
        result.interval(1.0)
    narrow, wide = result.interval(0.5), result.interval(0.99)
    assert bool((wide[0] <= narrow[0]).all())
    assert bool((narrow[1] <= wide[1] + 1e-12).all())


def test_numpy_is_accepted():
    result = taylor(lambda x: x, X.numpy(), np.array([0.1, 0.2]))
    assert result.probability.shape == (2, 4)
    assert len(result) == 4


def test_complex_numbers_are_refused():
    weights = torch.eye(3, dtype=torch.complex64)
    with pytest.raises(TypeError, match="weights: expected real"):
        linear_exact(weights, torch.zeros(3), torch.eye(3), 0.1)
    with pytest.raises(TypeError, match="values: expected real"):
        mv_sigmoid(weights)


def test_a_covariance_beyond_its_variances_is_refused():
    indefinite = torch.tensor([[1.0, 2.0], [2.0, 1.0]])
    with pytest.raises(ValueError, match="positive semidefinite"):
        orthant_probability(torch.zeros(2), indefinite)


def test_the_printed_bound_is_infinite_for_dependent_gradients():
    first = torch.tensor([1.0, 0.3, 0.7], dtype=torch.float64)
    curved = torch.ones(2, 3)
    assert printed_bound(curved, torch.stack([first, 3 * first]), 0.1) == math.inf
