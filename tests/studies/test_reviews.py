"""Whole reviews: who reads them, what is trained, what the rows say."""

from dataclasses import replace

import pytest
import torch

from robustbook.agreement import pair_by_label, posterior_agreement
from robustbook.datasets import load_sentences
from robustbook.models import Encoder
from robustbook.studies.adversarial import reviews as study
from robustbook.studies.adversarial.reviews import SETTINGS, THIRDS
from robustbook.studies.run import Run
from robustbook.text import levenshtein_edits, train_sentence_classifier

from ..conftest import SEED
from ..test_encoders import Words, config_of

QUICK = SETTINGS["quick"][0]
SPLITS = ("train", "validation", "test")


def test_rows_are_whole_and_obey_what_is_proved(reviews):
    shifts = reviews.select(what="shift")
    strengths = len(QUICK.edits) + 2 * len(QUICK.words)
    assert len(shifts) == QUICK.seeds * strengths * 4
    assert len(reviews.select(what="pairs")) == 2 * QUICK.seeds
    for every in (row for row in shifts if row["part"] == "all"):
        keys = {name: every[name] for name in ("training_seed", "kind", "power")}
        thirds = [reviews.row(what="shift", part=part, **keys) for part in THIRDS]
        assert [row["samples"] for row in thirds] == [QUICK.tested // 3] * 3
        assert thirds[0]["words"] < thirds[1]["words"] < thirds[2]["words"]
        for score in ("shifted_accuracy", "same_answer_rate"):
            mean = sum(row[score] for row in thirds) / 3
            assert every[score] == pytest.approx(mean)


def test_rows_of_n_grams_are_those_of_a_training_by_hand(reviews):
    """The epoch is chosen on reviews that are neither trained nor measured on."""
    parts = {name: load_sentences("template-reviews", name) for name in SPLITS}

    def first(name, count, start=0):
        kept, one = slice(start, start + count), parts[name]
        return replace(one, texts=one.texts[kept], labels=one.labels[kept])

    measured, further = first("test", 60), first("test", 60, 60)
    for count in (100, 200):
        model = train_sentence_classifier(
            first("train", count), first("validation", 60), epochs=12, seed=SEED
        )
        right = [
            model.logits(one.texts).argmax(1) == one.labels
            for one in (measured, further)
        ]
        row = reviews.row(what="reader", trained=count, training_seed=SEED)
        assert row["accuracy"] == pytest.approx(torch.cat(right).double().mean())
    assert not right[1].equal(right[0])
    clean = model.logits(measured.texts)
    shifted = model.logits(levenshtein_edits(measured.texts, 4, seed=SEED))
    by_hand = {
        "accuracy": right[0].double().mean(),
        "shifted_accuracy": (shifted.argmax(1) == measured.labels).double().mean(),
        "pa": posterior_agreement(clean, shifted).pa,
    }
    row = reviews.row(
        what="shift", kind="levenshtein", power=4, part="all", training_seed=SEED
    )
    assert by_hand == pytest.approx({k: row[k] for k in by_hand}, abs=1e-3)
    one, two = pair_by_label(measured.labels, further.labels, seed=SEED)
    pa = posterior_agreement(clean[one], model.logits(further.texts)[two]).pa
    row = reviews.row(what="pairs", to="further", training_seed=SEED)
    assert row["pa"] == pytest.approx(pa, abs=1e-3)


@pytest.fixture
def small(monkeypatch, tmp_path):
    """The transformer's path, with a small one that was not trained before."""
    monkeypatch.setenv("ROBUSTBOOK_CACHE", str(tmp_path))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        encoder = Encoder(config_of("bert"), Words()).eval().requires_grad_(False)
    monkeypatch.setattr(study, "_encoder", lambda name, device: encoder)
    setting = replace(
        QUICK, encoder="small", layers=1, tokens=16, trained=(40, 60), tested=20,
        epochs=1, edits=(4,), words=(2,),
    )  # fmt: skip
    return Run("reviews", "quick", SEED, "cpu", (setting,)), encoder


def test_a_transformer_is_trained_above_its_frozen_layers(small):
    run, encoder = small
    weights = study._trained(run, 60, SEED)
    before = encoder.state_dict()
    assert set(weights) == {"head.weight", "head.bias"} | {
        name.replace("layers.1.", "layers.0.")
        for name in before
        if name.startswith("layers.1.")
    }
    assert any(
        not torch.equal(torch.from_numpy(value), before[f"layers.1.{name[9:]}"])
        for name, value in weights.items()
        if name.startswith("layers.")
    )
    again = study._trained(run, 60, SEED)
    assert all((again[name] == weights[name]).all() for name in weights)
    other = study._trained(run, 60, SEED + 1)
    assert (other["head.weight"] != weights["head.weight"]).any()
    fewer = study._trained(run, 40, SEED)
    assert (fewer["head.weight"] != weights["head.weight"]).any()


def test_what_was_read_is_not_read_again(small, monkeypatch, refuse):
    run, encoder = small
    first = list(study.rows(run))
    assert {row.get("reader") for row in first} == {None, "n-grams", "small"}
    plain, ours = (
        [row for row in first if row["what"] == "reader" and row["reader"] == name]
        for name in ("n-grams", "small")
    )
    for one, two in zip(plain, ours, strict=True):
        assert two["gain"] == pytest.approx(two["accuracy"] - one["accuracy"])
        assert two["gain_se"] >= one["gain_se"] == 0
    monkeypatch.setattr(study, "_read", refuse)
    assert list(study.rows(run)) == first
    # Another encoder of the same name.
    next(encoder.parameters()).data += 1
    with pytest.raises(AssertionError, match="measured again"):
        list(study.rows(run))
