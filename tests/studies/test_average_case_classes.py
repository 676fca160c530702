"""Few classes instead of all: bounds, and what they are compared with."""

import numpy as np
import pytest

from robustbook.average_case import taylor
from robustbook.datasets import load_dataset
from robustbook.models import load_model
from robustbook.studies.average_case import average_case_classes as study


@pytest.fixture(scope="module")
def all_classes():
    """Taylor's estimate with every class, by noise and picture."""
    (setting,) = study.SETTINGS["quick"]
    images = load_dataset("digits", "test").images[: setting.samples]
    model = load_model("digits-cnn-s0").eval()
    values = taylor(model, images, setting.sigmas, points=1024).probability
    return dict(zip(setting.sigmas, values.tolist(), strict=True))


def test_few_classes_enclose_all(average_case_classes, all_classes):
    for row in average_case_classes.rows:
        truth = all_classes[row["sigma"]][row["index"]]
        assert row["reduced"] - row["rest"] - 1e-4 <= truth <= row["reduced"] + 1e-4
        assert row["reduced"] <= row["one"] + 1e-4
        assert row["slack"] < 1


def test_tangent_that_is_sampled_is_the_tangent_that_is_integrated(
    average_case_classes, all_classes
):
    rows = average_case_classes.rows
    truth = np.array([all_classes[row["sigma"]][row["index"]] for row in rows])
    off = np.array([row["sampled"] for row in rows]) - truth
    error = np.sqrt((truth * (1 - truth)).sum() / rows[0]["draws"]) / len(rows)
    assert abs(off.mean()) < 4 * error


def test_bound_of_slopes_is_that_of_a_chi_squared_number():
    draws = 48
    drawn = np.random.default_rng(0).chisquare(draws, 200_000) / draws
    # Very many classes, each with a slope of 1.
    assert 1 < study.bounded(drawn, draws).min() < 4
