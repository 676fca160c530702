"""The learned margin."""

import itertools

import numpy as np
import pytest
import torch
from scipy import stats
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from robustbook.margins import PseudoMargin


@pytest.fixture(scope="module")
def problem():
    """The distance depends on two features together; another one never varies."""
    random = np.random.default_rng(0)
    features = random.normal(size=(600, 6)) * [1, 10, 0.1, 1, 1, 0] + 5
    centered = (features - 5) / [1, 10, 0.1, 1, 1, 1]
    margins = np.abs(centered[:, 0] * centered[:, 1]) / 10 + 0.01
    return features, margins


@pytest.fixture(scope="module")
def fitted(problem):
    features, margins = problem
    return PseudoMargin(width=64, epochs=60).fit(features[:400], margins[:400])


def test_it_learns(problem, fitted):
    features, margins = problem
    predicted = fitted.predict(features[400:])
    assert predicted.dtype == torch.float64
    single = max(
        abs(stats.kendalltau(features[400:, i], margins[400:]).statistic)
        for i in range(5)
    )
    assert stats.kendalltau(predicted, margins[400:]).statistic > single + 0.25
    assert float(predicted.min()) >= 0
    assert float(predicted.max()) <= margins[:400].max()


def test_architecture_is_the_papers_also_in_inference_mode():
    model = PseudoMargin(epochs=1).fit(torch.rand(20, 3), torch.rand(20))
    layers = [type(layer).__name__ for layer in model.network_]
    assert layers == ["Linear", "ReLU"] * 5 + ["Linear", "Sigmoid"]
    sizes = [layer.out_features for layer in model.network_[::2][:-1]]
    assert sizes == [512] * 5
    with torch.inference_mode():
        features = torch.rand(50, 2)
        model = PseudoMargin(width=4, epochs=2).fit(features, features[:, 0])
        assert len(model.predict(features)) == 50


def test_it_stops_early_and_keeps_the_best(problem):
    features, margins = problem
    noise = np.random.default_rng(1).permutation(margins)
    order = torch.randperm(600, generator=torch.Generator().manual_seed(0))
    held_out = order[:120].numpy()

    def predictions(**options):
        model = PseudoMargin(width=64, **options).fit(features, noise)
        return model.predict(features).numpy()

    by_epochs = [predictions(epochs=number) for number in range(1, 9)]
    errors = [float(((p - noise)[held_out] ** 2).mean()) for p in by_epochs]
    # More epochs keep the best weights, and some of them are not better.
    assert all(b <= a for a, b in itertools.pairwise(errors))
    worse = next(i for i in range(1, 8) if errors[i] == errors[i - 1])
    assert np.array_equal(predictions(epochs=200, patience=1), by_epochs[worse])


def test_it_is_a_regressor_of_scikit_learn(problem):
    model = PseudoMargin(width=16, epochs=2)
    copied = clone(model)
    assert copied.get_params() == model.get_params()
    scores = cross_val_score(make_pipeline(StandardScaler(), copied), *problem, cv=2)
    assert np.isfinite(scores).all()


def test_seeds(problem):
    features, margins = problem
    options = {"width": 16, "epochs": 2}
    state = torch.random.get_rng_state()
    one, two, three = (
        PseudoMargin(seed=seed, **options).fit(features, margins).predict(features)
        for seed in (0, 0, 1)
    )
    assert torch.equal(one, two)
    assert not torch.equal(one, three)
    assert torch.equal(state, torch.random.get_rng_state())


def test_units_of_features_make_no_difference(problem):
    features, margins = problem
    options = {"width": 16, "epochs": 3}
    one = PseudoMargin(**options).fit(features, margins).predict(features)
    other = 1000 * features - 3
    two = PseudoMargin(**options).fit(other, margins).predict(other)
    torch.testing.assert_close(one, two, rtol=1e-3, atol=1e-4)
    three = PseudoMargin(**options).fit(features, 8 * margins).predict(features)
    torch.testing.assert_close(8 * one, three, rtol=1e-5, atol=0)


@pytest.mark.parametrize(
    ("features", "margins", "message"),
    [
        ([[1.0], [2.0]], [0.1], "input_margin: expected 2 numbers, got 1"),
        ([[1.0], [2.0]], [0.1, 0.2], "enough samples to hold out a fifth, got 2"),
        ([[1.0]] * 5, [0.1] * 4 + [np.inf], "expected finite margins.* got inf"),
        ([[1.0]] * 5, [0.0] * 5, "some of them above 0, got 0"),
        ([[np.nan]] * 5, [0.1] * 5, "features: expected finite"),
        ([[[1.0]]] * 5, [0.1] * 5, r"features: expected shape \(N, D\)"),
    ],
)
def test_bad_input(features, margins, message):
    with pytest.raises(ValueError, match=message):
        PseudoMargin().fit(features, margins)


def test_bad_options_and_shapes(fitted):
    for options in ({"width": 0}, {"patience": 0}, {"seed": -1}):
        (name,) = options
        with pytest.raises(ValueError, match=f"{name}: expected"):
            PseudoMargin(**options).fit([[1.0]] * 9, [0.1] * 9)
    with pytest.raises(ValueError, match="features: expected 6 per sample"):
        fitted.predict([[1.0, 2.0]])
    with pytest.raises(NotFittedError, match="not fitted yet"):
        PseudoMargin().predict([[1.0]])
