"""Accuracy without labels: what the rows say, and how they are summarized."""

import math
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.optimize import minimize_scalar
from scipy.stats import spearmanr

from robustbook.agreement import pair_by_label
from robustbook.datasets import Dataset, Sentences, load_dataset
from robustbook.models import load_model, logits_of
from robustbook.studies import _label_free_summary as summary
from robustbook.studies.domains import unlike_pairs as unlike
from robustbook.studies.label_free import SETTINGS, _networks
from robustbook.studies.run import SEEDS_A_RUN, Run

from ..conftest import RUN_SEED

QUICK = SETTINGS["quick"][0]
CHAPTER = Path(__file__).parents[2] / "notebooks/09_the_right_temperature.md"


def cells_of(result, world="digits"):
    frame = result.frame()
    return frame[(frame.what == "cell") & (frame.world == world)]


@pytest.fixture(scope="module")
def every_score():
    """The cells as they are summarized, with all scores."""
    run = Run("label_free", "quick", SEEDS_A_RUN * RUN_SEED, "cpu", (QUICK,))
    return pd.DataFrame(_networks(run, QUICK))


def test_every_network_meets_every_shift_once(label_free):
    cells = cells_of(label_free)
    assert not cells.duplicated(["network", "shift"]).any()
    assert len(cells) == len(QUICK.models) * len(QUICK.shifts)
    attacks = cells["shift"].str.startswith("APGD")
    assert (cells.group == np.where(attacks, "attack", "natural")).all()
    assert cells.agreement_on_the_line.isna().equals(attacks)
    assert cells.same_answers_half.notna().equals(attacks)
    later = cells[attacks]
    assert (later.same_answers <= later.same_answers_half).all()


def test_images_that_calibrate_are_not_those_that_judge():
    source, judged = QUICK.halves(3)
    assert len(source) == QUICK.source
    assert len(judged) == QUICK.judged
    seen = {image.numpy().tobytes() for image in source.images}
    assert not any(image.numpy().tobytes() in seen for image in judged.images)


def test_a_cell_is_what_a_reader_computes_by_hand(label_free):
    name = "digits-cnn-noise-s1"
    seed = SEEDS_A_RUN * RUN_SEED
    data = load_dataset("digits", "test")
    order = torch.randperm(len(data), generator=torch.Generator().manual_seed(seed))
    known, judged = order[:298], order[298:596]
    draws = torch.Generator().manual_seed(seed)
    images = data.images[judged]
    noise = 0.6 * torch.randn(images.shape, generator=draws)
    model = load_model(name)
    source, clean, moved = (
        logits_of(model, x).double().numpy()
        for x in (data.images[known], images, (images + noise).clamp(0, 1))
    )
    truth = data.labels.numpy()

    def log_p(z, beta):
        return (
            beta * z
            - np.log(np.exp(beta * (z - z.max(1)[:, None])).sum(1))[:, None]
            - beta * z.max(1)[:, None]
        )

    def surprise(log_beta):
        rows = log_p(source, math.exp(log_beta))
        return -rows[np.arange(298), truth[known]].mean()

    beta = math.exp(minimize_scalar(surprise, bounds=(-5, 5), method="bounded").x)
    answers = moved.argmax(1)
    row = label_free.row(what="cell", network=name, shift="noise 0.6")
    p = np.exp(log_p(clean, beta))
    assert row["beta"] == pytest.approx(beta, rel=1e-3)
    assert row["paired_accuracy"] == pytest.approx(
        p[np.arange(298), answers].mean(), abs=1e-4
    )
    assert row["accuracy"] == pytest.approx((answers == truth[judged]).mean(), abs=1e-4)
    same = (answers == clean.argmax(1)).mean()
    assert row["same_answers"] == pytest.approx(same, abs=1e-4)


def naive(statistic, scores, accuracy):
    if statistic == "error":
        return np.mean(abs(scores - accuracy))
    if statistic == "regret":
        lost = []
        for shift in range(scores.shape[1]):
            best = max(scores[:, shift])
            ties = [a for s, a in zip(*(x[:, shift] for x in (scores, accuracy)),
                                      strict=True) if s == best]  # fmt: skip
            lost.append(max(accuracy[:, shift]) - np.mean(ties))
        return np.mean(lost)
    if statistic == "sets":
        scores, accuracy = scores.T, accuracy.T
    pairs = zip(scores.T, accuracy.T, strict=True)
    each = [spearmanr(a, b).statistic for a, b in pairs if np.ptp(a) * np.ptp(b) > 0]
    return np.mean(each)


def test_statistics_are_those_of_naive_loops(label_free, every_score):
    frame, cells = label_free.frame(), every_score
    rows = frame[(frame.what == "summary") & (frame.world == "digits")]
    assert set(rows.statistic) == {"error", "sets", "networks", "regret"}
    for row in rows.itertuples():
        part = cells[cells.group == row.group]
        wide = part.pivot(index="network", columns="shift")
        scores, accuracy = (wide[x].to_numpy(float) for x in (row.score, "accuracy"))
        if np.isnan(scores).any():
            continue
        expected = naive(row.statistic, scores, accuracy)
        assert row.value == pytest.approx(expected, abs=1e-4), row
        assert row.low <= row.value <= row.high


def made_up(errors, accuracy=0.5, networks=None, kinds=None, group="natural"):
    """Cells whose paired estimate has these errors, and a rival twice these."""
    networks = networks or [f"net{n}" for n in range(errors.shape[0])]
    kinds = kinds or [f"kind{n} 1" for n in range(errors.shape[1])]
    return [
        {
            "network": network, "group": group, "shift": kind, "accuracy": accuracy,
            "paired_accuracy": accuracy + errors[i, j],
            "confidence": accuracy + 2 * errors[i, j],
        }
        for i, network in enumerate(networks)
        for j, kind in enumerate(kinds)
    ]  # fmt: skip


def row_of(rows, score="paired_accuracy", statistic="error"):
    (row,) = (r for r in rows if (r["score"], r["statistic"]) == (score, statistic))
    return row


def test_copies_of_networks_and_of_kinds_do_not_narrow_an_interval():
    errors = np.random.default_rng(1).uniform(0, 0.2, size=(5, 4))
    once = row_of(summary.summarize(made_up(errors)))
    copies = made_up(
        errors.repeat(3, 0).repeat(2, 1),
        networks=[f"net{n}-s{seed}" for n in range(5) for seed in range(3)],
        kinds=[f"kind{n} {size}" for n in range(4) for size in (1, 2)],
    )
    again = row_of(summary.summarize(copies))
    for name in ("value", "low", "high"):
        assert again[name] == pytest.approx(once[name], abs=1e-5)
    loose = made_up(errors.repeat(3, 0).repeat(2, 1))
    width = once["high"] - once["low"]
    row = row_of(summary.summarize(loose))
    assert row["high"] - row["low"] < 0.8 * width


def test_intervals_take_in_networks_and_shifts_together():
    """Errors that a network and a shift each share: most intervals hold the mean."""
    random = np.random.default_rng(2)
    names = [str(n) for n in range(12)]
    held, alone = [], []
    for _ in range(80):
        effects = random.normal(size=(12, 1)) + random.normal(size=(1, 12))
        errors = 1 + 0.05 * effects + 0.01 * random.normal(size=(12, 12))
        block = np.stack([errors, errors, 0 * errors])
        row = summary._interval(summary._error, block, names, names, True)
        held.append(row["low"] < 1 < row["high"])
        error = 1.96 * errors.std() / 12
        alone.append(abs(errors.mean() - 1) < error)
    assert np.mean(held) > 0.85
    assert np.mean(alone) < 0.6, "cells are not independent, and it would show"


def test_orders_and_choices_of_a_score_that_knows_or_turns_round():
    accuracy = np.random.default_rng(3).uniform(0.2, 0.9, size=(5, 4))
    cells = made_up(0 * accuracy)
    for row, true in zip(cells, accuracy.ravel(), strict=True):
        row |= {"accuracy": true, "paired_accuracy": true, "pa": -true}
    rows = list(summary.summarize(cells))
    for statistic, best, worst in (
        ("networks", 1, -1),
        ("sets", 1, -1),
        ("regret", 0, np.ptp(accuracy, axis=0).mean()),
    ):
        assert row_of(rows, statistic=statistic)["value"] == pytest.approx(best)
        row = row_of(rows, "pa", statistic)
        assert row["value"] == pytest.approx(worst, abs=1e-5)
        assert row["behind"] == pytest.approx(abs(best - worst), abs=1e-5)
    assert not [r for r in rows if r["score"] == "pa" and r["statistic"] == "error"]


# ------------------------------------------------- pairs that are not of one input


def classes_apart(count, right, seed):
    """Logits and labels: answers are right that often, with calibrated confidence."""
    random = np.random.default_rng(seed)
    labels = random.integers(4, size=count)
    answers = np.where(random.random(count) < right, labels, (labels + 1) % 4)
    # One temperature is right: wrong answers go to each other class alike.
    answers = np.where(
        answers == labels, labels, (labels + random.integers(1, 4, size=count)) % 4
    )
    sure = math.log(right / ((1 - right) / 3))
    return torch.tensor(sure * np.eye(4)[answers]), torch.tensor(labels)


def test_pairs_of_a_class_alone_make_the_estimate_too_low():
    """The theorem needs an answer that knows the label through the clean side only."""
    source, known = classes_apart(4000, 0.7, 0)
    clean, truth = classes_apart(4000, 0.7, 1)
    tested, labels = classes_apart(4000, 0.9, 2)
    z = {"source": source, "clean": clean, "test": tested}
    pairs = {"by label": pair_by_label(labels, truth), "without pairs": None}
    paired, alone = unlike.unlike_cells(z, (known, labels), pairs)
    assert paired["accuracy"] == pytest.approx(0.9, abs=0.02)
    expected = 0.9 * (0.7 * 0.7 + 0.3 * 0.1) + 0.1 * (0.7 * 0.1 + 0.3 * 0.3)
    assert paired["paired_accuracy"] == pytest.approx(expected, abs=0.03)
    assert alone["confidence"] == pytest.approx(0.9, abs=0.2)


def test_without_pairs_nothing_of_the_clean_side_is_asked():
    source, known = classes_apart(200, 0.7, 3)
    tested, labels = classes_apart(150, 0.6, 4)
    z = {"source": source, "test": tested}
    (row,) = unlike.unlike_cells(z, (known, labels), {"without pairs": None})
    assert "accuracy" in row
    for name in ("paired_accuracy", "same_answers", "pa", "effective_invariance"):
        assert name not in row


def test_the_signed_error_is_reported_where_inputs_are_unlike():
    errors = np.random.default_rng(5).normal(-0.1, 0.02, size=(4, 6))
    targets = [f"{target} {seed}" for target in "abc" for seed in (0, 1)]
    cells = made_up(errors, kinds=targets, group="by label")
    alone = made_up(errors, kinds=targets, group="without pairs")
    for row in alone:
        row["paired_accuracy"] = None
    rows = list(summary.summarize(cells + alone, True))
    (bias,) = (r for r in rows if r["statistic"] == "bias" and r["group"] == "by label"
               and r["score"] == "paired_accuracy")  # fmt: skip
    assert bias["value"] == pytest.approx(errors.mean(), abs=1e-5)
    assert bias["high"] < 0
    rest = [r for r in rows if r["group"] == "without pairs"]
    assert {r["score"] for r in rest} == {"confidence"}
    assert {r["behind"] for r in rest} == {None}


def test_heads_are_scored_by_every_pairing():
    data = load_dataset("digits", "train")
    domains = {
        name: Dataset(ink(data.images), data.labels, name, "train", 10)
        for name, ink in {
            "plain": lambda x: x,
            "inverse": lambda x: 1 - x,
            "dim": lambda x: x / 2,
        }.items()
    }
    rows = pd.DataFrame(unlike.heads(domains, "dim", 0, (1, 2), (1e-2,)))
    assert len(rows) == 3 * 2 * 4
    assert rows.groupby("candidate").size().eq(4).all()
    one_sided = rows[rows.group == "by nearest"].confidence.to_numpy()
    alone = rows[rows.group == "without pairs"].confidence.to_numpy()
    assert one_sided == pytest.approx(alone), "each target sample is there once"
    assert rows[rows.group == "without pairs"].paired_accuracy.isna().all()
    assert rows[rows.group != "without pairs"].paired_accuracy.notna().all()


def test_readers_meet_sentences_and_their_own_reviews_changed():
    from robustbook.datasets import load_sentences

    name = "template-reviews"
    reviews = {s: load_sentences(name, s) for s in ("train", "validation", "test")}
    sentences = Sentences(
        tuple(t.upper() for t in reviews["validation"].texts),
        reviews["validation"].labels,
        "loud",
        "test",
    )
    rows = pd.DataFrame(unlike.readers(reviews, sentences, 0, (100, 400), 120))
    assert rows.groupby("candidate").size().eq(4 + 3).all()
    same = rows[rows.group == "same text"]
    cut = same[same["shift"] == "first 20 words"]
    assert (cut.same_answers == 1).all(), "no sentence has more words"
    assert (same.accuracy - same.paired_accuracy).abs().max() < 0.15


# ------------------------------------------------------------------- what is printed


def code_cells(path):
    cells = re.findall(
        r"```\{code-cell\} python\n(.*?)```", path.read_text(), re.DOTALL
    )
    return [re.sub(r"\A(?:---\n(?s:.*?)\n---\n|(?::.*\n)+)", "", c) for c in cells]


def test_the_winner_is_printed_also_where_it_is_not_ours():
    (code,) = (cell for cell in code_cells(CHAPTER) if "Least error:" in cell)
    table = pd.DataFrame({
        "score": ["estimate", "ATC maximum"], "value": [0.05, 0.01],
        "world": "made up", "group": "natural", "statistic": "error",
    })  # fmt: skip
    said = []
    exec(code, {"summary": table, "say": said.append})
    assert said == ["Least error: made up, natural: ATC maximum (0.010)."]
