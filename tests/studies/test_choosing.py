"""The study of choosing by agreement: its judges, and what cannot be otherwise."""

import itertools
import math
from collections import defaultdict
from functools import partial

import numpy as np
import pytest
from scipy.special import log_softmax, softmax
from sklearn.cluster import KMeans
from sklearn.datasets import make_classification
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import StratifiedKFold
from sklearn.neural_network import MLPClassifier

from robustbook.agreement import posterior_agreement
from robustbook.datasets import load_dataset
from robustbook.studies import choosing as study
from robustbook.studies.choosing import (
    SETTINGS,
    ChoosingSetting,
    matching,
)
from robustbook.studies.run import Run

from ..conftest import SEED


def test_rows_of_networks_are_those_of_fits_by_hand(choosing):
    """Two folds fit, the temperature is of one, and what is judged is of the other."""
    train, test = (load_dataset("digits", split) for split in ("train", "test"))
    inputs, unseen = (data.images.flatten(1).double().numpy() for data in (train, test))
    random = np.random.default_rng([SEED, 0])
    labeled, rest = np.split(random.permutation(len(inputs)), [180])
    labels = train.labels.numpy()[labeled]
    drawn = random.integers(10, size=180)
    labels = np.where(random.random(180) < 0.2, drawn, labels)
    copies = [
        inputs[rest[:200]] + 0.15 * random.normal(size=(200, 64)) for _ in range(2)
    ]
    inputs = inputs[labeled]
    split = StratifiedKFold(3, shuffle=True, random_state=SEED)
    folds = [fold for _, fold in split.split(inputs, labels)]

    def fitted(rows):
        network = MLPClassifier(
            (64,), alpha=1.0, learning_rate_init=0.005, batch_size=50, max_iter=15,
            tol=0.0, n_iter_no_change=15, random_state=SEED,
        )  # fmt: skip
        with pytest.warns(ConvergenceWarning):
            return network.fit(inputs[rows], labels[rows])

    def log_chances(network, some):
        return np.log(np.maximum(network.predict_proba(some), 1e-300))

    def likelihood(logits, fold, scale=1.0):
        chances = log_softmax(scale * logits, axis=1)
        return chances[np.arange(len(fold)), labels[fold]].mean()

    networks, found = [fitted(fold) for fold in folds], defaultdict(list)
    for own, tuned, judged in itertools.permutations(range(3)):
        at = {k: log_chances(networks[own], inputs[folds[k]]) for k in (tuned, judged)}
        scales = np.exp(np.linspace(-5, 3, 2001))
        best = max(scales, key=partial(likelihood, at[tuned], folds[tuned]))
        found["likelihood"].append(likelihood(at[judged], folds[judged], best))
        right = at[judged].argmax(1) == labels[folds[judged]]
        found["accuracy"].append(right.mean())
        other = log_chances(networks[tuned], inputs[folds[judged]])
        found["pa_folds"].append(posterior_agreement(at[judged], other).pa)
    network = fitted(np.arange(180))
    shifted = (log_chances(network, copy) for copy in copies)
    by_hand = {name: np.mean(values) for name, values in found.items()}
    by_hand["pa_shifts"] = posterior_agreement(*shifted).pa
    by_hand["error"] = (network.predict(unseen) != test.labels.numpy()).mean()
    where = {"dataset": "digits", "task": "penalty", "seed": SEED}
    (row,) = (r for r in choosing.select(**where) if r["candidate"] == 1)
    assert by_hand == pytest.approx({k: row[k] for k in by_hand}, abs=1e-4)


def test_nothing_of_the_test_inputs_is_in_what_is_fitted(monkeypatch):
    setting = ChoosingSetting(dataset="made up", problems=1, tasks=(), epochs=2)
    run = Run("choosing", "quick", 0, "cpu", (setting,))

    def judged():
        rows = study.measure(run, 3, "width")
        return [{k: v for k, v in row.items() if k != "error"} for row in rows]

    plain = judged()

    def other_tests(*given, **how):
        inputs, labels = make_classification(*given, **how)
        inputs[500:] = 1 - 10 * inputs[500:]
        return inputs, labels

    monkeypatch.setattr(study, "make_classification", other_tests)
    assert judged() == plain


def test_clusterings_are_judged_where_neither_was_fitted(choosing):
    (setting,) = (one for one in SETTINGS["quick"] if one.dataset == "orders")
    folds, _ = study._folds_of_groups(setting, SEED)
    kinds = [KMeans(3, n_init=5, random_state=SEED).fit(fold) for fold in folds]
    agreement, same = [], []
    for left, (one, two) in zip(folds, [(1, 2), (0, 2), (0, 1)], strict=True):
        first, second = (-(kinds[k].transform(left) ** 2) for k in (one, two))
        orders = [second[:, order] for order in itertools.permutations(range(3))]
        chances = softmax(first, axis=1)
        best = max(orders, key=lambda side: (chances * softmax(side, axis=1)).sum())
        agreement.append(posterior_agreement(first, best).pa)
        same.append((first.argmax(1) == best.argmax(1)).mean())
    rows = choosing.select(dataset="orders", task="clusters", seed=SEED, candidate=3)
    by_hand = {"pa_folds": np.mean(agreement), "stability": np.mean(same)}
    assert by_hand == pytest.approx({k: rows[0][k] for k in by_hand})


def test_matching_finds_a_permutation_of_the_groups():
    random = np.random.default_rng(0)
    scores = 5 * random.normal(size=(200, 6))
    order = random.permutation(6)
    assert np.array_equal(order[matching(scores, scores[:, order])], np.arange(6))


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
