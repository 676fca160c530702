"""Bad input and models that misbehave: an error, a warning, or a proper answer."""

from functools import partial

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
    taylor,
)
from robustbook.average_case.parts import softmax_proxy
from robustbook.margins import gradient_normalized_margin

X = torch.rand(4, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
ESTIMATES = pytest.mark.parametrize(
    "estimate", [monte_carlo, control_variate, taylor, mmse]
)


def identity(x):
    return x


@ESTIMATES
@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"sigma": [0.1, 0.0]}, ValueError, "sigma: expected a positive finite number"),
        ({"sigma": None}, TypeError, "sigma: expected a positive number or"),
        ({"sigma": []}, ValueError, "or a sequence"),
        ({"images": X.long()}, TypeError, "images: expected float32"),
        ({"images": X[0]}, ValueError, r"images\[None\]"),
        ({"images": X * torch.nan}, ValueError, "finite"),
        ({"images": X[:0]}, ValueError, "at least one input"),
        ({"model": "a model"}, TypeError, "callable"),
        ({"model": lambda x: x.tolist()}, TypeError, "tensor of logits"),
        ({"model": lambda x: x[:, :1]}, ValueError, "K of at least 2"),
        ({"model": lambda x: x / 0}, ValueError, "finite logits"),
        ({"labels": torch.zeros(3).long()}, ValueError, "one label a sample"),
        ({"batch_size": 0}, ValueError, "batch_size"),
        ({"seed": -1}, ValueError, "seed"),
    ],
)
def test_bad_input_of_all(estimate, change, error, message):
    with pytest.raises(error, match=message):
        estimate(**({"model": identity, "images": X, "sigma": 0.1} | change))


@pytest.mark.parametrize(
    ("estimate", "options"),
    [
        (monte_carlo, {"samples": 0}),
        (mmse, {"samples": 0, "cdf": "normal", "points": 3, "antithetic": "no"}),
        (taylor, {"cdf": "normal", "points": 3}),
        (control_variate, {"samples": 0, "points": 0, "linearization": "best"}),
        (control_variate, {"noise": "halton"}),
        (partial(control_variate, noise="sobol"), {"samples": 9}),
    ],
)
def test_bad_options(estimate, options):
    for name, value in options.items():
        with pytest.raises((TypeError, ValueError), match=f"^{name}: expected"):
            estimate(identity, X, 0.1, **{name: value})


@ESTIMATES
def test_logits_that_break_under_noise(estimate):
    """The logits are finite on the inputs, but not beyond them."""

    def model(x):
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
        estimate(lambda x: (x - X[0, 0]).abs().sqrt() + 0 * x, X, 0.1, labels=None)


@pytest.mark.parametrize(
    "estimate",
    [
        *(partial(function, sigma=0.1) for function in (monte_carlo, control_variate)),
        *(partial(function, sigma=0.1) for function in (taylor, mmse)),
        softmax_proxy,
        gradient_normalized_margin,
    ],
)
def test_training_mode_warns_and_draws_nothing_from_the_generator(estimate):
    layers = nn.Linear(3, 20), nn.Dropout(0.5), nn.Linear(20, 3)
    model = nn.Sequential(*layers).double()
    state = torch.random.get_rng_state()
    with pytest.warns(UserWarning, match=r"model\.eval") as caught:
        estimate(model, X)
    assert __file__ in {warning.filename for warning in caught}
    assert torch.equal(torch.random.get_rng_state(), state)


@ESTIMATES
def test_logits_without_spread_warn(estimate):
    with pytest.warns(UserWarning, match="1 of 4 inputs have equal logits"):
        estimate(lambda x: x * (x[:, :1] > x[:, :1].min()), X, 0.1)


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
    weights = {"weights": torch.eye(3), "bias": torch.zeros(3)}
    with pytest.raises(ValueError, match=message):
        linear_exact(**weights | {"images": X, "sigma": 0.1} | change)


def test_sigmoid():
    with pytest.raises(ValueError, match="NaN"):
        mv_sigmoid([0.0, float("nan")])
    with pytest.raises(ValueError, match="single number"):
        mv_sigmoid(1.0)
    with pytest.raises(ValueError, match="scale"):
        mv_sigmoid([1.0], scale=0)
    weights = torch.eye(3, dtype=torch.complex64)
    with pytest.raises(TypeError, match="values: expected real"):
        mv_sigmoid(weights)
    with pytest.raises(TypeError, match="weights: expected real"):
        linear_exact(weights, torch.zeros(3), torch.eye(3), 0.1)


def test_extremes():
    """Tiny and huge weights, and no margins."""
    weights, bias = torch.eye(3).double(), torch.zeros(3).double()
    expected = linear_exact(weights, bias, X, 0.3).probability
    for scale in (1e-200, 1e90):
        probability = linear_exact(scale * weights, bias, X, 0.3).probability
        assert torch.allclose(probability, expected, atol=1e-9)
    flat = linear_exact(0 * weights, bias + torch.tensor([0, 1.0, 0]), X, 0.3)
    assert flat.probability.tolist() == [1.0] * 4
    assert mv_sigmoid(torch.zeros(2, 0)).tolist() == [1.0, 1.0]


def test_levels_and_numpy():
    result = monte_carlo(identity, X, 0.1, samples=10)
    with pytest.raises(ValueError, match="level"):
        result.interval(1.0)
    narrow, wide = result.interval(0.5), result.interval(0.99)
    assert bool((wide[0] <= narrow[0]).all())
    assert bool((narrow[1] <= wide[1] + 1e-12).all())
    _, high = control_variate(identity, X, 1e-3, samples=64).interval(0.99)
    assert float(high.max()) == 1
    result = taylor(identity, X.numpy(), np.array([0.1, 0.2]))
    assert result.probability.shape == (2, 4)
    assert len(result) == 4
    assert repr(result).startswith("Robustness(taylor, sigma [0.1, 0.2]: mean prob")
