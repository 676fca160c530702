"""The printed bounds are false, by two examples; the corrected ones hold."""

import math
from functools import partial

import pytest
import torch

from robustbook.average_case import mmse, taylor
from robustbook.studies.average_case.bounds import corrected_bound, printed_bound


class Quadratic:
    """Class 0 against others with margins c + uᵀx + xᵀAx."""

    def __init__(self, constants, gradients, matrices):
        self.constants, self.gradients, self.matrices = constants, gradients, matrices

    def margins(self, x):
        curved = torch.einsum("nd,kde,ne->nk", x, self.matrices, x)
        return self.constants + x @ self.gradients.T + curved

    def __call__(self, x):
        margins = self.margins(x)
        return torch.cat([torch.zeros_like(margins[:, :1]), -margins], dim=1)

    def kept(self, sigma, samples=200_000, seed=0):
        size = self.gradients.shape[1]
        generator = torch.Generator().manual_seed(seed)
        options = {"generator": generator, "dtype": torch.float64}
        parts = [torch.randn(samples // 4, size, **options) for _ in range(4)]
        kept = [(self.margins(sigma * x) > 0).all(dim=1).double() for x in parts]
        return float(torch.cat(kept).mean())

    @property
    def eigenvalues(self):
        return torch.linalg.eigvalsh(self.matrices)


def one_curved_boundary():
    """The first boundary is a ball around 0 as seen from outside, the second flat."""
    return Quadratic(
        torch.tensor([0.02, 0.02], dtype=torch.float64),
        torch.eye(2, 6, dtype=torch.float64),
        torch.stack([torch.eye(6), torch.zeros(6, 6)]).double(),
    )


@pytest.mark.parametrize("estimator", ["taylor", "mmse"])
def test_one_flat_boundary_is_a_counterexample(estimator):
    model = one_curved_boundary()
    if estimator == "mmse":
        # MMSE is exact for multiples of the identity: bend one axis only.
        model.matrices[0] = torch.diag(torch.tensor([4.0, 0, 0, 0, 0, 0])).double()
    sigma = 0.05
    setting = model.eigenvalues, model.gradients, sigma
    assert float(printed_bound(*setting, estimator=estimator)) == 0
    zero = torch.zeros(1, 6, dtype=torch.float64)
    estimate = taylor if estimator == "taylor" else partial(mmse, samples=5000)
    probability = float(estimate(model, zero, sigma, points=1024).probability)
    error = abs(probability - model.kept(sigma))
    assert error > 0.01
    assert error < float(corrected_bound(*setting, estimator=estimator))


def test_two_classes_are_a_counterexample_too():
    """The proof loses a factor of √D: with D = 400 the error is beyond the bound."""
    size, sigma = 400, 0.05 / 20
    constants = torch.tensor([1e-6], dtype=torch.float64)
    gradients = torch.eye(1, size, dtype=torch.float64)
    matrices = torch.eye(size, dtype=torch.float64)[None]
    model = Quadratic(constants, gradients, matrices)
    zero = torch.zeros(1, size, dtype=torch.float64)
    probability = float(taylor(model, zero, sigma).probability)
    error = abs(probability - model.kept(sigma, samples=8000))
    # The paper's own form, with k as it prints it.
    scale = sigma * math.sqrt(size)
    as_printed = scale / math.sqrt(2 * math.pi)
    assert error > 5 * as_printed
    values = model.eigenvalues
    assert float(printed_bound(values, gradients, sigma)) == pytest.approx(as_printed)
    assert error < float(corrected_bound(values, gradients, sigma))


@pytest.mark.parametrize("estimator", ["taylor", "mmse"])
@pytest.mark.parametrize("seed", range(6))
def test_the_corrected_bound_holds(estimator, seed):
    generator = torch.Generator().manual_seed(seed)
    kwargs = {"generator": generator, "dtype": torch.float64}
    count, size = 1 + seed % 3, 2 + 3 * seed
    square = torch.randn(count, size, size, **kwargs)
    model = Quadratic(
        0.1 * torch.rand(count, **kwargs),
        torch.randn(count, size, **kwargs) * 2,
        (square + square.mT) / 2,
    )
    zero = torch.zeros(1, size, dtype=torch.float64)
    for sigma in (0.001, 0.01, 0.05):
        linear = model.margins(zero)
        if estimator == "mmse":
            trace = model.matrices.diagonal(dim1=1, dim2=2).sum(1)
            linear = linear + sigma**2 * trace
        kept = Quadratic(linear[0], model.gradients, 0 * model.matrices).kept(sigma)
        error = abs(model.kept(sigma) - kept)
        bound = corrected_bound(
            model.eigenvalues, model.gradients, sigma, estimator=estimator
        )
        assert error <= float(bound)


def test_orders_in_sigma_and_extremes():
    values, gradients = torch.ones(3, 5), torch.eye(3, 5)
    sigmas = torch.tensor([1e-9, 1e-8], dtype=torch.float64)
    printed = printed_bound(values, gradients, sigmas)
    corrected = corrected_bound(values, gradients, sigmas)
    assert float(printed[1] / printed[0]) == pytest.approx(1000)
    assert float(corrected[1] / corrected[0]) == pytest.approx(10)
    doubled = corrected_bound(values.repeat(2, 1), gradients.repeat(2, 1), sigmas)
    assert torch.allclose(doubled, 2 * corrected)
    # Linear boundaries have no error, and no bound exceeds 1.
    for value, bound in ((0.0, 0), (9.0, 1)):
        found = corrected_bound(torch.full((2, 4), value), torch.eye(2, 4), 5.0)
        assert float(found) == bound


def test_the_printed_bound_is_infinite_for_dependent_gradients():
    first = torch.tensor([1.0, 0.3, 0.7], dtype=torch.float64)
    dependent = torch.stack([first, 3 * first])
    assert printed_bound(torch.ones(2, 3), dependent, 0.1) == math.inf


def test_mmse_is_better_in_many_dimensions():
    """√D against D: a curvature spread over all directions averages out."""
    ratios = []
    for size in (100, 10_000):
        values, gradients = torch.ones(1, size), torch.eye(1, size)
        bounds = [
            float(corrected_bound(values, gradients, 1e-9, estimator=estimator))
            for estimator in ("taylor", "mmse")
        ]
        ratios.append(bounds[0] / bounds[1])
    assert ratios[1] > 5 * ratios[0] > 5


@pytest.mark.parametrize("bound", [printed_bound, corrected_bound])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"gradients": torch.ones(2, 4)}, "of one shape"),
        ({"gradients": torch.zeros(2, 3)}, "no gradient of 0"),
        ({"eigenvalues": torch.full((2, 3), torch.nan)}, "finite"),
        ({"sigma": 0.0}, "sigma"),
        ({"estimator": "best"}, "estimator"),
    ],
)
def test_bad_input(bound, change, message):
    problem = {"eigenvalues": torch.ones(2, 3), "gradients": torch.ones(2, 3)}
    with pytest.raises(ValueError, match=message):
        bound(**(problem | {"sigma": 0.1} | change))
