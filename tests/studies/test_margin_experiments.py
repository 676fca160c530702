"""The studies of Part VI: their quick rows against direct computation."""

import math

import numpy as np
import pytest
import torch
from scipy.optimize import linprog
from scipy.stats import kendalltau

from robustbook.datasets import load_dataset
from robustbook.models import load_model, logits_of
from robustbook.studies.margins import search
from robustbook.studies.margins._defended_nets import (
    Method,
    StandardizedImages,
    plain,
    trained,
)
from robustbook.studies.margins.columns import (
    detection_row,
    exact_share,
    paired_tau_difference,
)
from robustbook.studies.margins.defended import SETTINGS as DEFENDED
from robustbook.studies.margins.margin_convergence import linear_margins
from robustbook.studies.margins.measured import linear_head, margins_of, scores_of
from robustbook.studies.margins.search import Recipe, measure_bounds
from robustbook.studies.margins.settings import SETTINGS
from robustbook.studies.run import Run
from robustbook.training import AttackedView

from ..conftest import SEED

(SETTING,) = SETTINGS["quick"]
LINEAR = "digits-linear-s0"
QUICK = Recipe(targets=2, steps=5, refine_steps=10, rounds=0)
RUN = Run("margins", "quick", SEED, "cpu", (SETTING,))


def measure(model):
    recipe, _ = SETTING.models[model]
    images = SETTING.images_of(model)
    return margins_of(RUN, model, images, recipe)


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
    found = margins_of(RUN, LINEAR, data, Recipe(steps=10, refine_steps=20, rounds=1))
    excess = found.bounds / linear_margins(load_model(LINEAR), data.images) - 1
    assert float(excess.min()) > -1e-5
    assert float(excess.median()) < 0.01


def test_rounds_of_apgd_only_tighten(monkeypatch):
    monkeypatch.setattr(search, "_CHUNK", 4)
    model = load_model("digits-cnn-adv-s0").eval()
    images = load_dataset("digits", "test").images[:24]
    first, _ = measure_bounds(model, images, Recipe(1, 2, 0, rounds=0))
    recipe = Recipe(1, 2, 0, rounds=3, apgd_steps=10)
    later, adversarial = measure_bounds(model, images, recipe)
    assert bool((later <= first).all())
    assert bool((later < 0.999 * first).any())
    with torch.no_grad():
        moved = model(adversarial).argmax(1) != model(images).argmax(1)
    assert bool(moved.all())
    sizes = (adversarial.double() - images.double()).abs().flatten(1).amax(1)
    assert torch.allclose(sizes, later, atol=1e-7)


def test_scores_of_a_linear_model():
    data = load_dataset("digits", "test").subset(slice(20))
    found = margins_of(RUN, LINEAR, data, QUICK)
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
    row = exact_share("right", torch.tensor([True] * 9 + [False]))
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
    brittle = float((found.bounds <= row["eps"]).double().mean())
    assert detected["brittle"] == row["brittle"] == pytest.approx(brittle)
    assert 0.9 < detected["auroc"] <= 1


def test_geometry_of_a_linear_model(margin_consistency):
    apart = torch.pdist(linear_head(load_model(LINEAR))[0].double())
    row = margin_consistency.row(what="equidistance", model=LINEAR)
    assert row["distance_q50"] == pytest.approx(float(apart.median()))
    assert row["distance_max"] == pytest.approx(float(apart.max()))


def test_the_order_of_models_is_kendalls(margin_consistency):
    taus, robust = [], []
    for model in SETTING.models:
        where = {"what": "consistency", "score": "logit_margin", "subset": "all"}
        taus.append(margin_consistency.row(**where, model=model)["tau"])
        row = margin_consistency.row(what="robust", usual=True, model=model)
        robust.append(row["robust_accuracy"])
    row = margin_consistency.row(what="across", eps=SETTING.focus)
    exact = kendalltau(taus, robust)
    assert (row["kendall"], row["p_value"]) == pytest.approx(tuple(exact))
    assert row["models"] == len(SETTING.models)


def test_samples_are_those_that_were_measured(margin_samples):
    rows = margin_samples.select(model="digits-cnn-s0")
    assert len(rows) == 100
    assert len(margin_samples.rows) == 100 * len(SETTING.models)
    found = measure("digits-cnn-s0")
    for row in rows[:5]:
        margin = float(found.bounds[row["index"]])
        assert row["input_margin"] == pytest.approx(margin, rel=1e-5)
        assert row["label"] == int(found.labels[row["index"]])


def test_long_searches_are_closer_and_exact_ones_known(margin_convergence):
    excess = margin_convergence.frame().pivot(
        index="model", columns="search", values="excess_mean"
    )
    assert (excess.long < excess.recipe).all()
    assert (excess.recipe < excess.fmn).all()
    exact = margin_convergence.frame(model=LINEAR).set_index("search")
    assert exact.exact.all()
    assert exact.excess_max["long"] < 0.01


def test_estimates_are_unbiased_where_they_say_so(margin_accuracy):
    for method in ("plain", "design", "stratified"):
        for row in margin_accuracy.select(method=method):
            assert abs(row["bias"]) <= 4 * row["bias_se"] + 1e-9
            assert row["coverage"] >= 0.8
    for row in margin_accuracy.select(method="algorithm-1"):
        assert row["coverage"] is None
    spread = margin_accuracy.frame().pivot(
        index=["model", "eps", "size"], columns="method", values="sd"
    )
    assert (spread.design < spread.plain)[spread.design.notna()].mean() > 0.7


def test_truth_is_the_robust_accuracy(margin_accuracy, margin_consistency):
    for row in margin_accuracy.rows:
        where = {"model": row["model"], "eps": row["eps"]}
        other = margin_consistency.row(what="robust", **where)
        assert row["truth"] == pytest.approx(other["robust_accuracy"])


def test_pseudo_margins_are_tested_on_other_images(margin_pseudo, margin_consistency):
    for model in ("digits-cnn-s0", "digits-cnn-adv-s0"):
        raw = margin_pseudo.row(what="method", model=model, method="logit_margin")
        where = {"model": model, "score": "logit_margin", "subset": "all"}
        row = margin_consistency.row(what="consistency", **where)
        assert raw["tau"] == row["tau"]
        assert raw["tau_difference"] == 0
        runs = margin_pseudo.select(
            what="method", model=model, method="pseudo", train=120
        )
        assert [row["training_seed"] for row in runs] == [SEED, SEED + 1]
        assert all(0.2 < row["tau"] < 1 and row["mae"] > 0 for row in runs)


# ------------------------------------------------------------ AutoAttack


def test_the_ensemble_turns_what_exact_margins_say(margin_autoattack):
    images, eps = SETTING.images_of(LINEAR).subset(slice(20)), SETTING.focus
    model = load_model(LINEAR)
    brittle = linear_margins(model, images.images) <= eps
    correct = logits_of(model, images.images).argmax(1) == images.labels
    row = margin_autoattack.row(model=LINEAR)
    assert 0 < brittle.sum() < len(brittle)
    assert row["missed"] == row["added"] == 0
    for name in ("robust_accuracy", "ensemble_accuracy"):
        assert row[name] == float((correct & ~brittle).double().mean())


# ------------------------------------------------------------ defended networks


def test_defended_networks_are_measured_as_others_are(defended):
    (setting,) = DEFENDED["quick"]
    images, start = setting.images_of("digits-cnn-s1"), "digits-cnn-s1"
    for method in ("plain", "mart"):
        how = setting.methods.get(method)
        data = setting.training_images()
        model = trained(RUN, start, how, data, setting.budget, number=1)
        found = margins_of(RUN, model, images, setting.models[start][0])
        key = {"method": method, "seed": 1}
        row = defended.row(what="consistency", score="logit_margin", **key)
        logit = scores_of(found)["logit_margin"]
        assert row["tau"] == pytest.approx(kendalltau(logit, found.bounds).statistic)
        row = defended.row(what="robust", usual=True, **key)
        kept = found.correct & (found.bounds > setting.focus)
        assert row["robust_accuracy"] == float(kept.double().mean())


def test_means_over_starts_have_the_error_of_starts_and_of_images(defended):
    counts = []
    for row in defended.select(what="method"):
        own = defended.select(what="network", method=row["method"])
        starts = {one["start"] for one in own}
        values = np.array(
            [
                np.mean([one["accuracy"] for one in own if one["start"] == start])
                for start in starts
            ]
        )
        spread = np.array([one["accuracy_high"] - one["accuracy_low"] for one in own])
        error = math.sqrt(np.mean((spread / 3.92) ** 2) + values.var(ddof=1) / 2)
        assert row["accuracy"] == pytest.approx(values.mean())
        assert row["accuracy_se"] == pytest.approx(error)
        counts.append((len(own), row["starts"]))
    assert sorted(set(counts)) == [(2, 2), (3, 2)]


def test_what_is_learned_is_of_the_weakest_method_on_other_images(defended):
    (setting,) = DEFENDED["quick"]
    orders = defended.select(what="consistency", score="logit_margin")
    accuracies = {
        (row["method"], row["seed"]): row["accuracy"]
        for row in defended.select(what="network")
    }
    least = np.mean([accuracies["plain", seed] for seed in range(2)]) / 2
    _, method = min(
        (row["tau"], row["method"])
        for row in orders
        if accuracies[row["method"], row["seed"]] >= least
    )
    assert {row["method"] for row in defended.select(what="learned")} == {method}
    data, budget = setting.training_images(), setting.budget
    taus = []
    for seed, start in enumerate(setting.models):
        how = setting.methods.get(method)
        model = trained(RUN, start, how, data, budget, number=seed)
        recipe, _ = setting.models[start]
        other = setting.data().subset(slice(50, 100))
        train, test = (
            margins_of(RUN, model, images, recipe)
            for images in (data.subset(slice(40)), other)
        )
        gap, decided = scores_of(test)["logit_margin"], test.logits.argmax(1)
        raw = defended.row(what="learned", score="logit_margin", seed=seed)
        assert raw["tau"] == pytest.approx(kendalltau(gap, test.bounds).statistic)
        due, before = (
            train.bounds / scores_of(train)["logit_margin"],
            train.logits.argmax(1),
        )
        scaled = [
            float(g) * due[before == k].median() if (before == k).any() else float(g)
            for g, k in zip(gap, decided, strict=True)
        ]
        found = defended.row(what="learned", score="by_class", seed=seed)
        assert found["tau"] == pytest.approx(kendalltau(scaled, test.bounds)[0])
        taus.append(found["tau"])
    mean = defended.row(what="learned method", score="by_class")
    assert mean["tau"] == pytest.approx(np.mean(taus))
    assert mean["tau_se"] > np.std(taus, ddof=1) / math.sqrt(2)


def test_the_objective_of_mart_is_that_of_its_formula(defended):
    (setting,) = DEFENDED["quick"]
    model = load_model("digits-cnn-s0")
    data = setting.training_images().subset(slice(setting.compared))
    draws, values = torch.Generator().manual_seed(SEED), []
    attack = AttackedView(eps=0.1, steps=2)
    for image, label in zip(data.images.split(1), data.labels.split(1), strict=True):
        moved = attack(model, image[None], label[None], draws)[0]
        p, q = (model(one).double().softmax(1)[0] for one in (image, moved))
        rival = max(float(q[k]) for k in range(10) if k != int(label))
        entropy = float((p * (p / q).log()).sum())
        cost = -math.log(float(q[label])) - math.log(1 - rival)
        values.append(cost + 5 * (1 - float(p[label])) * entropy)
    row = defended.row(what="objective", method="plain", seed=0)
    assert row["value"] == pytest.approx(np.mean(values), rel=1e-4)
    error = np.std(values, ddof=1) / math.sqrt(len(values))
    assert row["value_se"] == pytest.approx(error, rel=1e-4)


@pytest.mark.processor
def test_a_plain_network_by_its_recipe_predicts_as_the_stored_one():
    images = load_dataset("digits", "test").images
    networks = plain("digits", 1), *map(load_model, ("digits-cnn-s1", "digits-cnn-s0"))
    ours, same_seed, other_seed = (logits_of(n, images).softmax(1) for n in networks)
    # Processors round differently, and training spreads it: 1e-4. Another seed: 1e-2.
    assert float((ours - same_seed).abs().sum(1).mean()) / 2 < 1e-3
    assert float((ours - other_seed).abs().sum(1).mean()) / 2 > 5e-3


def test_only_some_classes_are_attacked_where_only_these_are_defended():
    class Seen(torch.nn.Module):
        def forward(self, images):
            self.images = images.detach()
            return images.flatten(1)[:, :2] * torch.tensor([1.0, -1.0])

    images, labels = torch.full((4, 1, 1, 2), 0.5), torch.tensor([0, 1, 0, 1])
    model, draws = Seen(), torch.Generator().manual_seed(0)
    Method("sat", 0.1, 1, classes=1).loss(model, images.clone(), labels, draws)
    moved = (model.images != images).flatten(1).any(1)
    assert moved.tolist() == [True, False, True, False]


def test_standardized_images_have_one_contrast():
    images = torch.rand(3, 1, 4, 4)
    seen = StandardizedImages()(images)
    torch.testing.assert_close(StandardizedImages()(0.5 * images + 0.2), seen)
    assert seen.flatten(1).std(1).tolist() == pytest.approx([1, 1, 1], abs=1e-5)
