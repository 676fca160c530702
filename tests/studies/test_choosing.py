"""The study of choosing by agreement: its judges, and what cannot be otherwise."""

import math

import numpy as np
import pytest
from scipy.special import log_softmax

from robustbook.agreement import posterior_agreement
from robustbook.studies.choosing import ORDERS, best_scale, log_loss, matching


def test_every_problem_has_each_candidate_once_and_all_its_judges(choosing):
    rows = [row for row in choosing.rows if row["task"] == "mixture"]
    assert len({row["seed"] for row in rows}) == 3
    for seed in {row["seed"] for row in rows}:
        orders = [row["candidate"] for row in rows if row["seed"] == seed]
        assert orders == list(ORDERS)
    for row in choosing.rows:
        judges = {"width": "accuracy", "clusters": "silhouette", "mixture": "bic"}
        assert math.isfinite(row[judges.get(row["task"], "likelihood")])


def test_agreement_of_groups_is_at_most_the_logarithm_of_their_number(choosing):
    rows = [row for row in choosing.rows if row["task"] in ("mixture", "clusters")]
    assert all(
        0 <= row["pa_folds"] <= math.log(row["candidate"]) + 1e-9 for row in rows
    )
    assert all(0 <= row["stability"] <= 1 for row in rows)


def test_matching_finds_a_permutation_of_the_groups():
    random = np.random.default_rng(0)
    scores = 5 * random.normal(size=(200, 6))
    order = random.permutation(6)
    assert np.array_equal(order[matching(scores, scores[:, order])], np.arange(6))


def test_the_best_scale_undoes_a_temperature():
    random = np.random.default_rng(0)
    scores = 2 * random.normal(size=(20000, 3))
    chances = np.exp(log_softmax(scores, axis=1)).cumsum(axis=1)
    labels = (random.random((20000, 1)) > chances).sum(axis=1)
    scale = best_scale(4 * scores, labels)
    assert scale == pytest.approx(0.25, rel=0.05)
    assert log_loss(4 * scale * scores, labels) < log_loss(4 * scores, labels)


def test_halving_a_group_undecidedly_is_paid():
    certain = 30.0 * np.eye(3)[np.arange(99) % 3]
    halved = np.hstack([certain, certain[:, :1]])
    raised = posterior_agreement(halved, halved).pa - math.log(3)
    assert raised >= math.log(4 / 3) - math.log(2) / 3 - 1e-9 > 0


def test_an_empty_group_is_paid_the_whole_prize():
    draws = np.random.default_rng(0).normal(size=(2, 50, 4))
    empty = np.concatenate([draws, np.full((2, 50, 1), -1e6)], axis=2)
    few, more = posterior_agreement(*draws), posterior_agreement(*empty)
    assert more.pa - few.pa == pytest.approx(math.log(5 / 4), abs=1e-6)
