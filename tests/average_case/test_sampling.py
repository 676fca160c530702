"""Monte Carlo and the control variate: unbiased, calibrated, reproducible."""

import math

import pytest
import torch

from robustbook.average_case import control_variate, linear_exact, monte_carlo

from .conftest import Curved, linear

POINT = torch.tensor([[0.1, 0.2]], dtype=torch.float64)
#: Many copies of one input, each of which gets noise of its own.
COPIES = POINT.repeat(400, 1)


def check_mean(result, exact):
    """Check that the mean over copies is within 3 of their standard errors."""
    values = result.probability
    error = float(values.std()) / math.sqrt(len(values))
    assert abs(float(values.mean()) - exact) < 3 * error
    # The test can fail: it would detect a bias of a percent.
    assert error < 0.004


def coverage(result, exact):
    """Return the share of intervals that contain the exact value."""
    low, high = result.interval()
    return float(((low <= exact) & (exact <= high)).double().mean())


def root_mean_square(values):
    return float(values.square().mean().sqrt())


@pytest.mark.parametrize("sigma", [0.8, 1.5])
def test_monte_carlo_is_unbiased_and_calibrated(sigma):
    exact = Curved().exact(POINT[0], sigma)
    result = monte_carlo(Curved(), COPIES, sigma, samples=300)
    check_mean(result, exact)
    assert len(set(result.probability.tolist())) > 5  # noise of their own
    stated = root_mean_square(result.standard_error)
    assert float(result.probability.std()) == pytest.approx(stated, rel=0.2)
    assert 0.91 < coverage(result, exact) < 0.99
    assert bool((result.calls == 300).all())


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"noise": "sobol", "samples": 256},
        {"linearization": "mmse"},
        {"linearization": "mmse", "noise": "sobol", "samples": 256},
    ],
    ids=str,
)
@pytest.mark.parametrize("sigma", [0.8, 1.5])
def test_control_variate_is_unbiased_and_calibrated(sigma, options):
    exact = Curved().exact(POINT[0], sigma)
    result = control_variate(Curved(), COPIES, sigma, **{"samples": 300, **options})
    check_mean(result, exact)
    stated = root_mean_square(result.standard_error)
    # With 8 Sobol scrambles, Student's law widens the error by a factor of 1.2.
    assert 0.8 < stated / float(result.probability.std()) < 1.5
    assert 0.91 < coverage(result, exact) <= 1


def test_standard_error_of_four_samples_by_hand():
    """The linearization keeps all labels, so that only the model's spread counts."""

    def model(x):
        return torch.cat([1 - 10 * x**2, torch.zeros_like(x)], dim=1)

    result = control_variate(model, torch.zeros(200, 1), 0.3, samples=4)
    # One of the four is lost, so that one half has a mean of variance 1/4. Two
    # disagreements are added.
    one_lost = result.probability == 0.75
    assert one_lost.sum() > 10
    expected = math.sqrt(1 / 4 / 4 + 2 / 4**2)
    assert result.standard_error[one_lost].tolist() == pytest.approx(
        [expected] * int(one_lost.sum())
    )


def test_few_samples_stay_unbiased_and_the_variance_is_smaller():
    # As the coefficient is from the other half, a poor one causes no bias.
    result = control_variate(Curved(), POINT.repeat(6000, 1), 0.8, samples=8)
    check_mean(result, Curved().exact(POINT[0], 0.8))
    plain = monte_carlo(Curved(), COPIES, 0.8, samples=300)
    better = control_variate(Curved(), COPIES, 0.8, samples=300)
    ratio = float(plain.probability.var() / better.probability.var())
    assert ratio > 1.5
    assert float(better.variance_reduction.median()) == pytest.approx(ratio, rel=0.3)


def test_a_useless_linearization_costs_nothing_but_its_calls():
    """The gradient of the model does not tell where the boundary is."""

    def model(x):
        score = torch.sin(40 * x[:, 0]) + 0.3
        return torch.stack([score, torch.zeros_like(score)], dim=1)

    x = torch.zeros(300, 2, dtype=torch.float64)
    plain = monte_carlo(model, x, 1.0, samples=300)
    other = control_variate(model, x, 1.0, samples=300)
    ratio = float(plain.probability.var() / other.probability.var())
    assert 0.7 < ratio < 1.4
    assert 0.85 < float(other.variance_reduction.median()) < 1.15


def test_linear_models_need_no_samples():
    model = linear(5)
    expected = linear_exact(model.weights, model.bias, model.x, [0.3, 1.0])
    for noise in ("random", "sobol"):
        options = {"samples": 64, "noise": noise, "points": 1024}
        result = control_variate(model, model.x, [0.3, 1.0], **options)
        assert torch.allclose(result.probability, expected.probability, atol=1e-9)
        # 64 samples without a disagreement do not prove that there is none.
        assert float(result.standard_error.min()) > 0.01


def test_the_error_of_the_integration_is_included():
    model = linear(10)
    coarse = control_variate(model, model.x, 1.0, samples=4096, points=1)
    exact = linear_exact(model.weights, model.bias, model.x, 1.0, points=8192)
    ratio = (coarse.probability - exact.probability) / coarse.standard_error
    assert float(ratio.abs().max()) < 4
    assert float(coarse.standard_error.max()) > 0.01


def half_line(place, count):
    """Return a linear model, copies of a point and the exact robustness at σ = 1."""
    weights = torch.tensor([[1.0], [0.0]], dtype=torch.float64)
    x = torch.full((count, 1), place, dtype=torch.float64)
    return lambda x: x @ weights.T, x, float(torch.special.ndtr(x[0]))


def test_shares_near_one_have_honest_errors():
    """Where no failure was seen, the exact value may still be 3 / n away."""
    model, x, exact = half_line(2.6, 500)
    for estimate in (monte_carlo, control_variate):
        result = estimate(model, x, 1.0, samples=300)
        assert float(result.standard_error.min()) > 0
        error = (result.probability - exact).abs()
        inside = (error <= 2 * result.standard_error).double().mean()
        assert 0.93 < float(inside) <= 1


@pytest.mark.parametrize(
    "estimate",
    [
        monte_carlo,
        control_variate,
        lambda *a, **k: control_variate(*a, noise="sobol", **k),
        lambda *a, **k: control_variate(*a, linearization="mmse", **k),
    ],
)
def test_noise_depends_on_seed_and_input_only(network, images, estimate):
    expected = estimate(network, images, [0.2, 0.5], samples=256)
    again = estimate(network, images, [0.2, 0.5], samples=256, batch_size=5)
    assert torch.allclose(expected.probability, again.probability, atol=1e-12)
    other = estimate(network, images, [0.2, 0.5], samples=256, seed=1)
    assert not torch.equal(expected.probability, other.probability)
    state = torch.random.get_rng_state()
    estimate(network, images, 0.2, samples=256)
    assert torch.equal(state, torch.random.get_rng_state())
    first = estimate(network, images[:3], [0.2, 0.5], samples=256)
    assert torch.allclose(expected.probability[:, :3], first.probability, atol=1e-12)


@pytest.mark.cuda
def test_on_a_gpu(network, images):
    if not torch.cuda.is_available():
        pytest.skip("no GPU: torch.cuda.is_available() is False")
    here = control_variate(network, images, 0.3, samples=4096)
    there = control_variate(network.cuda(), images, 0.3, samples=4096)
    network.cpu()
    error = (here.standard_error**2 + there.standard_error**2).sqrt()
    assert there.probability.device.type == "cpu"
    assert float(((here.probability - there.probability) / error).abs().max()) < 5
