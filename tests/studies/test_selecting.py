"""Epochs chosen by a score, one for each training, and none lost without a word."""

import numpy as np
import pandas as pd
import pytest

from robustbook.studies.selecting import mean_interval, select_epochs


def epochs(**changes):
    rows = {
        "training_seed": [0, 0, 1, 1],
        "epoch": [1, 2, 1, 2],
        "pa": [1.1, 0.9, 0.7, 0.7],
        "accuracy": [0.3, 0.9, 0.4, 0.8],
    }
    return pd.DataFrame(rows | changes)


def test_the_best_epoch_of_each_training():
    assert select_epochs(epochs(), "pa").epoch.tolist() == [1, 1]
    assert select_epochs(epochs(), "pa", ties="last").epoch.tolist() == [1, 2]
    guarded = select_epochs(epochs(), "pa", guard="accuracy", least=0.9)
    assert guarded.epoch.tolist() == [2, 2]


@pytest.mark.parametrize(
    ("table", "options", "message"),
    [
        (epochs(pa=[np.nan] * 2 + [0.7] * 2), {}, "no epoch with a known pa"),
        (epochs().drop(columns="training_seed"), {}, "none of the columns"),
        (epochs(accuracy=[-1.0] * 4), {"guard": "accuracy"}, "at least 0"),
        (epochs(accuracy=[np.nan] * 4), {"guard": "accuracy"}, "at least 0"),
        (epochs(), {"guard": "accuracy", "least": 1.5}, "least from 0 to 1"),
    ],
)
def test_no_training_is_lost_without_a_word(table, options, message):
    with pytest.raises(ValueError, match=message):
        select_epochs(table, "pa", **options)


@pytest.mark.parametrize("values", [[1.0], [1.0, np.nan], [1.0, np.inf], [[1.0], [2]]])
def test_an_interval_needs_finite_values(values):
    with pytest.raises(ValueError, match="at least 2 finite numbers"):
        mean_interval(values)
