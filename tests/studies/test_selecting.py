"""Epochs chosen by a score, one for each training, and none lost without a word."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import ttest_1samp

from robustbook.studies.selecting import mean_interval, select_epochs

BY = ["training_seed"]


def epochs(**changes):
    rows = {
        "training_seed": [0, 0, 1, 1],
        "epoch": [1, 2, 1, 2],
        "pa": [1.1, 0.9, 0.7, 0.7],
        "accuracy": [0.3, 0.9, 0.4, 0.8],
    }
    return pd.DataFrame(rows | changes)


def test_the_best_epoch_of_each_training():
    def chosen(**options):
        return select_epochs(epochs(), "pa", by=BY, **options).epoch.tolist()

    assert chosen() == [1, 1]
    assert chosen(ties="last") == [1, 2]
    assert chosen(guard="accuracy", least=0.9) == [2, 2]
    # The most accurate epoch itself takes part where nothing less does.
    assert chosen(guard="accuracy", least=1) == [2, 2]


def test_trainings_that_differ_elsewhere_are_not_merged():
    table = pd.concat([epochs(network="small"), epochs(network="large", pa=2.0)])
    table = table.reset_index(drop=True)
    with pytest.raises(ValueError, match="two rows of"):
        select_epochs(table, "pa", by=BY)
    apart = select_epochs(table, "pa", by=["network", *BY])
    assert apart.pa.tolist() == [1.1, 0.7, 2.0, 2.0]
    # To select the network, too, is another question, and has to be asked.
    best = select_epochs(table, "pa", by=BY, among=["network"])
    assert best.network.tolist() == ["large", "large"]


@pytest.mark.parametrize(
    ("table", "options", "message"),
    [
        (epochs(pa=[np.nan] * 2 + [0.7] * 2), {}, "no epoch with a known pa"),
        (epochs().drop(columns="training_seed"), {}, "no column 'training_seed'"),
        (epochs(), {"by": []}, "by: expected"),
        (epochs(accuracy=[-1.0] * 4), {"guard": "accuracy"}, "at least 0"),
        (epochs(accuracy=[np.nan] * 4), {"guard": "accuracy"}, "at least 0"),
        (epochs(), {"guard": "accuracy", "least": 1.5}, "least from 0 to 1"),
    ],
)
def test_no_training_is_lost_without_a_word(table, options, message):
    with pytest.raises(ValueError, match=message):
        select_epochs(table, "pa", **{"by": BY, **options})


def test_an_interval_of_few_values_with_a_common_error_holds_the_truth():
    random = np.random.default_rng(0)
    held = []
    for own, error in [(1.0, 0.0), (1.0, 1.0), (0.2, 1.0)] * 500:
        values = error * random.normal() + own * random.normal(size=3)
        _, low, high = mean_interval(values, error=error)
        held.append(low < 0 < high)
    each = np.reshape(held, (-1, 3)).mean(0)
    assert (abs(each - 0.95) < 0.035).all()
    # Without a common error it is Student's.
    low, high = ttest_1samp(values, 0.0).confidence_interval()
    assert mean_interval(values)[1:] == pytest.approx((low, high))


@pytest.mark.parametrize("values", [[1.0], [1.0, np.nan], [1.0, np.inf], [[1.0], [2]]])
def test_an_interval_needs_finite_values(values):
    with pytest.raises(ValueError, match="at least 2 finite numbers"):
        mean_interval(values)
