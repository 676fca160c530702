"""Orthant probabilities: closed forms, scipy, calibration, singular covariances."""

import math
from functools import partial
from itertools import product

import numpy as np
import pytest
import torch
from scipy.integrate import quad
from scipy.stats import multivariate_normal, norm

from robustbook.average_case import orthant_probability
from robustbook.studies._integration_coverage import Cell


def problems(count, dimension, seed=0, columns=None):
    """Problems of a linear classifier: differences of random weights."""
    generator = torch.Generator().manual_seed(seed)
    columns = columns or 2 * dimension + 2
    shape = (count, dimension + 1, columns)
    weights = torch.randn(shape, generator=generator, dtype=torch.float64)
    steps = weights[:, :1] - weights[:, 1:]
    covariance = steps @ steps.mT
    size = torch.rand(count, 1, generator=generator, dtype=torch.float64) * 2
    mean = torch.randn(count, dimension, generator=generator, dtype=torch.float64)
    scale = covariance.diagonal(dim1=1, dim2=2).sqrt()
    return mean.abs() * scale * size, covariance


def equicorrelated(limits, rho):
    """One-dimensional integral over the common factor, for rho in [0, 1)."""

    def integrand(z):
        inner = (limits.numpy() + math.sqrt(rho) * z) / math.sqrt(1 - rho)
        return float(norm.pdf(z) * np.prod(norm.cdf(inner)))

    return quad(integrand, -12, 12, epsabs=1e-13, limit=400)[0]


def matrix(dimension, rho):
    full = torch.full((dimension, dimension), rho, dtype=torch.float64)
    return full.fill_diagonal_(1)


def coverage_problems(dimension):
    """Limits, correlations and exact failures: ordinary, singular, rare, mixed."""
    steps = torch.linspace(0, 1, dimension, dtype=torch.float64)
    settings = product(
        (0.0, 0.1, 0.5, 0.9, 0.99, 0.999, 0.9999),
        (0.0, 0.5, 1.0, 2.0, 3.0, 4.0),
        (0.0, 0.3, 2.0),
    )
    made = [
        Cell("", low + width * steps, torch.full_like(steps, math.sqrt(rho)))
        for rho, low, width in settings
    ]
    for low, number in product((0.5, 1.0, 2.0, 3.0), range(4)):
        generator = torch.Generator().manual_seed(77 * number + dimension)
        drawn = torch.rand(2, dimension, generator=generator, dtype=torch.float64)
        limits, order = (low + 2 * drawn[1]).sort()
        made.append(Cell("", limits, (0.99 * (2 * drawn[0] - 1))[order]))
    exact = torch.tensor([cell.failure() for cell in made], dtype=torch.float64)
    columns = zip(*((cell.limits, cell.correlation) for cell in made), strict=True)
    return *map(torch.stack, columns), exact


def test_one_dimension_is_ndtr():
    mean = torch.linspace(-9, 9, 50, dtype=torch.float64)[:, None]
    result = orthant_probability(mean, torch.tensor([[4.0]], dtype=torch.float64))
    exact = torch.special.ndtr(mean[:, 0] / 2)
    assert torch.allclose(result.probability, exact, rtol=1e-15, atol=0)
    likely = mean[:, 0] >= 0
    assert torch.equal(result.failure[likely], exact.flip(0)[likely])
    assert not result.standard_error.any()


def bivariate(h, k, rho):
    """One-dimensional integral over the first variable."""
    if abs(rho) == 1:
        low, high = (-np.inf, min(h, k)) if rho == 1 else (-k, h)
        return max(norm.cdf(high) - norm.cdf(low), 0)

    def integrand(z):
        return norm.pdf(z) * norm.cdf((k - rho * z) / math.sqrt((1 - rho) * (1 + rho)))

    points = [p for p in (k / rho if rho else 0.0,) if -12 < p < h] or None
    return quad(integrand, -12, h, epsabs=1e-13, limit=500, points=points)[0]


@pytest.mark.parametrize("rho", [-1, -0.999, -0.5, 0, 1e-9, 0.3, 0.9, 0.99999, 1])
def test_two_dimensions_against_a_one_dimensional_integral(rho):
    for pair in product((-3.0, -1.0, 0.0, 0.2, 1.5, 5.0), (-2.0, 0.0, 0.2, 1.0, 4.0)):
        result = orthant_probability(
            torch.tensor(pair, dtype=torch.float64), matrix(2, rho)
        )
        exact = bivariate(*pair, rho)
        assert float(result.probability) == pytest.approx(exact, abs=2e-11)


@pytest.mark.parametrize("dimension", [3, 4, 9, 20, 99])
@pytest.mark.parametrize("rho", [0, 0.1, 0.5, 0.95])
def test_equicorrelated(dimension, rho):
    generator = torch.Generator().manual_seed(dimension)
    limits = 2 * torch.rand(dimension, generator=generator, dtype=torch.float64)
    limits += 1.5 * (dimension > 20)
    result = orthant_probability(limits, matrix(dimension, rho), points=1024)
    error = abs(float(result.probability) - equicorrelated(limits, rho))
    assert error < max(4 * float(result.standard_error), 1e-9)
    assert float(result.standard_error) < 2e-3


@pytest.mark.parametrize("dimension", [3, 9])
def test_against_scipy(dimension):
    mean, covariance = problems(4, dimension, seed=dimension)
    result = orthant_probability(mean, covariance, points=4096)
    for row in range(len(mean)):
        np.random.seed(row)  # scipy's own seed
        law = multivariate_normal(cov=covariance[row].numpy(), allow_singular=True)
        law.abseps = law.releps = 1e-7
        expected = law.cdf(mean[row].numpy())
        error = float(result.standard_error[row])
        assert abs(float(result.probability[row]) - expected) < 4 * error + 1e-5
        assert error < 5e-5


@pytest.mark.parametrize("dimension", [3, 9])
def test_intervals_cover_each_problem(dimension):
    """Each of 142 problems by itself is covered in 92 % of seeds, up to chance."""
    limits, correlations, exact = coverage_problems(dimension)
    seeds = 150
    results = [
        orthant_probability(limits, correlations, points=128, seed=seed)
        for seed in range(seeds)
    ]
    off = torch.stack([(each.failure - exact).abs() for each in results])
    errors = torch.stack([each.standard_error for each in results])
    covered = (off <= 1.96 * errors + 1e-9 * exact).double().mean(dim=0)
    # The allowance is three standard deviations of the share, for the worst problem.
    assert float(covered.min()) > 0.92 - 3 * math.sqrt(0.08 * 0.92 / seeds)
    assert float((covered < 0.92).double().mean()) < 0.05
    assert float(covered.mean()) > 0.95


@pytest.mark.parametrize("dimension", [3, 9, 30])
def test_rare_failures_keep_their_digits(dimension):
    for limit, rho in product((3.0, 5.0, 6.8), (0.3, 0.9, 0.999)):
        limits = limit + torch.linspace(0, 0.2, dimension, dtype=torch.float64)
        loadings = torch.full((dimension,), math.sqrt(rho), dtype=torch.float64)
        exact = Cell("", limits, loadings).failure()
        result = orthant_probability(limits, matrix(dimension, rho), points=128)
        assert float(result.failure) == pytest.approx(exact, rel=0.1)
        assert float(result.standard_error) < 0.05 * exact
        off = abs(float(result.failure) - exact)
        assert off < 4 * float(result.standard_error)


def test_repeated_and_scaled_coordinates_change_nothing():
    mean, covariance = problems(5, 4, seed=3)
    expected = orthant_probability(mean, covariance, points=4096)
    index = torch.tensor([0, 1, 1, 2, 3, 3, 3])
    repeated = mean[:, index], covariance[:, index][:, :, index]
    result = orthant_probability(*repeated, points=4096)
    slack = 4 * (expected.standard_error + result.standard_error) + 1e-7
    assert bool(((result.probability - expected.probability).abs() < slack).all())
    mean, covariance = problems(5, 6, seed=5)
    scale = torch.logspace(-12, 12, 6, dtype=torch.float64)
    scaled = mean * scale, covariance * scale[:, None] * scale
    expected, result = (
        orthant_probability(*problem, points=1 << 14)
        for problem in ((mean, covariance), scaled)
    )
    assert torch.allclose(expected.probability, result.probability, atol=1e-12)


@pytest.mark.parametrize("columns", [1, 2, 3])
def test_singular_covariances_of_low_rank(columns):
    """The reference samples the few variables of nine constraints."""
    generator = torch.Generator().manual_seed(columns)
    steps = torch.randn(6, 9, columns, generator=generator, dtype=torch.float64)
    mean = 1.5 * torch.rand(6, 9, generator=generator, dtype=torch.float64)
    result = orthant_probability(mean, steps @ steps.mT, points=1024)
    z = torch.randn(200_000, columns, generator=generator, dtype=torch.float64)
    for row in range(6):
        share = (mean[row] + z @ steps[row].T >= 0).all(dim=1).double().mean()
        error = math.sqrt(float(share * (1 - share)) / len(z)) + 1e-5
        probability = float(result.probability[row])
        slack = 4 * (error + float(result.standard_error[row]))
        assert abs(probability - float(share)) < slack


def test_near_singular_covariances_tend_to_singular_ones():
    steps = torch.tensor([[1.0, 0.0], [0.6, 0.8], [-0.3, 1.0]], dtype=torch.float64)
    mean = torch.tensor([0.3, 0.5, 0.2], dtype=torch.float64)
    singular = orthant_probability(mean, steps @ steps.T, points=8192)
    for tiny in (1e-6, 1e-9, 1e-12, 1e-15):
        near = steps @ steps.T + tiny * torch.eye(3, dtype=torch.float64)
        result = orthant_probability(mean, near, points=8192)
        slack = 4 * float(singular.standard_error + result.standard_error)
        slack += 2 * math.sqrt(tiny) + 1e-6
        difference = float(result.probability - singular.probability)
        assert abs(difference) < slack


def test_opposite_constraints():
    """Z in [-a, b] written as two constraints, beside an independent pair."""
    steps = torch.tensor(
        [[1.0, 0, 0], [-1.0, 0, 0], [0, 1.0, 0], [0, 0, 1.0]], dtype=torch.float64
    )
    mean = torch.tensor([0.4, 0.7, 0.1, -0.2], dtype=torch.float64)
    result = orthant_probability(mean, steps @ steps.T, points=1024)
    expected = (norm.cdf(0.7) - norm.cdf(-0.4)) * norm.cdf(0.1) * norm.cdf(-0.2)
    assert float(result.probability) == pytest.approx(expected, abs=1e-6)
    mean[:2] = torch.tensor([-0.4, 0.3])
    empty = orthant_probability(mean, steps @ steps.T)
    assert float(empty.probability) == 0


def test_coordinates_without_variance_are_indicators():
    covariance = torch.diag(torch.tensor([1.0, 0.0, 0.0], dtype=torch.float64))
    mean = torch.tensor(
        [[0.0, 2.0, 0.0], [0.0, -2.0, 1.0], [0.0, 1.0, -1e-300]], dtype=torch.float64
    )
    result = orthant_probability(mean, covariance)
    assert result.probability.tolist() == [0.5, 0.0, 0.0]


def test_far_limits():
    """Tiny probabilities and tiny failures keep their digits and are not NaN."""
    far = torch.tensor([[40.0] * 5, [9.0, 40, 40, 40, 40], [torch.inf] * 5]).double()
    assert orthant_probability(far, matrix(5, 0.5)).probability.tolist() == [1.0] * 3
    never = torch.tensor([[-40.0] * 5, [-torch.inf, 1, 1, 1, 1], [-9, 1, 1, 1, 1]])
    result = orthant_probability(never.double(), matrix(5, 0.5)).probability.tolist()
    assert result[:2] == [0, 0]
    assert 0 <= result[2] < 1.2e-19


def test_certain_success_is_one_and_negligible_constraints_are_left_out():
    # Failures are only integrated above 1e-12.
    for limit, failure in ((7.3, 5.8e-13), (6.9, 1.04e-11)):
        mean = torch.full((4,), limit, dtype=torch.float64)
        result = orthant_probability(mean, matrix(4, 0.3))
        assert 4 * norm.sf(limit) == pytest.approx(failure, rel=0.02)
        off = abs(float(result.failure) - (1 - equicorrelated(mean, 0.3)))
        assert off < 1.96 * float(result.standard_error) + 1e-15
        assert float(result.failure) == pytest.approx(failure, rel=0.02)
    mean, covariance = problems(5, 3, seed=8)
    wide = torch.eye(9, dtype=torch.float64).repeat(5, 1, 1)
    wide[:, :3, :3] = covariance
    padded = torch.cat([mean, torch.full((5, 6), 9.0, dtype=torch.float64)], dim=1)
    expected = orthant_probability(mean, covariance)
    result = orthant_probability(padded, wide)
    assert torch.allclose(result.probability, expected.probability, atol=1e-12)


@pytest.mark.parametrize("dimension", [5, 60])
def test_single_precision_adds_less_than_stated(dimension, monkeypatch):
    mean, covariance = problems(60, dimension, seed=13)
    few = partial(orthant_probability, mean, covariance, points=128)
    many = partial(orthant_probability, mean[:2], covariance[:2], points=1 << 14)
    single, usual = few().probability, many().probability
    monkeypatch.setattr("robustbook.average_case._separation.SINGLE_POINTS", 0)
    difference = (single - few().probability).abs()
    # The stated error includes 1e-7 for each integral, 5e-7 in many dimensions.
    assert 0 < float(difference.max()) < (2e-7 if dimension <= 20 else 1e-6)
    assert bool((difference < few().standard_error).all())
    assert torch.equal(usual, many().probability)


def test_order_and_batches_do_not_matter():
    mean, covariance = problems(7, 5, seed=6)
    expected = orthant_probability(mean, covariance).probability
    i = torch.tensor([3, 1, 4, 0, 2])
    permuted = orthant_probability(mean[:, i], covariance[:, i][:, :, i]).probability
    assert torch.allclose(expected, permuted, atol=1e-7)
    single = orthant_probability(mean[2], covariance[2]).probability
    assert torch.allclose(single, expected[2], atol=1e-7)
    shapes = mean[:6].reshape(2, 3, 5), covariance[:6].reshape(2, 3, 5, 5)
    shaped = orthant_probability(*shapes).probability
    assert shaped.shape == (2, 3)
    assert torch.allclose(shaped.flatten(), expected[:6], atol=1e-7)
    assert orthant_probability(mean, covariance[0]).probability.shape == (7,)


def test_float32_numpy_integers_and_seeds():
    expected = orthant_probability([0, 0, 0], torch.eye(3).long())
    assert float(expected.probability) == pytest.approx(1 / 8, abs=1e-6)
    mean, covariance = problems(3, 5, seed=2)
    single = orthant_probability(mean.float(), covariance.float())
    double = orthant_probability(mean.numpy(), covariance.numpy())
    assert single.probability.dtype == torch.float64
    assert torch.allclose(single.probability, double.probability, atol=1e-5)
    again = orthant_probability(mean, covariance)
    other = orthant_probability(mean, covariance, seed=1)
    assert torch.equal(again.probability, double.probability)
    assert not torch.equal(again.probability, other.probability)
    state = torch.random.get_rng_state()
    orthant_probability(mean, covariance, seed=99)
    assert torch.equal(state, torch.random.get_rng_state())


EYES = torch.eye(3).expand(3, 3, 3)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"points": 100}, ValueError, "power of 2"),
        ({"mean": torch.zeros(2)}, ValueError, r"shapes \(\.\.\., D\)"),
        ({"mean": torch.zeros(2, 3), "covariance": EYES}, ValueError, "broadcast"),
        ({"mean": torch.tensor([0, torch.nan, 0])}, ValueError, "NaN"),
        ({"covariance": torch.eye(3) * torch.inf}, ValueError, "finite"),
        ({"covariance": torch.ones(3, 3).triu()}, ValueError, "symmetric"),
        ({"covariance": -torch.eye(3)}, ValueError, "variances"),
        ({"covariance": matrix(3, -0.9)}, ValueError, "semidefinite"),
        ({"covariance": torch.eye(3).bool()}, TypeError, "real numbers"),
    ],
)
def test_bad_input(change, error, message):
    problem = {"mean": torch.zeros(3), "covariance": torch.eye(3)} | change
    with pytest.raises(error, match=message):
        orthant_probability(**problem)
