"""The studies of Part VI: their quick rows against direct computation."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import linprog
from scipy.stats import kendalltau

from robustbook.datasets import load_dataset
from robustbook.models import load_model
from robustbook.studies.margins import _search, measured
from robustbook.studies.margins.columns import (
    detection_row,
    paired_tau_difference,
    share_row,
)
from robustbook.studies.margins.margin_convergence import linear_margins
from robustbook.studies.margins.measured import (
    Recipe,
    linear_head,
    margins_of,
    measure_bounds,
    scores_of,
)
from robustbook.studies.margins.settings import SETTINGS
from robustbook.studies.results import load_reported

(SETTING,) = SETTINGS["quick"]
LINEAR = "digits-linear-s0"
QUICK = Recipe(targets=2, steps=5, refine_steps=10, rounds=0)


def measure(model):
    recipe, _ = SETTING.models[model]
    return margins_of(model, SETTING.images_of(model), recipe, device="cpu")


# ------------------------------------------------------------ measured margins


def test_linear_margins_solve_the_linear_program():
    model = load_model(LINEAR)
    images = load_dataset("digits", "test").images[:4]
    weights, bias = (part.double().numpy() for part in linear_head(model))
    for image, margin in zip(images, linear_margins(model, images), strict=True):
        pixels = image.double().flatten().numpy()
        logits = weights @ pixels + bias
        best, sizes = int(logits.argmax()), []
        for other in set(range(10)) - {best}:
            # Smallest size s, over changes d: |d| <= s, pixels in [0, 1].
            step = weights[other] - weights[best]
            eye = np.eye(len(pixels))
            column = -np.ones((len(pixels), 1))
            limits = np.block([[eye, column], [-eye, column], [-step, np.zeros(1)]])
            right = np.append(np.zeros(2 * len(pixels)), logits[other] - logits[best])
            bounds = [*zip(-pixels, 1 - pixels, strict=True), (0, None)]
            cost = np.append(np.zeros(len(pixels)), 1.0)
            found = linprog(cost, A_ub=limits, b_ub=right, bounds=bounds)
            sizes.append(found.fun if found.success else math.inf)
        assert float(margin) == pytest.approx(min(sizes), rel=1e-5)


def test_bounds_are_above_exact_margins_and_close():
    data = load_dataset("digits", "test").subset(slice(40))
    found = margins_of(LINEAR, data, Recipe(steps=10, refine_steps=20, rounds=1))
    excess = found.bounds / linear_margins(load_model(LINEAR), data.images) - 1
    assert float(excess.min()) > -1e-5
    assert float(excess.median()) < 0.01


def test_rounds_of_apgd_only_tighten(monkeypatch):
    monkeypatch.setattr(_search, "_CHUNK", 4)
    model = load_model("digits-cnn-adv-s0").eval()
    images = load_dataset("digits", "test").images[:24]
    first = measure_bounds(model, images, Recipe(1, 2, 0, rounds=0))
    later = measure_bounds(model, images, Recipe(1, 2, 0, rounds=3, apgd_steps=10))
    assert bool((later.margins <= first.margins).all())
    assert bool((later.margins < 0.999 * first.margins).any())
    closer = torch.tensor([name == "apgd" for name in later.attack])
    assert torch.equal(closer, later.margins < first.margins)
    with torch.no_grad():
        moved = model(later.adversarial).argmax(1) != model(images).argmax(1)
    assert bool(moved.all())
    sizes = (later.adversarial.double() - images.double()).abs().flatten(1).amax(1)
    assert torch.allclose(sizes, later.margins, atol=1e-7)


def test_margins_are_measured_once(tmp_path, monkeypatch, refuse):
    data = load_dataset("digits", "test").subset(slice(12))
    monkeypatch.setattr(measured, "_BLOCK", 5)
    first = margins_of(LINEAR, data, QUICK, directory=tmp_path)
    assert len(list(tmp_path.glob("*.npz"))) == 6  # two for each block

    for name in ("searched_arrays", "first_order_arrays"):
        # The module of what measures is part of the key.
        refused = functools.partial(refuse)
        functools.update_wrapper(refused, getattr(measured, name))
        monkeypatch.setattr(measured, name, refused)
    again = margins_of(LINEAR, data, QUICK, directory=tmp_path)
    assert torch.equal(first.bounds, again.bounds)
    part = margins_of(LINEAR, data.subset(slice(10)), QUICK, directory=tmp_path)
    assert torch.equal(first.bounds[:10], part.bounds)
    with pytest.raises(AssertionError, match="measured again"):
        margins_of(LINEAR, data, Recipe(2, 6, 10, 0), directory=tmp_path)


def test_scores_of_a_linear_model():
    data = load_dataset("digits", "test").subset(slice(20))
    found = margins_of(LINEAR, data, QUICK)
    scores = scores_of(found)
    top = found.logits.double().topk(2, dim=1).values
    assert torch.allclose(scores["logit_margin"], top[:, 0] - top[:, 1])
    # Pixels that must not leave the box can only make a margin larger.
    assert bool((scores["first_order_margin"] <= found.bounds + 1e-6).all())
    assert bool((scores["first_order_margin"] <= scores["gradient_margin"]).all())
    whole = found[torch.arange(20) < 7]
    assert len(whole) == 7
    assert torch.equal(whole.weights, found.weights)


# ------------------------------------------------------------------ statistics


def test_difference_of_two_taus_and_its_error():
    random = np.random.default_rng(0)
    margins = random.random(400)
    first = margins + 0.2 * random.random(400)
    second = np.round(margins + 0.8 * random.random(400), 1)
    tensors = [torch.from_numpy(v) for v in (first, second, margins)]
    difference, error = paired_tau_difference(*tensors)
    exact = [kendalltau(v, margins).statistic for v in (first, second)]
    assert difference == pytest.approx(exact[0] - exact[1], abs=1e-12)
    drawn = []
    for _ in range(300):
        rows = random.integers(400, size=400)
        one, other = (
            kendalltau(v[rows], margins[rows]).statistic for v in (first, second)
        )
        drawn.append(one - other)
    assert error == pytest.approx(np.std(drawn), rel=0.25)


def test_shares_and_empty_classes():
    row = share_row("right", torch.tensor([True] * 9 + [False]))
    assert row["right"] == 0.9
    assert row["right_low"] < 0.9 < row["right_high"] < 1
    values = torch.linspace(0, 1, 20, dtype=torch.float64)
    assert set(detection_row(values, values, 0.1).values()) == {None}
    found = detection_row(values, values, 0.5)
    assert [found["auroc"], found["aupr"], found["fpr95"]] == pytest.approx([1, 1, 0])


# ------------------------------------------------------------------------ rows


def test_consistency_rows_are_what_the_measure_says(margin_consistency):
    model = "digits-cnn-adv-s0"
    found = measure(model)
    where = {"model": model, "subset": "all"}
    for score, values in scores_of(found).items():
        row = margin_consistency.row(what="consistency", score=score, **where)
        assert row["tau"] == pytest.approx(kendalltau(values, found.bounds).statistic)
        assert row["tau_low"] < row["tau"] < row["tau_high"]
    where = {"model": model, "usual": True}
    row = margin_consistency.row(what="robust", **where)
    robust = found.correct & (found.bounds > row["eps"])
    assert row["robust_accuracy"] == pytest.approx(float(robust.double().mean()))
    detected = margin_consistency.row(what="detection", score="logit_margin", **where)
    assert detected["brittle"] == row["brittle"]
    assert 0.9 < detected["auroc"] <= 1


def test_every_model_has_every_row(margin_consistency):
    for model in SETTING.models:
        rows = margin_consistency.select(model=model)
        count = dict.fromkeys(("model", "robust", "detection", "bin"), 0)
        for row in rows:
            if row["what"] in count:
                count[row["what"]] += 1
        assert count == {"model": 1, "robust": 3, "detection": 15, "bin": 120}
        shares = next(row for row in rows if row["what"] == "model")
        found = [shares[f"by_{name}"] for name in ("fmn", "fab", "line", "apgd")]
        assert sum(found) + shares["missing"] == pytest.approx(1)
        assert sum(r["count"] for r in rows if r.get("score") == "logit_margin"
                   and r["what"] == "bin") == shares["samples"]  # fmt: skip


def test_geometry_of_a_linear_model(margin_consistency):
    weights, _ = linear_head(load_model(LINEAR))
    apart = torch.pdist(weights.double())
    (row,) = margin_consistency.select(what="equidistance", model=LINEAR)
    assert row["pairs"] == 45
    assert row["distance_q50"] == pytest.approx(float(apart.median()))
    assert row["distance_max"] == pytest.approx(float(apart.max()))
    # The features are the pixels: ℓ2 over ℓ∞ of the same change of 64 pixels.
    (row,) = margin_consistency.select(what="isometry", model=LINEAR)
    assert 1 < row["ratio_q05"] < row["ratio_q95"] <= 8


def test_samples_are_those_that_were_measured(margin_samples):
    rows = margin_samples.rows
    assert len(rows) == 100 * len(SETTING.models)
    found = measure("digits-cnn-s0")
    for row in [row for row in rows if row["model"] == "digits-cnn-s0"][:5]:
        margin = float(found.bounds[row["index"]])
        assert row["input_margin"] == pytest.approx(margin, rel=1e-5)
        assert row["label"] == int(found.labels[row["index"]])


def test_long_searches_are_closer_and_exact_ones_known(margin_convergence):
    for model in ("digits-linear-s0", "digits-cnn-adv-s0"):
        excess = {
            row["search"]: row["excess_mean"]
            for row in margin_convergence.select(model=model)
        }
        assert excess["long"] < excess["recipe"] < excess["fmn"]
    rows = margin_convergence.select(model=LINEAR)
    assert all(row["exact"] for row in rows)
    (long,) = margin_convergence.select(model=LINEAR, search="long")
    assert long["excess_max"] < 0.01


def test_estimates_are_unbiased_where_they_say_so(margin_accuracy):
    for method in ("plain", "design", "stratified"):
        for row in margin_accuracy.select(method=method):
            assert abs(row["bias"]) <= 4 * row["bias_se"] + 1e-9
            assert row["coverage"] >= 0.8
            assert row["rmse"] >= 0.9 * row["sd"] * math.sqrt(19 / 20)
    for row in margin_accuracy.select(method="algorithm-1"):
        assert row["coverage"] is None
        assert row["tpr"] >= 0.8
    plain = {
        (r["model"], r["eps"], r["size"]): r
        for r in margin_accuracy.select(method="plain")
    }
    gains = [
        row["sd"] < plain[row["model"], row["eps"], row["size"]]["sd"]
        for row in margin_accuracy.select(method="design", score="logit_margin")
    ]
    assert np.mean(gains) > 0.7


def test_truth_is_the_robust_accuracy(margin_accuracy, margin_consistency):
    for row in margin_accuracy.rows:
        (other,) = margin_consistency.select(
            what="robust", model=row["model"], eps=row["eps"]
        )
        assert row["truth"] == pytest.approx(other["robust_accuracy"])


def test_pseudo_margins_are_tested_on_other_images(margin_pseudo, margin_consistency):
    for model in ("digits-cnn-s0", "digits-cnn-adv-s0"):
        raw = margin_pseudo.row(what="method", model=model, method="logit_margin")
        where = {"model": model, "score": "logit_margin", "subset": "all"}
        row = margin_consistency.row(what="consistency", **where)
        assert raw["tau"] == row["tau"]
        assert raw["tau_difference"] == 0
        runs = margin_pseudo.select(
            what="method", model=model, method="pseudo", train=200
        )
        assert [row["training_seed"] for row in runs] == [0, 1]
        assert all(0.2 < row["tau"] < 1 and row["mae"] > 0 for row in runs)
        epochs = margin_pseudo.select(what="epoch", model=model)
        least = min(row["rmse_held_out"] for row in epochs)
        assert [row["rmse_held_out"] for row in epochs if row["kept"]] == [least]


@pytest.mark.parametrize(
    ("name", "count"), [("margin_table_1", 32), ("margin_table_2", 4)]
)
def test_reported_tables(name, count):
    rows: Any = load_reported(name).rows
    assert len(rows) == count
    assert all(0 < row["tau"] < 1 < row["auroc"] <= 100 for row in rows)
