"""The studies of chapter 20: their rows are complete, and say what they must."""

import numpy as np
import pytest

from robustbook.average_case import monte_carlo
from robustbook.average_case.parts import linear_probability, set_up
from robustbook.datasets import load_dataset
from robustbook.models import load_model
from robustbook.studies.average_case._estimates import ESTIMATORS, fitted, reference
from robustbook.studies.average_case._sharper import focused, sharpened
from robustbook.studies.average_case.average_case_speed import FITS
from robustbook.studies.results import load_reported


def test_rows_are_complete(average_case_errors):
    rows = average_case_errors.frame(what="error")
    assert not rows.duplicated(["model", "sigma", "estimator"]).any()
    for _, estimators in rows.groupby(["model", "sigma"]).estimator:
        assert set(estimators) == set(ESTIMATORS)


def test_taylor_and_pairs_are_exact_for_the_linear_model(average_case_errors):
    where = {"what": "error", "model": "digits-linear-s0"}
    pairs, plain = (
        average_case_errors.select(**where, estimator=name)
        for name in ("mmse_pairs", "taylor")
    )
    for pair, tangent in zip(pairs, plain, strict=True):
        assert abs(tangent["mse"]) < 4 * tangent["mse_se"] + 1e-5
        assert tangent["mean_abs"] < 2 * tangent["floor"] + 1e-3
        assert pair["mean_abs"] == pytest.approx(tangent["mean_abs"], abs=2e-3)


def _plain(problem, fit, seed):
    return reference(problem, 0.4, fit, 300, False, [seed, 0])


def _focused(problem, fit, seed):
    return focused(problem, 0.4, fit, 2e-4, 300, [seed, 0])


@pytest.fixture(scope="module")
def case():
    """A network, images, their robustness, and a linear fit."""
    model = load_model("digits-cnn-s0").eval()
    data = load_dataset("digits", "test").subset(slice(24))
    problem = set_up(model, data.images, [0.4])
    fit = fitted(problem, 0.4, 4, 1, antithetic=True)
    truth = monte_carlo(model, data.images, 0.4, samples=3000, seed=5)
    return model, data, problem, fit, truth


@pytest.mark.parametrize("estimate", [_plain, _focused])
@pytest.mark.parametrize("moved", [0.0, 0.5])
def test_reference_is_unbiased_whatever_the_fit(case, estimate, moved):
    _, data, problem, fit, truth = case
    margins = fit.margins + moved
    exact = linear_probability(
        margins, fit.gram, problem.sigmas, seed=0, points=1024
    ).probability[0]
    wrong = fit._replace(margins=margins, probability=exact)
    gaps, variances = [], []
    for seed in range(4):
        found = estimate(problem, wrong, seed)
        gaps.append(found["monte_carlo"] - truth.probability.numpy())
        variances.append(found["variance"])
        assert found["trials"].mean() <= 315
    own = (truth.standard_error**2).mean().item()
    error = np.mean(variances)
    assert abs(np.mean(gaps)) < 4 * np.sqrt((error / 4 + own) / len(data))
    assert 0.5 < (np.square(gaps).mean() - own) / error < 2
    # Few noisy inputs are spent on the surest prediction.
    surest = int(truth.probability.argmax())
    most = found["trials"].mean() / (2 if estimate is _plain else 1)
    assert found["trials"][surest] < most


def test_sharper_references_come_near_the_share(case):
    model, data, problem, fit, truth = case
    coarse = reference(problem, 0.4, fit, 60, False, [0, 0])
    arrays = {name: values[None] for name, values in coarse.items()}
    arrays["mmse_pairs"] = fit.probability.numpy()[None]
    options = {"sigmas": [0.4], "fits": 4, "most": 3000, "seed": 0}
    found = sharpened(model, data, arrays, share=0.1, **options)
    value, variance = found["monte_carlo"][0], found["variance"][0]
    square = ((arrays["mmse_pairs"][0] - value) ** 2 - variance).mean()
    assert 0.07 < np.sqrt(variance.mean() / square) < 0.14
    assert (found["trials"] >= arrays["trials"]).all()
    gap, own = value - truth.probability.numpy(), (truth.standard_error**2).numpy()
    assert abs(gap.mean()) < 4 * np.sqrt((variance + own).mean() / len(gap))
    # What is sharp enough stays as it is.
    again = sharpened(model, data, arrays | found, share=0.2, **options)
    assert all((again[name] == found[name]).all() for name in found)


def test_differences_are_those_of_the_errors(average_case_errors):
    for row in average_case_errors.select(what="difference"):
        keys = {"what": "error", "model": row["model"], "sigma": row["sigma"]}
        tangent, pairs = (
            average_case_errors.select(**keys, estimator=name)[0]["mse"]
            for name in ("taylor", "mmse_pairs")
        )
        assert row["mse"] == pytest.approx(tangent - pairs, abs=1e-8)
        assert row["mse_reference_se"] <= row["mse_se"] + 1e-9 or row["mse_se"] < 1e-5


def test_speed_rows(average_case_speed):
    rows = average_case_speed.rows
    printed = load_reported("average_case_table_3").frame()
    assert {row["estimator"] for row in rows} == set(printed.estimator)
    assert tuple(printed[printed.estimator == "mmse"].samples) == FITS
    at = {(row["way"], row["estimator"]): row for row in rows}
    for way in ("serial", "batched"):
        slow, fast = at[way, "monte_carlo"], at[way, "taylor"]
        assert slow["samples"] == 10_000
        assert slow["seconds"] > 5 * fast["seconds"]
