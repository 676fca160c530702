"""Exact, Taylor and MMSE estimates; mv-sigmoid and softmax."""

import math
from functools import partial

import numpy as np
import pytest
import torch

from robustbook.average_case import (
    linear_exact,
    mmse,
    monte_carlo,
    mv_sigmoid,
    taylor,
)
from robustbook.average_case.parts import softmax_proxy

from .conftest import linear


@pytest.mark.parametrize("num_classes", [2, 3, 5, 10])
def test_linear_exact_against_sampling(num_classes):
    model = linear(num_classes)
    result = linear_exact(model.weights, model.bias, model.x, [0.3, 1.0])
    sampled = monte_carlo(model, model.x, [0.3, 1.0], samples=4000)
    error = (result.standard_error**2 + sampled.standard_error**2).sqrt()
    assert float(((result.probability - sampled.probability) / error).abs().max()) < 4
    assert torch.equal(result.labels, model(model.x).argmax(1))


def test_two_classes_in_closed_form():
    model = linear(2)
    gap = model(model.x).diff(dim=1)[:, 0].abs()
    norm = torch.linalg.vector_norm(model.weights[0] - model.weights[1])
    result = linear_exact(model.weights, model.bias, model.x, 0.7)
    expected = torch.special.ndtr(gap / (0.7 * norm))
    assert torch.allclose(result.probability, expected, atol=1e-14)


def test_failures_keep_the_digits_that_the_difference_loses():
    """One boundary is eight standard deviations away, the other twice as far."""
    weights = torch.tensor([[0.0, 0.0], [-1.0, 0.0], [0.0, -0.5]], dtype=torch.float64)
    bias = torch.tensor([0.0, -8.0, -8.0], dtype=torch.float64)
    x = torch.zeros(1, 2, dtype=torch.float64)
    exact = float(torch.special.ndtr(torch.tensor(-8.0).double()))
    model = lambda x: x @ weights.T + bias  # noqa: E731
    for result in (linear_exact(weights, bias, x, 1.0), taylor(model, x, 1.0)):
        assert float(result.failure) == pytest.approx(exact, rel=1e-9)
    sampled = monte_carlo(model, x, 1.0, samples=100)
    assert torch.equal(sampled.failure, 1 - sampled.probability)


def test_full_covariance():
    model = linear(4)
    root = torch.randn(12, 12, generator=torch.Generator().manual_seed(1)).double() / 4
    covariance = root @ root.T
    exact = partial(linear_exact, model.weights, model.bias, model.x)
    result = exact(covariance=covariance)
    # The same problem in coordinates in which the noise is isotropic.
    x = torch.linalg.solve(root, model.x.T).T
    turned = linear_exact(model.weights @ root, model.bias, x, 1.0)
    assert torch.allclose(result.probability, turned.probability, atol=1e-9)
    assert bool(result.sigma.isnan())
    diagonal = torch.linspace(0.1, 2, 12, dtype=torch.float64)
    for first, second in (
        (exact(covariance=diagonal), exact(covariance=diagonal.diag())),
        (exact(covariance=0.25 * torch.eye(12)), exact(0.5)),
    ):
        assert torch.allclose(first.probability, second.probability, atol=1e-12)


@pytest.mark.parametrize("estimate", [taylor, mmse])
@pytest.mark.parametrize("cdf", ["mvn", "mv_sigmoid"])
def test_linear_models_are_exact(estimate, cdf):
    """MMSE is exact, too, as linear terms cancel in a pair of opposite noise."""
    model = linear(5)
    options = {"samples": 4} if estimate is mmse else {}
    expected = linear_exact(model.weights, model.bias, model.x, [0.2, 0.9], cdf=cdf)
    result = estimate(model, model.x, [0.2, 0.9], cdf=cdf, points=1024, **options)
    assert torch.allclose(result.probability, expected.probability, atol=1e-9)
    assert result.probability.shape == (2, 8)
    assert bool((result.calls == options.get("samples", 1) * 5).all())


def test_independent_noise_leaves_a_sampling_error_in_the_value():
    """Standardized margins of a linear model have a variance of 1 / samples."""
    model = linear(2)
    x = model.x[:1].repeat(2000, 1)
    expected = float(linear_exact(model.weights, model.bias, x[:1], 0.9).probability)
    score = torch.special.ndtri(torch.tensor(expected).double())
    for samples in (1, 10):
        probability = mmse(model, x, 0.9, samples=samples, antithetic=False).probability
        spread = torch.special.ndtri(probability) - score
        assert float(spread.mean()) == pytest.approx(0, abs=4 / (2000 * samples) ** 0.5)
        assert float(spread.var() * samples) == pytest.approx(1, rel=0.13)
    many = mmse(model, x[:1], 0.9, samples=20_000, antithetic=False).probability
    assert float(many) == pytest.approx(expected, abs=0.02)


def test_an_odd_number_leaves_one_input_without_a_partner(network, images):
    """2 n + 1 noisy inputs are those of n + 1 pairs without the last."""
    recorded_noise = []

    def recorded(x):
        recorded_noise.append(x.detach() - images[:1])
        return network(x)

    for samples in (5, 6):
        mmse(recorded, images[:1], 0.2, samples=samples)
        assert len(recorded_noise[-1]) == samples
    odd, even = recorded_noise[-1][:5], recorded_noise[-1]
    assert torch.allclose(even[3:], -even[:3], atol=1e-12)
    assert torch.allclose(odd[3:], -odd[:2], atol=1e-12)


def by_loops(network, points, label):
    """The mv-sigmoid of mean margins and mean gradients, one gradient at a time."""
    total = 0.0
    for other in {*range(5)} - {label}:
        leaf = points.clone().requires_grad_()
        logits = network(leaf)
        gap = (logits[:, label] - logits[:, other]).mean()
        (gradient,) = torch.autograd.grad(gap, leaf)
        total += math.exp(-float(gap.detach() / (0.2 * gradient.sum(0).norm())))
    return 1 / (1 + total)


def test_estimates_are_linear_models_at_the_input_or_of_averages_around_it(
    network, images
):
    seen = []

    def recorded(x):
        seen.append(x.detach().clone())
        return network(x)

    for row, label in enumerate(network(images).argmax(1).tolist()):
        image = images[row : row + 1]
        at_input = taylor(network, image, 0.2, cdf="mv_sigmoid").probability
        expected = by_loops(network, image, label)
        assert float(at_input) == pytest.approx(expected, rel=1e-9)
        around = mmse(recorded, image, 0.2, samples=7, cdf="mv_sigmoid").probability
        expected = by_loops(network, seen[-1], label)
        assert float(around) == pytest.approx(expected, rel=1e-9)
        assert len(seen[-1]) == 7


def test_mmse_depends_on_the_seed_and_not_on_the_batch(network, images):
    one, two, three = (
        mmse(network, images, 0.2, samples=7, **options).probability
        for options in ({"seed": 4}, {"seed": 4, "batch_size": 3}, {})
    )
    assert torch.allclose(one, two, atol=1e-10)
    assert not torch.equal(one, three)


@pytest.mark.parametrize("estimate", [taylor, mmse, monte_carlo])
def test_several_sigmas_are_each_sigma(network, images, estimate):
    options = {} if estimate is taylor else {"samples": 200}
    both = estimate(network, images, [0.1, 0.3], **options)
    for row, sigma in enumerate((0.1, 0.3)):
        one = estimate(network, images, sigma, **options)
        assert one.probability.shape == (7,)
        assert torch.allclose(one.probability, both.probability[row], atol=1e-12)
        assert torch.equal(one.calls, both.calls[row])
    assert both.sigma.tolist() == [0.1, 0.3]


def test_ties_follow_argmax():
    """Classes 1 and 2 always tie, and the first of them is the prediction."""
    weights = torch.tensor([[0.0], [1.0], [1.0]])
    x = torch.tensor([[1.0]])
    first = linear_exact(weights, torch.zeros(3), x, 1.0)
    assert first.labels.tolist() == [1]
    expected = float(torch.special.ndtr(torch.tensor(1.0)))
    assert float(first.probability) == pytest.approx(expected, abs=1e-6)
    second = linear_exact(weights, torch.zeros(3), x, 1.0, labels=torch.tensor([2]))
    assert float(second.probability) == 0
    model = lambda x: x @ weights.T  # noqa: E731
    for label, value in ((1, expected), (2, 0)):
        estimate = taylor(model, x, 1.0, labels=torch.tensor([label]))
        sampled = monte_carlo(model, x, 1.0, samples=2000, labels=torch.tensor([label]))
        assert float(estimate.probability) == pytest.approx(value, abs=1e-6)
        assert float(sampled.probability) == pytest.approx(value, abs=0.03)


def test_saturated_and_flat_gradients():
    """Without a gradient, the linear model keeps the prediction."""

    def model(x):
        return torch.stack([x[:, 0].clamp(0, 1) * 1e30, 0 * x[:, 0]], dim=1)

    result = taylor(model, torch.tensor([[3.0, 0.0]]), [0.1, 5])
    assert result.probability.tolist() == [[1.0], [1.0]]
    mvs = taylor(model, torch.tensor([[3.0, 0.0]]), 0.1, cdf="mv_sigmoid")
    assert mvs.probability.tolist() == [1.0]


def test_many_classes_of_large_images():
    """The covariance is symmetric, although sums have 150 528 terms."""
    weights = 1e-3 * torch.rand(33, 3 * 224 * 224, generator=torch.manual_seed(0))
    result = taylor(lambda x: x.flatten(1) @ weights.T, torch.rand(1, 3, 224, 224), 1.0)
    assert 0 < float(result.probability) < 1


def test_layers_that_cannot_be_batched(network, images):
    class Identity(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, gradient):
            return torch.from_numpy(gradient.numpy().copy())

    estimate = taylor(lambda x: network(Identity.apply(x)), images, 0.1)
    expected = taylor(network, images, 0.1)
    assert torch.allclose(estimate.probability, expected.probability, atol=1e-10)


def test_no_grad_and_inference_mode(network, images):
    expected = taylor(network, images, 0.1).probability
    with torch.no_grad():
        assert torch.equal(taylor(network, images, 0.1).probability, expected)
    with torch.inference_mode():
        probability = taylor(network, images + 0, 0.1).probability
    assert torch.equal(probability, expected)
    assert all(parameter.grad is None for parameter in network.parameters())


def test_mv_sigmoid_is_the_softmax_of_margins(network, images):
    logits = network(images).detach()
    labels = logits.argmax(1)
    expected = torch.softmax(logits, dim=1).gather(1, labels[:, None])[:, 0]
    assert torch.allclose(softmax_proxy(network, images), expected, atol=1e-12)
    assert float(mv_sigmoid([1000.0, torch.inf])) == 1
    assert float(mv_sigmoid([-1000.0, 5.0])) == 0
    assert mv_sigmoid(np.zeros((4, 3))).tolist() == [0.25] * 4


def test_the_scale_makes_it_close_to_the_normal_law():
    grid = torch.linspace(-8, 8, 4001, dtype=torch.float64)
    exact = torch.special.ndtr(grid)
    errors = {
        scale: float((mv_sigmoid(grid[:, None], scale=scale) - exact).abs().max())
        for scale in (1.0, 1.702)
    }
    assert errors[1.702] < 0.0095 < 0.1 < errors[1.0]


def test_softmax_is_the_mv_sigmoid_where_all_boundaries_are_alike():
    """Lemma A.4: where all norms are k, softmax at T = σk is the estimate."""
    weights = torch.eye(4, dtype=torch.float64)
    x = torch.rand(5, 4, generator=torch.Generator().manual_seed(0)).double()
    sigma = 0.3
    estimate = linear_exact(weights, torch.zeros(4), x, sigma, cdf="mv_sigmoid")
    proxy = softmax_proxy(lambda x: x / (sigma * math.sqrt(2)), x)
    assert torch.allclose(estimate.probability, proxy, atol=1e-12)
