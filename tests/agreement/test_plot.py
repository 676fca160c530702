"""Pictures and tables of results, and of the metric."""

import math
import sys

import matplotlib as mpl
import numpy as np
import pytest
from random_views import noisy

from robustbook.agreement import (
    PosteriorAgreement,
    agreement_curve,
    posterior_agreement,
)

mpl.use("agg")


@pytest.fixture
def pair():
    return [3 * view for view in noisy(0, samples=80, classes=5, noise=0.7)]


@pytest.fixture(autouse=True)
def close_figures():
    yield
    sys.modules["matplotlib.pyplot"].close("all")


def line(axes, label):
    (curve,) = (line for line in axes.lines if str(line.get_label()).startswith(label))
    return np.asarray(curve.get_xdata()), np.asarray(curve.get_ydata())


@pytest.mark.parametrize("prior", [None, [0.4, 0.3, 0.1, 0.1, 0.1]])
def test_the_curve_is_the_kernel_and_its_optimum_is_marked(pair, prior):
    result = posterior_agreement(*pair, prior=prior)
    figure, axes = result.plot(*pair, prior=prior)
    betas, values = line(axes, "J")
    exact = agreement_curve(*pair, betas.tolist(), prior=prior).numpy()
    assert np.abs(values - exact).max() < 2e-3 * result.pa
    assert values[0] == pytest.approx(exact[0], abs=1e-12)
    assert line(axes, "PA") == ([result.beta], [result.pa])
    assert axes.get_figure() is figure


def test_without_logits_the_curve_goes_through_the_evaluated_points(pair):
    result = posterior_agreement(*pair)
    _, axes = result.plot()
    betas, values = line(axes, "J")
    near = np.abs(np.log(betas[1:] / result.beta)) < 0.3
    exact = agreement_curve(*pair, betas[1:][near].tolist()).numpy()
    assert np.abs(values[1:][near] - exact).max() < 2e-3 * result.pa
    assert len(axes.get_legend().get_texts()) == 2


def test_an_optimum_at_infinity_is_a_line(pair):
    clean, _ = pair
    result = posterior_agreement(clean, clean)
    assert math.isinf(result.beta)
    for arguments in ((), (clean, clean)):
        _, axes = result.plot(*arguments)
        assert set(line(axes, "PA")[1]) == {result.pa}


def test_other_logits_than_those_measured_are_refused(pair):
    clean, shifted = pair
    result = posterior_agreement(clean, shifted)
    with pytest.raises(ValueError, match=r"logits: expected shape \(80, 5\), as in"):
        result.plot(clean[:3], shifted[:3])
    with pytest.raises(ValueError, match="logits and the prior that were measured"):
        result.plot(clean, clean)
    with pytest.raises(ValueError, match="at beta=inf, got -inf"):
        posterior_agreement(clean, clean).plot(clean, shifted)


def test_it_draws_on_the_axes_that_are_passed(pair):
    figure = mpl.figure.Figure()
    axes = figure.subplots()
    assert posterior_agreement(*pair).plot(ax=axes) == (figure, axes)
    metric = PosteriorAgreement()
    values = [metric(*pair), metric(pair[0], pair[0])]
    assert metric.plot(values, ax=axes)[1] is axes
    assert axes.lines[-1].get_xdata().tolist() == [0, 1]


def test_a_row_of_numbers(pair):
    result = posterior_agreement(*pair)
    (row,) = result.to_frame().to_dict("records")
    assert (row["pa"], row["gap"], row["num_samples"]) == (result.pa, result.gap, 80)


@pytest.mark.parametrize(
    ("package", "call"), [("matplotlib.pyplot", "plot"), ("pandas", "to_frame")]
)
def test_a_missing_package_is_named_with_its_extra(pair, monkeypatch, package, call):
    result = posterior_agreement(*pair)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=r'pip install "robustbook\[plot\]"'):
        getattr(result, call)()
