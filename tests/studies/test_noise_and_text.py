"""The experiments of chapter 13: their rows are complete, and say what they must."""

import itertools
import json
import math

import pytest

from robustbook.studies import run_experiment
from robustbook.studies.adversarial.noise import FOCUS, RATIOS, noise
from robustbook.studies.adversarial.text_edits import text_edits


@pytest.fixture(scope="module")
def text_rows():
    return text_edits(profile="quick", device="cpu")


@pytest.fixture(scope="module")
def noise_rows():
    return noise(profile="quick", device="cpu")


def check_scores(row, classes):
    top = math.log(classes)
    assert 0 <= row["pa"] <= top - (1 - row["afr_pred"]) * math.log(2) + 1e-9
    assert row["hard_part"] + row["confidence_part"] == pytest.approx(row["pa"])
    assert 1 / classes <= row["confidence_after"] <= 1
    assert row["afr_pred_se"] == pytest.approx(
        math.sqrt(row["afr_pred"] * (1 - row["afr_pred"]) / row["samples"])
    )


def test_text_rows(text_rows):
    models = [row for row in text_rows if row["what"] == "model"]
    shifts = [row for row in text_rows if row["what"] == "shift"]
    assert [row["training_seed"] for row in models] == [0, 1, 2]
    assert len({row["label_agreement"] for row in models}) == 3
    keys = [
        tuple(
            row[key] for key in ("training_seed", "kind", "how", "power", "edit_seed")
        )
        for row in shifts
    ]
    assert len(set(keys)) == len(keys) == len(text_rows) - len(models)
    assert {key[1:3] for key in keys} == {
        ("levenshtein", "characters"),
        *itertools.product(("amplify", "contradict"), ("insert", "replace")),
    }
    for row in shifts:
        check_scores(row, 2)


def test_many_words_lead_the_classifier(text_rows):
    clean = {r["training_seed"]: r for r in text_rows if r["what"] == "model"}
    for row in text_rows:
        if row["what"] == "shift" and row["how"] == "insert" and row["power"] == 64:
            before = clean[row["training_seed"]]["accuracy"]
            right = row["kind"] == "amplify"
            assert row["afr_true"] == pytest.approx(1 if right else 0, abs=0.01)
            assert row["afr_pred"] == pytest.approx(
                before if right else 1 - before, abs=0.01
            )


def test_noise_rows(noise_rows):
    kinds = {row["what"] for row in noise_rows}
    assert kinds == {"model", "strength", "ratio", "kernel", "adam"}
    strength = [row for row in noise_rows if row["what"] == "strength"]
    for row in strength:
        check_scores(row, 10)
    models = {row["model"] for row in strength}
    sigmas = {row["sigma"] for row in strength}
    assert len(strength) == len(models) * len(sigmas) * 2
    assert set(FOCUS.values()) < sigmas
    for row in noise_rows:
        if row["what"] == "ratio" and row["ratio"] == 0:
            assert row["pa"] == pytest.approx(math.log(10))
        if row["what"] == "ratio" and row["ratio"] == 1:
            (same,) = (
                other
                for other in strength
                if all(row[key] == other[key] for key in ("model", "sigma", "draw"))
            )
            assert row["pa"] == pytest.approx(same["pa"], abs=1e-8)
    assert {row["ratio"] for row in noise_rows if row["what"] == "ratio"} == {*RATIOS}


def test_kernels_stay_below_their_maximum(noise_rows):
    for row in noise_rows:
        if row["what"] in ("kernel", "adam"):
            assert row["kernel"] <= row["best_pa"] + 1e-9


def test_rows_can_be_stored_and_repeat(tmp_path, text_rows):
    again = run_experiment(
        "text_edits", profile="quick", device="cpu", directory=tmp_path
    )
    assert list(again.rows) == text_rows
    stored = json.loads((tmp_path / "text_edits.json").read_text(encoding="utf-8"))
    assert len(stored["rows"]) == len(text_rows)
    assert all(len(s) == 64 for s in stored["provenance"]["data_sha256"].values())
    assert "robustbook.text" in stored["provenance"]["code"]
