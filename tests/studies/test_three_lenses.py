"""The study of chapter 27: its quick rows against direct computation."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.special import log_ndtr
from scipy.stats import kendalltau
from sklearn.metrics import roc_auc_score

from robustbook.agreement import posterior_agreement
from robustbook.average_case import mmse
from robustbook.corruptions import CORRUPTIONS
from robustbook.models import load_model
from robustbook.studies._statistics import weighted_auroc
from robustbook.studies.lenses._models import SETTINGS, measure_model
from robustbook.studies.lenses._survival import log_failure
from robustbook.studies.run import Run

from ..conftest import SEED

(SETTING,) = SETTINGS["quick"]
MODEL = "digits-cnn-s0"


@pytest.fixture(scope="module")
def lensed():
    run = Run("lenses", "quick", SEED, "cpu", (SETTING,))
    return measure_model(run, SETTING, MODEL)


def test_model_rows(three_lenses, lensed):
    found = three_lenses.select(what="model")
    assert [row["model"] for row in found] == list(SETTING.models)
    row = next(row for row in found if row["model"] == MODEL)
    direct = {
        shift: posterior_agreement(lensed.margins.logits, lensed.shifted_logits[shift])
        for shift in ("adversarial", "noise", *CORRUPTIONS)
    }
    for shift in ("adversarial", "noise"):
        assert row[f"pa_{shift}"] == pytest.approx(direct[shift].pa)
        assert row[f"mismatch_{shift}"] == pytest.approx(direct[shift].mismatch)
    of_camera = [direct[kind] for kind in CORRUPTIONS]
    assert row["pa_domain"] == pytest.approx(np.mean([one.pa for one in of_camera]))
    changed = np.mean([one.mismatch for one in of_camera])
    assert row["kept_domain"] == pytest.approx(1 - changed)
    assert row["average_case"] == pytest.approx(float(lensed.kept.mean()))
    # What PGD changes, the search for margins must not call robust.
    assert row["robust_share"] <= 1 - row["mismatch_adversarial"] + 1e-12


def test_both_estimates_of_the_average_case_are_of_the_same_thing(lensed):
    sigma = SETTING.sigma
    off = lensed.kept - lensed.linearized[sigma]
    assert abs(float(off.mean())) < 0.02
    weak = next(iter(lensed.linearized.values()))
    assert float(weak.mean()) > float(lensed.kept.mean())
    assert float(np.corrcoef(lensed.kept, lensed.linearized[sigma])[0, 1]) > 0.9


def test_relation_rows(three_lenses, lensed):
    scores = lensed.scores()
    found = three_lenses.select(what="relation", model=MODEL)
    assert len(found) == 2
    for row in found:
        direct = kendalltau(scores[row["first"]], scores[row["second"]]).statistic
        assert row["tau"] == pytest.approx(direct)
        assert row["tau_low"] < row["tau"] < row["tau_high"]
    (difference,) = three_lenses.select(what="difference", model=MODEL)
    by = {row["second"]: row["tau"] for row in found if row["first"] == "pa_noise"}
    assert difference["tau_difference"] == pytest.approx(
        by["average_case"] - by["logit_margin"]
    )


def test_foresight_rows(three_lenses, lensed):
    for row in three_lenses.select(what="foresight", model=MODEL):
        score = lensed.scores(row["shift"])[row["score"]]
        failed = lensed.changed(row["shift"])
        assert row["auroc"] == pytest.approx(roc_auc_score(failed, -score))
        assert row["failed"] == pytest.approx(float(failed.double().mean()))
    cases = three_lenses.frame(what="foresight").groupby("score").auroc
    means = three_lenses.frame(what="mean").set_index("score")
    assert set(means.index) == lensed.scores().keys()
    assert means.auroc.to_dict() == pytest.approx(cases.mean().to_dict())
    assert (means.cases == cases.size()[means.index]).all()
    assert ((means.auroc_low < means.auroc) & (means.auroc < means.auroc_high)).all()


def test_no_score_sees_the_corruption_that_is_held_out(lensed):
    blind = replace(
        lensed,
        agreements=lensed.agreements | {"motion_blur": lensed.agreements["noise"]},
        shifted_logits=lensed.shifted_logits
        | {"motion_blur": lensed.shifted_logits["noise"]},
    )
    for name, values in blind.scores("motion_blur").items():
        assert torch.equal(values, lensed.scores("motion_blur")[name])
    assert not torch.equal(blind.domain(), lensed.domain())


def test_cost_rows(three_lenses):
    costs = three_lenses.frame(what="cost").set_index("measure")
    forward, backward = costs.forward, costs.backward
    assert (forward["logit_margin"], backward["logit_margin"]) == (1, 0)
    assert (forward["pa_noise"], backward["pa_noise"]) == (2, 0)
    assert forward["pa_domain"] == 1 + len(CORRUPTIONS)
    assert backward["gradient_margin"] == 1
    assert backward["pa_adversarial"] == SETTING.attack_steps
    assert forward["average_case"] > SETTING.noise_samples
    # Ten linearizations, each with the gradients of nine differences of logits.
    assert backward["average_case_mmse"] == pytest.approx(90, abs=2)
    assert backward["input_margin"] > 50


def test_auroc_against_scikit_learn():
    random = np.random.default_rng(0)
    scores = random.integers(0, 6, size=80).astype(float)
    failed = random.random(80) < 0.3
    picks = random.integers(0, 80, size=(20, 80))
    weights = np.stack([np.bincount(pick, minlength=80) for pick in picks])
    found = weighted_auroc(scores, failed, weights.astype(float))
    assert found[0] == pytest.approx(roc_auc_score(failed, -scores))
    for pick, value in zip(picks, found[1:], strict=True):
        assert value == pytest.approx(roc_auc_score(failed[pick], -scores[pick]))
    # Of a resample without failures it is unknown.
    assert np.isnan(weighted_auroc(scores, failed, 1.0 * ~failed[None])[1])


def test_a_failure_too_rare_for_a_probability_has_its_logarithm():
    # Independent coordinates: 1 - Π(1 - q_i), from the smallest q to the largest.
    means = np.array([[0.3, 1.0, 2.0], [8.5, 9.0, 9.5], [30.0, 31.0, 40.0]])
    chances = log_ndtr(-means)
    exact = np.log(-np.expm1(np.log1p(-np.exp(chances)).sum(axis=1)))
    exact[2] = np.logaddexp.reduce(chances[2])  # both terms, as products are nothing
    found = log_failure(means, np.tile(np.eye(3), (3, 1, 1)), seed=0)
    assert found == pytest.approx(exact, abs=0.03)
    # Two coordinates that are one, and one that never varies.
    same = np.array([[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 0.0]])
    found = log_failure(np.array([[20.0, 20.0, 1.0]]), same[None], seed=0)
    assert found == pytest.approx(log_ndtr([-20.0]))
    for mean, value in ((1.0, -np.inf), (-1.0, 0.0)):
        alone = log_failure(np.array([[mean]]), np.zeros((1, 1, 1)), seed=0)
        assert alone[0] == value


def test_the_linearized_average_case_orders_what_rounding_ties(lensed):
    for sigma, lost in lensed.log_failure.items():
        direct = 1 - lensed.linearized[sigma].numpy()
        common = direct > 1e-3
        assert np.exp(lost.numpy()[common]) == pytest.approx(direct[common], rel=0.1)
    weakest = min(lensed.linearized)
    assert len({*lensed.linearized[weakest].tolist()}) < len(SETTING.data())
    assert len({*lensed.log_failure[weakest].tolist()}) == len(SETTING.data())


@pytest.mark.processor
def test_linearized_is_mmse(lensed):
    direct = mmse(load_model(MODEL), SETTING.data().images, SETTING.sigma, seed=SEED)
    assert torch.equal(direct.probability, lensed.linearized[SETTING.sigma])
