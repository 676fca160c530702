"""The rows of a network on two samples, against direct counts."""

from pathlib import Path

import pytest
import torch

from robustbook.attacks import apgd, fab
from robustbook.average_case import mmse
from robustbook.datasets import load_dataset
from robustbook.models import load_model, logits_of
from robustbook.studies.lenses import held_out as study
from robustbook.studies.results import read_results

from ..conftest import SEED

NAME = "digits-cnn-adv-s0"


def test_accuracies_are_those_of_the_two_samples(held_out):
    model, shares = load_model(NAME), []
    for split in ("test", "train"):
        data = load_dataset("digits", split)
        right = logits_of(model, data.images).argmax(1) == data.labels
        row = held_out.row(what="accuracy", split=split)
        assert row["images"] == len(data)
        assert row["accuracy"] == pytest.approx(float(right.double().mean()))
        assert row["accuracy_low"] < row["accuracy"] < row["accuracy_high"]
        shares.append(row["accuracy"])
    gap = held_out.row(what="difference")
    assert gap["difference"] == pytest.approx(shares[0] - shares[1], abs=1e-6)
    assert gap["difference_low"] < gap["difference"] < gap["difference_high"]


def test_each_attack_takes_from_what_the_other_left(held_out):
    model, data = load_model(NAME), load_dataset("digits", "test").subset(range(60))
    left = torch.ones(60, dtype=torch.bool)
    for loss in ("ce", "targeted"):
        found = apgd(
            model, data.images, data.labels, eps=0.1, loss=loss, steps=8, progress=False
        )
        left &= ~found.success
    rows = held_out.select(what="attack")
    assert [row["steps"] for row in rows] == [4, 8]
    # Images meet other random starts where fewer are attacked at once.
    assert rows[1]["accuracy"] == pytest.approx(float(left.double().mean()), abs=0.04)
    assert rows[1]["accuracy"] <= rows[0]["accuracy"] + 0.02


def test_four_attacks_take_what_any_of_them_finds(held_out, monkeypatch):
    row = held_out.row(what="ensemble")
    assert row["images"] == 60
    two = held_out.select(what="attack")[1]["accuracy"]
    assert row["accuracy"] <= row["in_turn"] == pytest.approx(two, abs=0.04)
    # Where the gradients find nothing, the attacks that follow do.
    monkeypatch.setattr(study, "attack_in_turn", lambda _, images, *a, **k: images)
    model, data = load_model(NAME), load_dataset("digits", "test").subset(range(20))
    kept = study.ensemble_arrays(model, data, 0.1, 8, 0)
    assert kept["in_turn"].mean() > kept["accuracy"].mean()
    found = fab(model, data.images, data.labels, steps=8, targets=9, progress=False)
    assert not kept["accuracy"][(found.norms <= 0.1).numpy()].any()


def test_the_data_card_says_what_was_measured():
    frame = read_results("held_out").frame()
    large = frame[frame.split == "held_out"].set_index("model").accuracy
    # A network and its mirrored form are one.
    gaps = frame[
        (frame.what == "difference") & ~frame.model.str.contains("+", regex=False)
    ]
    gaps = 100 * gaps.difference
    said = (
        f"{gaps.min():.1f} to {gaps.max():+.1f} points".replace("-", "−"),
        f"{gaps.mean():.1f} on average",
        f"{100 * large['cifar10-blocks-s0']:.1f} %",
        f"{100 * large['cifar10-blocks-adv-s0']:.1f} %",
        f"{100 * large['cifar10-blocks-adv-s0+mirrored']:.1f} %",
    )
    card = (Path(__file__).parents[2] / "data/README.md").read_text("utf-8")
    assert len(gaps) == 18
    assert all(words in " ".join(card.split()) for words in said)


def test_estimates_and_margins_are_those_of_direct_calls(held_out_measures):
    name, data = "digits-cnn-s0", load_dataset("digits", "test").subset(range(40))
    model = load_model(name)
    row = held_out_measures.row(what="average case", model=name)
    draws = torch.randn(2000, *data.images.shape) * row["sigma"] + data.images
    answers = logits_of(model, draws.flatten(0, 1)).argmax(1)
    logits = logits_of(model, data.images).double()
    kept = (answers.view(2000, 40) == logits.argmax(1)).double().mean(0)
    assert row["counted"] == pytest.approx(float(kept.mean()), abs=0.01)
    for estimate, values in (
        ("softmax", logits.softmax(1).amax(1)),
        ("mmse", mmse(model, data.images, row["sigma"], seed=SEED).probability),
    ):
        off = (values.flatten() - kept).abs().mean()
        assert row[estimate] == pytest.approx(float(off), abs=0.01)
    assert row["mmse"] < row["taylor"] < row["softmax"]
    margins = held_out_measures.row(what="margins")
    found = apgd(model, data.images, data.labels, eps=0.1, steps=50, progress=False)
    assert margins["robust_accuracy"] == pytest.approx(
        1 - float(found.success.double().mean()), abs=0.08
    )
    assert margins["tau_low"] < margins["tau"] < margins["tau_high"]
    # All are right, so those that are not robust are brittle.
    assert margins["brittle"] == pytest.approx(1 - margins["robust_accuracy"])
    assert margins["auroc_low"] < margins["auroc"] < margins["auroc_high"]
    assert margins["auroc"] > 0.9
