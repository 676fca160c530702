"""Counts and costs of the control variate against what theory says of them."""

import math

import numpy as np
import pytest

from robustbook.average_case import monte_carlo
from robustbook.datasets import load_dataset
from robustbook.models import load_model

LINEAR, NETWORK = "digits-linear-s0", "digits-cnn-s0"


def test_the_linearization_of_a_linear_model_is_the_model(control_variate_gain):
    rows = control_variate_gain.select(what="image", model=LINEAR)
    assert rows
    # Rounding may decide a tie.
    apart = [row["kept"] + row["taylor"] - 2 * row["taylor_both"] for row in rows]
    assert max(apart) <= 1
    for row in rows:
        share, exact = row["kept"] / row["samples"], row["taylor_exact"]
        error = math.sqrt(exact * (1 - exact) / row["samples"])
        assert abs(share - exact) < 5 * error + 2e-3


def test_counts_are_those_of_monte_carlo(control_variate_gain):
    sigma = 0.4
    rows = control_variate_gain.select(what="image", model=NETWORK, sigma=sigma)
    images = load_dataset("digits", "test").images[: len(rows)]
    model = load_model(NETWORK).eval()
    other = monte_carlo(model, images, sigma, samples=2000, seed=123)
    shares = np.array([row["kept"] / row["samples"] for row in rows])
    error = other.standard_error.numpy() * math.sqrt(1 + 2000 / rows[0]["samples"])
    assert (np.abs(shares - other.probability.numpy()) < 5 * error).all()


@pytest.mark.parametrize("kind", ["taylor", "mmse"])
def test_counts_fit_together(control_variate_gain, kind):
    for row in control_variate_gain.select(what="image"):
        both, own, other = row[f"{kind}_both"], row["kept"], row[kind]
        assert max(0, own + other - row["samples"]) <= both <= min(own, other)
        exact = row[f"{kind}_exact"]
        error = math.sqrt(exact * (1 - exact) / row["samples"])
        assert abs(other / row["samples"] - exact) < 5.5 * error + 5e-3


def test_plain_monte_carlo_errs_as_the_formula_says(control_variate_gain):
    rows = control_variate_gain.select(what="cost", estimator="monte_carlo")
    (sigma,) = {row["sigma"] for row in rows}
    count = control_variate_gain.select(what="coverage")[0]["images"]
    some = control_variate_gain.select(what="image", model=NETWORK, sigma=sigma)[:count]
    share = np.array([row["kept"] / row["samples"] for row in some])
    for row in rows:
        expected = float((share * (1 - share)).mean()) / row["samples"]
        assert 0.5 < row["mse"] / expected < 2


def test_gains_are_counted_at_equal_calls(control_variate_gain):
    for row in control_variate_gain.select(what="cost", estimator="monte_carlo"):
        assert row["calls"] == row["samples"]
        assert abs(row["ratio"] - 1) < 4 * row["ratio_se"]
    for row in control_variate_gain.select(
        what="cost", estimator="control_variate_mmse"
    ):
        assert row["calls"] == row["samples"] + 10 * 10
        single = control_variate_gain.select(
            what="gain", estimator="control_variate_mmse", samples=row["samples"]
        )
        p = np.array([image["probability"] for image in single])
        mse = np.array([image["mse"] for image in single])
        expected = (p * (1 - p)).mean() / row["calls"] / mse.mean()
        assert row["ratio"] == pytest.approx(expected, rel=1e-3)


def test_unbiased_estimates_have_no_bias_and_honest_intervals(control_variate_gain):
    for row in control_variate_gain.select(what="cost"):
        if row["estimator"] not in ("taylor", "mmse"):
            assert abs(row["bias"]) < 4 * row["bias_se"] + 2e-3
    for row in control_variate_gain.select(what="coverage"):
        trials = row["images"] * row["repeats"]
        assert row["coverage"] > 0.95 - 5 * math.sqrt(0.05 * 0.95 / trials)
