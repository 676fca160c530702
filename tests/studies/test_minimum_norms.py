"""The rows of chapter 12: quantiles of norms, and what is left at the boundary."""

import math

import pytest
import torch

from robustbook.agreement import posterior_agreement
from robustbook.studies.adversarial.attacked import Attack, attack_model
from robustbook.studies.adversarial.boundary import _at_the_boundary
from robustbook.studies.adversarial.norm_quantiles import _quantiles
from robustbook.studies.adversarial.settings import SETTINGS

(SETTING,) = SETTINGS["quick"]


def attacked(model, kind):
    attack = Attack(kind, None, SETTING.steps_on(model, kind))
    return attack_model(model, attack, SETTING.data(), seed=0, device="cpu")


def test_a_quantile_is_a_point_of_the_curve_of_robust_accuracy(norm_quantiles):
    norms = attacked("digits-cnn-s0", "fmn").norms
    rows = norm_quantiles.select(model="digits-cnn-s0", attack="fmn")
    assert len(rows) == 49
    for row in rows:
        assert row["norm_low"] <= row["norm"] <= row["norm_high"]
        below = float((norms <= row["norm"]).double().mean())
        assert below >= row["quantile"] - 1e-9
        assert float((norms < row["norm"]).double().mean()) < row["quantile"]
    assert rows[0]["wrong"] == float((norms == 0).double().mean())


def test_the_closest_is_never_farther(norm_quantiles):
    value = {
        (row["model"], row["attack"], row["quantile"]): row["norm"]
        for row in norm_quantiles.rows
    }
    for (model, attack, quantile), norm in value.items():
        assert value[model, "closest", quantile] <= norm, (model, attack)


def test_failures_are_infinite_and_intervals_cover():
    norms = torch.tensor([0.0, 0.1, 0.2, math.inf])
    median = next(row for row in _quantiles(norms) if row["quantile"] == 0.5)
    assert median["norm"] == pytest.approx(0.1)
    assert (median["norm_low"], median["norm_high"]) == (0.0, math.inf)
    assert (median["wrong"], median["found"]) == (0.25, 0.5)
    generator = torch.Generator().manual_seed(0)
    covered = 0
    for _ in range(400):
        sample = torch.rand(101, generator=generator, dtype=torch.float64)
        row = next(row for row in _quantiles(sample) if row["quantile"] == 0.2)
        covered += row["norm_low"] <= 0.2 <= row["norm_high"]
    assert 0.93 <= covered / 400 <= 1


def test_tied_logits_give_the_limit_where_the_attack_came_close(boundary):
    assert len(boundary.rows) == 2 * len(SETTING.models)
    for row in boundary.rows:
        assert row["pa"] <= row["limit"] + 1e-9
        assert row["wrong"] + row["found"] <= 1
        if "jpeg" not in row["model"]:
            assert row["pa"] <= row["tied"] + 1e-9 <= row["limit"] + 2e-9
    (row,) = (
        r
        for r in boundary.rows
        if (r["model"], r["attack"]) == ("digits-cnn-s0", "fmn")
    )
    assert row["tied"] == pytest.approx(row["limit"], abs=1e-4)
    assert 0 < row["overshoot_low"] < row["overshoot"] < row["overshoot_high"] < 0.01
    found = attacked("digits-cnn-s0", "fmn")
    exact = posterior_agreement(found.logits, found.shifted_logits).pa
    assert row["pa"] == pytest.approx(exact, abs=2e-9)


def test_overshoot_by_hand():
    class Found:
        logits = torch.tensor([[3.0, 1.0, 0.0], [0.0, 2.0, 1.0], [1.0, 0.0, 0.0]])
        shifted_logits = torch.tensor(
            [[2.0, 2.5, 0.0], [0.0, 2.0, 1.0], [1.0, 0.0, 0.0]]
        )
        labels = torch.tensor([0, 1, 2])
        norms = torch.tensor([0.1, math.inf, 0.0])

    row = _at_the_boundary(Found())
    assert row["overshoot"] == pytest.approx(0.25)
    assert (row["wrong"], row["found"]) == (pytest.approx(1 / 3), pytest.approx(1 / 3))
    exp = math.exp
    assert row["before"] == pytest.approx(exp(3) / (exp(3) + exp(1) + 1))
    assert row["after"] == pytest.approx(exp(2.5) / (exp(2) + exp(2.5) + 1))
    assert (row["after_se"], row["drop_se"]) == (0, 0)
    tied = torch.tensor([[2.25, 2.25, 0.0], [0.0, 2.0, 1.0], [1.0, 0.0, 0.0]])
    assert row["tied"] == pytest.approx(
        posterior_agreement(Found.logits, tied).pa, abs=1e-8
    )
    Found.norms = torch.tensor([math.inf, math.inf, 0.0])
    assert _at_the_boundary(Found())["overshoot"] is None
