"""The studies of Part III: rows complete, scores right, trainings that go on."""

import math
from itertools import product

import numpy as np
import pytest
import torch
from sklearn.decomposition import PCA

from robustbook.agreement import posterior_agreement
from robustbook.datasets.diagvib import OPPORTUNITIES
from robustbook.studies import STUDIES
from robustbook.studies.domains import _recorded
from robustbook.studies.domains._pictures import FACTORS
from robustbook.studies.domains._pictures import PRINTED_AND_CONFIGURED as SETUPS
from robustbook.studies.domains._recorded import (
    DIGITS,
    _next_of_class,
    criteria,
    watch_training,
)
from robustbook.studies.domains._training import COMPARED_LEARNERS as LEARNERS
from robustbook.studies.domains.components import (
    picture_numbers,
    principal_component,
    shares_of_variance,
)
from robustbook.studies.domains.domain_bias import LEARNERS as WATCHED_LEARNERS
from robustbook.studies.run import Run

from ..conftest import SEED

TWO = range(SEED, SEED + 2)
_TRAINED = ("learner", "training_seed", "epoch")
COLUMNS = {
    "domain_bias": _TRAINED,
    "domain_learners": ("setup", *_TRAINED),
    "regime_learners": ("setup", *_TRAINED),
    "domain_selection": ("factor", *_TRAINED),
    "domain_shortcuts": ("setting", "factor", *_TRAINED),
}
PLANS = {name: STUDIES[name].settings("quick")[0] for name in COLUMNS}
EXPECTED = {
    "domain_bias": (WATCHED_LEARNERS, TWO),
    "domain_learners": (SETUPS, LEARNERS, TWO),
    "regime_learners": (("printed",), LEARNERS, TWO),
    "domain_selection": (FACTORS, ("ERM", "IRM", "LISA"), TWO),
    "domain_shortcuts": (OPPORTUNITIES, FACTORS, ("ERM", "IRM"), TWO),
}


def keys_of(rows, columns):
    """Their values in some columns, each once."""
    found = [tuple(row[name] for name in columns) for row in rows]
    assert len(found) == len(set(found))
    return set(found)


@pytest.mark.parametrize("name", COLUMNS)
def test_every_training_has_every_epoch(quick, name):
    rows = [row for row in quick(name).rows if row.get("what", "epoch") == "epoch"]
    assert PLANS[name].seeds == len(TWO)
    epochs = range(1, PLANS[name].epochs + 1)
    assert keys_of(rows, COLUMNS[name]) == {*product(*EXPECTED[name], epochs)}


# ------------------------------------------------------------ pictures of components


@pytest.fixture
def features():
    """Forty pairs in five dimensions, and their classes."""
    generator = np.random.default_rng(0)
    labels = np.arange(40) % 2
    first = generator.normal(size=(40, 5)) @ np.diag([5.0, 2.0, 1.0, 1.0, 0.5])
    first[:, 0] += 6.0 * labels
    return first, first + 0.3 * generator.normal(size=(40, 5)), labels


def test_the_fifth_epoch_has_a_picture_of_which_the_numbers_are(domain_bias):
    pictures = domain_bias.select(what="picture")
    assert keys_of(pictures, COLUMNS["domain_bias"]) == {
        (*one, 5) for one in product(*EXPECTED["domain_bias"])
    }
    for row in pictures:
        where = {key: row[key] for key in COLUMNS["domain_bias"]}
        epoch = domain_bias.row(what="epoch", **where)
        x, y = (np.array(row[name].split(), float) for name in ("first", "second"))
        assert len(row["labels"]) == len(x) == len(y) == 96
        error = 2 * (1 - np.corrcoef(x, y)[0, 1])
        assert error == pytest.approx(epoch["error"], abs=0.02)


def test_component_is_that_of_scikit_learn(features):
    first, _, labels = features
    mine = principal_component(first, labels)
    other = PCA(n_components=1).fit_transform(first)[:, 0]
    assert abs(mine) == pytest.approx(abs(other) / other.std())
    assert mine[labels == 1].mean() > mine[labels == 0].mean()
    assert principal_component(np.ones((4, 3)), np.array([0, 0, 1, 1])) is None


def test_the_picture_sees_no_rotation_step_or_scale(features):
    """The second sample may be moved far away, and the picture stays."""
    first, second, labels = features
    turn, _ = np.linalg.qr(np.random.default_rng(1).normal(size=(5, 5)))
    before = picture_numbers(first, second, labels)
    after = picture_numbers(first, 3.0 * second @ turn + 100.0, labels)
    for name in ("error", "class_second"):
        assert after[name] == pytest.approx(before[name])
    assert after["features_domain"] > 0.9 > before["features_domain"] + 0.8


def test_shares_of_variance_find_what_was_put_in():
    generator = np.random.default_rng(2)
    labels = np.arange(60) % 2
    base, side = np.zeros((60, 3)), (2 * labels[:, None] - 1) * [0, 0, 1.0]
    parts = {
        "class": (labels[:, None] * [2.0, 0, 0], labels[:, None] * [2.0, 0, 0]),
        "domain": (base, base + np.array([0, 1.0, 0])),
        "domain_by_class": (base + side, base - side),
    }
    for name, pair in parts.items():
        assert shares_of_variance(*pair, labels)[name] == pytest.approx(1)
    found = shares_of_variance(*generator.normal(size=(2, 60, 3)), labels)
    assert sum(found.values()) == pytest.approx(1)
    assert found["digit"] > 0.3
    assert found["domain_by_digit"] > 0.3
    assert shares_of_variance(base, base, labels) == {}


def test_features_that_do_not_vary_have_no_picture(features):
    first, _, labels = features
    numbers = picture_numbers(first, np.ones_like(first), labels)
    assert {"error", "class_second"}.isdisjoint(numbers)
    assert numbers["class_first"] > 0
    assert picture_numbers(first * 0, first * 0, labels) == {}


# ------------------------------------------------------------------------- trainings


@pytest.mark.processor
def test_a_training_by_itself_ends_with_the_features_of_the_rows(domain_bias):
    run = Run("test", "quick", SEED, "cpu", (PLANS["domain_bias"],))
    watched = watch_training(run, "printed", "IRM", SEED)
    where = {"learner": "IRM", "training_seed": SEED}
    rows = domain_bias.select(what="epoch", **where)
    assert [row["loss"] for row in rows] == [row["loss"] for row in watched.epochs]
    for row, (first, second) in zip(rows, watched.features, strict=True):
        numbers = picture_numbers(first, second, watched.labels)
        assert numbers["error"] == pytest.approx(row["error"], abs=1e-7)


# -------------------------------------------------------------------------- learners


def test_every_training_meets_every_pair_and_scores_fit_together(domain_learners):
    ratios = (0.2, 0.4, 0.6, 0.8, 1.0)
    rows = domain_learners.select(what="pair")
    columns = (*COLUMNS["domain_learners"][:3], "digits", "factors", "ratio")
    assert keys_of(rows, columns) == {
        (*one, digits, factors, ratio)
        for one in product(*EXPECTED["domain_learners"])
        for digits, factors in product(DIGITS, range(6))
        for ratio in (ratios if factors else (1.0,))
    }
    for row in rows:
        assert row["pa"] <= row["same_answer_rate"] * math.log(2) + 1e-9
        if row["digits"] == "same" and row["factors"] == 0:
            assert row["first_accuracy"] == row["shifted_accuracy"]
            assert row["pa"] == pytest.approx(math.log(2))
            assert row["cosine"] == pytest.approx(1)


def test_differences_are_those_of_the_means(domain_learners):
    found = domain_learners.select(what="difference")
    assert len(found) == len(SETUPS) * 3 * len(DIGITS) * 6
    for row in found:
        where = {key: row[key] for key in ("setup", "digits", "factors")}
        ours, theirs = (
            domain_learners.select(what="pair", ratio=1.0, learner=row[key], **where)
            for key in ("learner", "other")
        )
        for name in ("pa", "same_answer_rate", "shifted_accuracy"):
            by_seed = [a[name] - b[name] for a, b in zip(ours, theirs, strict=True)]
            assert row[name] == pytest.approx(sum(by_seed) / 2, abs=1e-6)
            half = abs(by_seed[0] - by_seed[1]) / 2
            assert row[f"{name}_se_seeds"] == pytest.approx(half, abs=1e-6)
            assert row[f"{name}_se_images"] >= 0
        if (row["digits"], row["factors"]) == ("same", 0):
            assert row["pa"] == row["same_answer_rate"] == row["pa_se_images"] == 0


def test_learners_learn_the_domains_they_see(domain_learners):
    rows = domain_learners.frame(what="pair", digits="same", ratio=1.0)
    seen = rows[rows.factors < 2].groupby(["setup", "learner"]).shifted_accuracy
    assert len(seen) == len(SETUPS) * len(LEARNERS)
    # A network that guesses would seldom be right this often on so many digits.
    plan = PLANS["domain_learners"]
    guesses = rows.samples.max() / plan.repeats_per_digit * plan.seeds
    assert (seen.mean() > 0.5 + 4 * 0.5 / guesses**0.5).all()
    # LISA, which sees mixed images only, takes longer.
    assert (seen.mean().drop("LISA", level="learner") > 0.75).all()


def test_pairs_of_other_digits_share_none():
    plan = PLANS["domain_learners"]
    _, clusters = _recorded.tested_samples("printed", "other", plan, 0)
    first, *others = _recorded.tested_scenes("printed", "other", plan, 0)
    digits = [
        {*zip(one.labels.tolist(), one.instances.tolist(), strict=True)}
        for one in (first, *others)
    ]
    assert not digits[0] & digits[1]
    assert all(one == digits[1] for one in digits[1:])
    assert len(clusters.unique()) == len(digits[0])


# ------------------------------------------------------------------------- selection


def test_the_same_picture_twice_agrees_whatever_the_model(domain_selection):
    for row in domain_selection.rows:
        assert row["SD/same_answer_rate"] == 1
        assert row["SD/pa"] == pytest.approx(math.log(4), abs=1e-5)


def test_shortcuts_are_believed_and_zso_leaves_no_new_combination(domain_shortcuts):
    """The last epoch: right where the hue goes with the class, seldom elsewhere."""
    last = PLANS["domain_shortcuts"].epochs
    for row in domain_shortcuts.rows:
        if (row["factor"], row["setting"], row["epoch"]) == ("hue", "ZGO", last):
            # A network that does not look at the hue is right as often in both.
            assert row["test/0"] - row["test/1"] > 0.5
        if row["setting"] == "ZSO":
            assert row["test/0"] == row["test/1"]


def test_criteria_by_hand():
    labels = torch.tensor([0, 1, 0, 1])
    logits = torch.tensor([[2.0, 0.0], [0.0, 1.0], [0.5, 0.0], [0.3, 0.0]])
    shifted = torch.tensor([[1.0, 0.0], [0.0, 3.0], [0.0, 0.2], [0.0, 0.7]])
    found = criteria(logits, shifted, labels)
    assert found["accuracy"] == pytest.approx((0.75 + 0.75) / 2)
    assert found["same_answer_rate"] == pytest.approx(0.5)
    # Rows 0 and 2 are of one class, 1 and 3 of the other: each takes the other's.
    assert found["other_same_answer_rate"] == pytest.approx(0.5)
    exact = posterior_agreement(logits, shifted[[2, 3, 0, 1]]).pa
    assert found["other_pa"] == pytest.approx(exact, abs=1e-6)
    assert found["other_pa"] != pytest.approx(found["pa"], abs=1e-3)
    # A class of one sample is paired with itself.
    assert _next_of_class(torch.tensor([0, 1, 1])).tolist() == [0, 2, 1]
