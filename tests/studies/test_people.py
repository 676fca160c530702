"""The study of networks and people: its quick rows against direct computation."""

import math

import numpy as np
import pytest
import torch

from robustbook.agreement import soft_label_agreement
from robustbook.models import load_model, logits_of
from robustbook.studies.families import matched_difference
from robustbook.studies.people import MEASURES, SETTINGS, _Measured, made_up_votes

from ..conftest import SEED

NETWORKS, PEOPLE = SETTINGS["quick"]


def logits(name):
    return logits_of(load_model(name).eval(), NETWORKS.data().images).double().numpy()


@pytest.fixture(scope="module")
def votes():
    (name,) = PEOPLE.models
    return made_up_votes(torch.tensor(logits(name)), seed=SEED)


def test_rows_of_a_network_are_its_agreements(people, votes):
    name = "digits-cnn-noise-s1"
    row, scores = people.row(what="model", model=name), logits(name)
    crowd = soft_label_agreement(scores, votes)
    assert row["crowd"] == pytest.approx(crowd.pa)
    assert row["crowd_se"] == pytest.approx(crowd.standard_error)
    labels = NETWORKS.data().labels.numpy()
    one_hot = soft_label_agreement(scores, np.eye(10)[labels])
    assert row["labels"] == pytest.approx(one_hot.pa)
    # Of cross-entropies, a random person's and that of a person who does not
    # name the label, at the row's inverse temperatures.
    tempered = torch.tensor(scores * row["person_beta"]).log_softmax(1).numpy()
    expected = (votes * (tempered + math.log(10))).sum() / votes.sum()
    assert row["person"] == pytest.approx(expected)
    other = np.arange(10) != labels[:, None]
    nine = torch.tensor(scores[other].reshape(-1, 9) * row["second_beta"])
    dissent = votes[other].reshape(-1, 9)
    expected = (dissent * (nine.log_softmax(1).numpy() + math.log(9))).sum()
    assert row["second"] == pytest.approx(expected / dissent.sum())
    assert row["same"] == pytest.approx(
        votes[np.arange(300), scores.argmax(1)].sum() / votes.sum()
    )


def test_no_network_and_no_half_of_the_people_passes_the_most_that_can_be_had(people):
    crowd = people.row(what="people")
    for row in (crowd, *people.select(what="model")):
        for measure in MEASURES[1:]:
            assert row[measure] <= crowd[f"{measure}_cap"]
        assert row["person"] <= row["crowd"] + 1e-6


def test_the_error_of_equal_counts_is_that_of_a_mean():
    values = np.random.default_rng(0).normal(size=50)
    one = _Measured(values, np.full(50, 2.0))
    assert one.value == pytest.approx(values.mean() / 2)
    assert one.error == pytest.approx(values.std(ddof=1) / 50**0.5 / 2)


def test_networks_are_compared_at_the_same_level():
    level = np.random.default_rng(1).normal(size=9)
    treated = np.arange(9) % 2
    values = 3.0 - 2.0 * level + 0.7 * treated
    assert matched_difference(values, level, treated) == pytest.approx(0.7)
