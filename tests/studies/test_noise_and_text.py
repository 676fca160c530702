"""The experiments of chapter 13: their rows are complete, and say what they must."""

import itertools
import math

import pytest

from robustbook.studies import STUDIES
from robustbook.studies.adversarial.noise import FOCUS, RATIOS


def check_scores(row, classes):
    top = math.log(classes)
    assert 0 <= row["pa"] <= top - (1 - row["same_answer_rate"]) * math.log(2) + 1e-9
    assert row["hard_part"] + row["confidence_part"] == pytest.approx(row["pa"])
    assert 1 / classes <= row["confidence_after"] <= 1
    assert row["same_answer_rate_se"] == pytest.approx(
        math.sqrt(
            row["same_answer_rate"] * (1 - row["same_answer_rate"]) / row["samples"]
        )
    )


def test_text_rows(text_edits):
    models, shifts = text_edits.select(what="model"), text_edits.select(what="shift")
    assert [row["training_seed"] for row in models] == [0, 1, 2]
    assert len({row["label_agreement"] for row in models}) == 3
    keys = [
        tuple(
            row[key] for key in ("training_seed", "kind", "how", "power", "edit_seed")
        )
        for row in shifts
    ]
    assert len(set(keys)) == len(keys) == len(text_edits.rows) - len(models)
    assert {key[1:3] for key in keys} == {
        ("levenshtein", "characters"),
        *itertools.product(("amplify", "contradict"), ("insert", "replace")),
    }
    for row in shifts:
        check_scores(row, 2)


def test_many_words_lead_the_classifier(text_edits):
    clean = {row["training_seed"]: row for row in text_edits.select(what="model")}
    for row in text_edits.select(what="shift", how="insert", power=64):
        before = clean[row["training_seed"]]["accuracy"]
        right = row["kind"] == "amplify"
        assert row["shifted_accuracy"] == pytest.approx(1 if right else 0, abs=0.01)
        assert row["same_answer_rate"] == pytest.approx(
            before if right else 1 - before, abs=0.01
        )


def test_noise_rows(noise):
    kinds = {row["what"] for row in noise.rows}
    assert kinds == {"model", "strength", "ratio", "kernel", "adam"}
    strength = noise.select(what="strength")
    for row in strength:
        check_scores(row, 10)
    models = {row["model"] for row in strength}
    sigmas = {row["sigma"] for row in strength}
    assert len(strength) == len(models) * len(sigmas) * 2
    assert set(FOCUS.values()) < sigmas
    for row in noise.select(what="ratio", ratio=0.0):
        assert row["pa"] == pytest.approx(math.log(10))
    for row in noise.select(what="ratio", ratio=1.0):
        where = {key: row[key] for key in ("model", "sigma", "draw")}
        (same,) = noise.select(what="strength", **where)
        assert row["pa"] == pytest.approx(same["pa"], abs=1e-8)
    assert {row["ratio"] for row in noise.select(what="ratio")} == {*RATIOS}


def test_kernels_stay_below_their_maximum(noise):
    for row in (*noise.select(what="kernel"), *noise.select(what="adam")):
        assert row["kernel"] <= row["best_pa"] + 1e-9


def test_rows_repeat(text_edits):
    again = STUDIES["text_edits"].rows(profile="quick", device="cpu")
    assert again == list(text_edits.rows)
