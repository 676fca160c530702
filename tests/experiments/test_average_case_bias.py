"""Who is robust: the statistics are what they say, and tell something from nothing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

from robustbook.average_case import linear_exact
from robustbook.datasets import Dataset
from robustbook.experiments import average_case_bias as experiment
from robustbook.models import build_model

pytestmark = pytest.mark.filterwarnings("error")


def test_concordance_counts_pairs() -> None:
    p = np.array([0.1, 0.5, 0.5, 1.0])
    # Pairs that differ in p: all but (1, 2). The proxy has (0, 1) wrong, (2, 3) tied.
    proxy = np.array([0.3, 0.2, 0.9, 0.9])
    share, _ = experiment._concordance(proxy, p)
    assert share == pytest.approx((0 + 1 + 1 + 1 + 0.5) / 5)
    assert experiment._concordance(p, p)[0] == 1
    assert experiment._concordance(-p, p)[0] == 0
    assert np.isnan(experiment._concordance(proxy, np.ones(4))[0])


def test_concordance_of_two_outcomes_is_the_area_under_the_curve() -> None:
    generator = np.random.default_rng(0)
    p = (generator.random(300) < 0.4).astype(float)
    proxy = p + generator.normal(size=300)
    share, _ = experiment._concordance(proxy, p)
    assert share == pytest.approx(roc_auc_score(p, proxy))


@pytest.mark.parametrize("strength", [0.0, 1.0])
def test_errors_of_rank_measures_are_the_spread_of_repetitions(
    strength: float,
) -> None:
    generator = np.random.default_rng(1)
    found = []
    for _ in range(300):
        truth = generator.normal(size=120)
        p = np.round(strength * truth + generator.normal(size=120)).clip(-1, 1)
        found.append(
            (
                *experiment._concordance(truth, p),
                experiment._spearman(truth, p),
                experiment._fisher_error(truth, p),
            )
        )
    values = np.array(found)
    for estimate, error in ((0, 1), (2, 3)):
        spread = values[:, estimate].std(ddof=1)
        assert values[:, error].mean() == pytest.approx(spread, rel=0.15)


def test_area_within_classes() -> None:
    generator = np.random.default_rng(2)
    upper = np.tile([0, 1], 100)
    classes = np.repeat([0, 1], 100)
    # Between classes the values differ much, which must not count.
    values = 100 * classes + upper + generator.normal(size=200)
    area, error = experiment._stratified_area(values, upper, classes)
    parts = [roc_auc_score(upper[classes == k], values[classes == k]) for k in (0, 1)]
    assert area == pytest.approx(np.mean(parts))
    assert 0.01 < error < 0.06


def test_class_test_is_calibrated_and_sees_a_difference() -> None:
    generator = np.random.default_rng(3)
    classes = np.repeat(np.arange(5), 40)
    values = []
    for _ in range(60):
        p = generator.beta(5, 1, size=200)
        values.append(experiment._class_test(p, classes, 5, generator)["p_value"])
    assert 0.35 < np.mean(values) < 0.65
    assert np.mean(np.array(values) < 0.2) < 0.4
    found = experiment._class_test(p + 0.2 * (classes == 2), classes, 5, generator)
    assert found["p_value"] < 0.01
    assert found["spread"] == pytest.approx(0.2 / np.sqrt(5), abs=0.03)


def test_noisy_predictions_have_the_right_shares() -> None:
    model = build_model("linear", seed=0, options={"size": 2, "num_classes": 3})
    model = model.eval().requires_grad_(False)
    images = torch.rand(4, 1, 2, 2, generator=torch.Generator().manual_seed(0))
    counts = experiment._noisy_predictions(model, images, [0.2, 0.5], 8000, 0)
    assert counts.shape == (2, 4, 3)
    assert (counts.sum(2) == 8000).all()
    exact = linear_exact(model.linear.weight, model.linear.bias, images, [0.2, 0.5])
    kept = counts[:, np.arange(4), exact.labels.numpy()] / 8000
    np.testing.assert_allclose(kept, exact.probability.numpy(), atol=0.02)


@pytest.mark.parametrize("kind", ["cnn", "pixels", "properties"])
def test_classifiers_tell_what_can_be_seen_and_nothing_else(kind: str) -> None:
    generator = torch.Generator().manual_seed(4)
    images = 0.5 * torch.rand(120, 1, 8, 8, generator=generator)
    upper = np.tile([0, 1], 60)
    fit = experiment._CLASSIFIERS[kind]
    blind = experiment._cross_validate(fit, images, upper, upper, 3, 0)
    assert 0.3 < blind.mean() < 0.7
    images[upper == 1] += 0.4
    seen = experiment._cross_validate(fit, images, upper, upper, 3, 0)
    assert seen.mean() > 0.95


def test_ends_are_those_of_each_class() -> None:
    group = experiment._Group("digits", "test", (), (0.1, 0.2), draws=2, ends=2)
    data = Dataset(
        images=torch.zeros(12, 1, 8, 8),
        labels=torch.tensor([0, 1] * 6),
        name="ends",
        split="test",
        num_classes=2,
    )
    arrays = {"logits": np.eye(2)[[0, 1] * 6], "counts": np.ones((2, 12, 2))}
    arrays["first"] = arrays["counts"] / 2
    found = experiment._Found(group, data, arrays, 0)
    index, upper = found.ends(np.arange(12.0))
    assert index[upper == 0].tolist() == [0, 2, 1, 3]
    assert index[upper == 1].tolist() == [8, 10, 9, 11]


def test_quick_rows_are_complete(monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("ROBUSTBOOK_CACHE", str(tmp_path))
    (group,) = experiment._PLANS["quick"]
    few = replace(group, models=("digits-cnn-s0",), images=150, draws=8, fits=1, ends=4)
    monkeypatch.setitem(experiment._PLANS, "quick", (few,))
    rows = experiment.average_case_bias(profile="quick")
    again = experiment.average_case_bias(profile="quick")
    assert rows == again
    kinds = {row["what"] for row in rows}
    assert kinds == {
        "model", "mean", "class", "test", "rank", "property", "end", "tell",
        "point", "image",
    }  # fmt: skip
    by_label = [
        row for row in rows
        if row["what"] == "class" and row["by"] == "label" and row["among"] == "all"
        and row["sigma"] == 0.2
    ]  # fmt: skip
    mean = next(r for r in rows if r["what"] == "mean" and r["sigma"] == 0.2)
    total = sum(row["n"] * row["p"] for row in by_label)
    assert total / 150 == pytest.approx(mean["p"], abs=1e-4)
    for row in rows:
        assert all(value == value for value in row.values())  # no NaN
