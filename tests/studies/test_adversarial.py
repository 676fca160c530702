"""The studies of Part II: their quick rows against direct computation."""

import base64
import io
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.metrics import roc_auc_score

from robustbook import attacks
from robustbook.agreement import (
    compare_agreement,
    gibbs_posterior,
    posterior_agreement,
    shift_by_ratio,
)
from robustbook.datasets import load_dataset
from robustbook.models import features_of, load_model, logits_of
from robustbook.studies.adversarial import adaptive_attacks as protocol
from robustbook.studies.adversarial.attacked import Attack, attack_model
from robustbook.studies.adversarial.boundary import _at_the_boundary
from robustbook.studies.adversarial.norm_quantiles import _quantiles
from robustbook.studies.adversarial.settings import SETTINGS
from robustbook.studies.run import Run

from ..conftest import SEED

(SETTING,) = SETTINGS["quick"]
NETWORK = "digits-cnn-s0"
NOISY, DEFENDED = "digits-cnn-noise-s0", "digits-cnn-adv-s0"
RUN = Run("attacks", "quick", SEED, "cpu", (SETTING,))


def attacked(model, kind="pgd", eps=None):
    attack = Attack(kind, eps, SETTING.steps_on(model, kind))
    return attack_model(RUN, model, attack, SETTING.data())


# ---------------------------------------------------------- attack once, keep logits


@pytest.fixture(scope="module")
def data():
    return load_dataset("digits", "test").subset(range(30))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A cache of its own."""
    monkeypatch.setenv("ROBUSTBOOK_CACHE", str(tmp_path))
    return tmp_path


def test_the_logits_are_those_of_the_attacked_images(data, folder):
    result = attack_model(replace(RUN, seed=3), NETWORK, Attack("pgd", 0.1, 5), data)
    model = load_model(NETWORK).eval()
    by_hand = attacks.pgd(
        model, data.images, data.labels, eps=0.1, steps=5, seed=3, skip_errors=False
    )
    adversarial = by_hand.adversarial
    torch.testing.assert_close(result.logits, logits_of(model, data.images))
    torch.testing.assert_close(result.shifted_logits, logits_of(model, adversarial))
    torch.testing.assert_close(result.norms, by_hand.norms)
    half = {"rtol": 2e-3, "atol": 2e-3}
    features = features_of(model, adversarial)
    torch.testing.assert_close(result.shifted_features, features, **half)
    assert torch.equal(result.labels, data.labels)


def test_a_bound_selects_from_the_smallest_perturbations(data, folder):
    free = attack_model(RUN, NETWORK, Attack("fmn", None, 20), data)
    eps = float(free.norms[free.norms.isfinite()].median())
    bound = attack_model(RUN, NETWORK, Attack("fmn", eps, 20), data)
    assert len(list(folder.rglob("*.npz"))) == 1
    inside = free.norms <= eps
    assert 0 < int(inside.sum()) < len(inside)
    assert torch.equal(bound.shifted_logits[inside], free.shifted_logits[inside])
    assert torch.equal(bound.shifted_logits[~inside], free.logits[~inside])
    assert bool(bound.norms[~inside].isinf().all())


# ------------------------------------------------------------------------- the sweep


def test_sweep_rows_are_what_the_measure_says(adversarial_sweep):
    where = {"attack": "pgd", "model": DEFENDED, "eps": SETTING.eps[1]}
    assert len(adversarial_sweep.select(attack="pgd")) == 11 * len(SETTING.models) * 3
    found = attacked(DEFENDED, eps=where["eps"])
    whole, half = (adversarial_sweep.row(**where, ratio=r) for r in (1.0, 0.5))
    clean, shifted = found.logits, found.shifted_logits
    exact = posterior_agreement(clean, shifted)
    assert whole["pa"] == pytest.approx(exact.pa, abs=2e-9)
    assert whole["pa_se"] == pytest.approx(exact.standard_error, rel=1e-3)
    several = [
        posterior_agreement(
            clean, shift_by_ratio(clean, shifted, 0.5, seed=SEED + k)
        ).pa
        for k in range(half["orders"])
    ]
    assert len(set(several)) > 1
    assert half["pa"] == pytest.approx(sum(several) / len(several), abs=2e-9)


def test_only_the_defended_model_has_a_surrogate_and_it_is_weaker(adversarial_sweep):
    rows = adversarial_sweep.select(attack="pgd-surrogate", ratio=1.0)
    assert {row["model"] for row in rows} == {"digits-cnn-s0+jpeg-rs"}
    for row in rows:
        where = {"model": row["model"], "eps": row["eps"], "ratio": 1.0}
        direct = adversarial_sweep.row(attack="pgd", **where)
        assert row["shifted_accuracy"] <= direct["shifted_accuracy"]


def test_all_attacks_leave_what_each_of_them_leaves_at_most(adaptive_attacks):
    masked = "digits-cnn-s0+jpeg-rs"
    for joint in adaptive_attacks.select(what="joint"):
        where = {"model": joint["model"], "share": joint["share"]}
        attacks = adaptive_attacks.select(what="attack", **where)
        informed = [row for row in attacks if row["attack"].endswith("-surrogate")]
        assert len(informed) == (4 if joint["model"] == masked else 0)
        assert joint["single"] <= min(row["accuracy"] for row in attacks)
        assert joint["accuracy"] <= joint["single"]
        fooled = joint["accuracy"] / joint["of_right"] - joint["accuracy"]
        assert joint["same_answer_rate"] <= 1 - fooled + 1e-9
    kept = {}
    for kind in ("apgd-ce", "apgd-ce-surrogate"):
        found = attack_model(RUN, masked, Attack(kind, SETTING.focus, 20), RUN.data)
        right = found.shifted_logits.argmax(1) == found.labels
        kept[kind] = float(
            (right & (found.logits.argmax(1) == found.labels)).mean(dtype=torch.double)
        )
        row = adaptive_attacks.row(model=masked, attack=kind, share=1)
        assert row["accuracy"] == pytest.approx(kept[kind])
    assert kept["apgd-ce-surrogate"] < kept["apgd-ce"]


def test_agreement_is_on_the_most_confident_mistake_that_was_found(monkeypatch):
    monkeypatch.setattr(protocol, "RESTARTS", {"quick": 0})
    monkeypatch.setattr(protocol, "SHARES", (1,))
    steps, found = protocol.STEPS["quick"], []
    for kind, count in steps.items():
        found.append(attack_model(RUN, NOISY, Attack(kind, SETTING.focus, count)))
    clean, labels = found[0].logits, found[0].labels.tolist()
    worst = clean.clone()
    for k, label in enumerate(labels):
        leads = []
        for logits in (clean, *(pair.shifted_logits for pair in found)):
            others = np.delete(logits[k].numpy(), label)
            leads.append((float(logits[k, label]) - others.max(), logits[k]))
        worst[k] = min(leads, key=lambda pair: pair[0])[1]
    row = list(protocol.measure(RUN, NOISY))[-1]
    assert row["accuracy"] == row["single"]
    assert row["pa"] == pytest.approx(posterior_agreement(clean, worst).pa, abs=1e-9)


def test_differences_are_paired_as_the_package_pairs(paired_differences):
    eps, ratio = SETTING.eps[1], 0.5
    pairs = []
    for found in (attacked(NOISY, eps=eps), attacked(DEFENDED, eps=eps)):
        mixed = shift_by_ratio(found.logits, found.shifted_logits, ratio, seed=SEED)
        pairs += [found.logits, mixed]
    expected = compare_agreement(*pairs)
    row = paired_differences.row(eps=eps, ratio=ratio, first=NOISY, second=DEFENDED)
    assert row["pa"] == pytest.approx(expected.value, abs=4e-9)
    assert row["pa_se"] == pytest.approx(expected.standard_error, rel=1e-4)


def test_pseudo_agreement_depends_on_what_pa_does_not(pseudo_agreement):
    rows = pseudo_agreement.rows
    assert all(row["exact_pa"] == pytest.approx(math.log(10)) for row in rows)
    one = [row for row in rows if row["model"] == NETWORK]
    assert len({round(row["beta"], 6) for row in one}) > 4


def test_examples_are_small_pictures(attack_examples):
    for row in attack_examples.rows:
        with Image.open(io.BytesIO(base64.b64decode(row["png"]))) as picture:
            assert picture.size == (8, 8)
        if row["attack"] == "clean":
            assert row["predicted"] == row["label"]


# ------------------------------------------------------------ where agreement is lost


def test_groups_add_up_and_intervals_hold_their_estimate(adversarial_groups):
    for row in adversarial_groups.select(table="summary"):
        exact = math.fsum(value for key, value in row.items() if "contribution_" in key)
        assert exact == pytest.approx(row["pa"], abs=1e-9)
        kept, fooled, wrong, last = (
            row[f"count_{group}"] for group in
            ("kept_correct", "changed_correct", "kept_wrong", "changed_wrong")
        )  # fmt: skip
        assert kept + fooled + wrong + last == row["samples"]
        assert kept + fooled == pytest.approx(row["accuracy"] * row["samples"])
        assert kept + wrong == pytest.approx(row["same_answer_rate"] * row["samples"])
    for row in adversarial_groups.select(table="rank"):
        tau, low, high = (row[f"tau{end}"] for end in ("", "_low", "_high"))
        if low is not None:
            # Around the estimate, but for what would exceed 1.
            assert high == 1 or tau - low == pytest.approx(high - tau, abs=1e-5)
    histograms = adversarial_groups.frame(table="histogram")
    shares = histograms.groupby(["model", "attack", "group"]).share
    assert set(shares.sum().round(9)) <= {0, 1}


def test_shares_end_where_all_are_attacked(adversarial_groups):
    shares = adversarial_groups.frame(table="share")
    assert set(shares.groupby(["model", "attack"]).size()) == {10}
    for _, row in shares[shares.ratio == 1].iterrows():
        where = {"model": row.model, "attack": row.attack, "eps": row.eps}
        if row.attack == "fmn":
            where["eps"] = None
        whole = adversarial_groups.row(table="summary", **where)
        assert row.pa == pytest.approx(whole["pa"], abs=1e-8)
        same = [row.approximation, row.approximation_at_one]
        assert same[0] == pytest.approx(same[1], nan_ok=True)


def test_groups_of_one_model_by_hand(adversarial_groups):
    rows = adversarial_groups.select(table="summary", attack="pgd")
    # Its wrong answers change, too.
    row = next(row for row in rows if row["count_changed_wrong"])
    pair = attacked(row["model"], eps=row["eps"])
    clean, shifted = pair.logits.double(), pair.shifted_logits.double()
    before, after = clean.softmax(1).amax(1), shifted.softmax(1).amax(1)
    correct = clean.argmax(1) == pair.labels
    kept = clean.argmax(1) == shifted.argmax(1)
    fooled = correct & ~kept
    change = (after - before)[fooled]
    error = float(change.std()) / math.sqrt(int(fooled.sum()))
    mean = float(before[correct].mean())
    assert row["confidence_clean_correct_1"] == pytest.approx(mean)
    assert row["confidence_fooled_change_1"] == pytest.approx(float(change.mean()))
    assert row["confidence_fooled_change_1_se"] == pytest.approx(error)
    truth = [1] * int(correct.sum()) + [0] * int(fooled.sum())
    scores = torch.cat([before[correct], after[fooled]])
    assert row["auroc_attack"] == pytest.approx(roc_auc_score(truth, scores))
    posterior = clean.softmax(1)[correct]
    entropy = -(posterior * posterior.log()).nansum(1).mean()
    assert row["mean_entropy_1"] == pytest.approx(float(entropy))


def test_the_approximation_of_a_group_is_that_of_the_thesis(adversarial_groups):
    """Theorem B.1.1: one logarithm of the average missing confidence of a group."""
    eps = SETTING.focus
    pair = attacked(NETWORK, eps=eps)
    row = adversarial_groups.row(table="summary", model=NETWORK, attack="pgd", eps=eps)
    clean, shifted = pair.logits, pair.shifted_logits
    same, right = clean.argmax(1) == shifted.argmax(1), clean.argmax(1) == pair.labels
    missing = [
        1 - (row["beta"] * side.double()).softmax(1).amax(1)
        for side in (clean, shifted)
    ]
    for name, group, overlap in (
        ("kept_correct", same & right, 1 - 2 * missing[0]),
        ("changed_correct", ~same & right, missing[1]),
    ):
        confidence = math.log(10) + math.log(float(overlap[group].mean()))
        expected = float(group.double().mean()) * confidence
        assert row[f"approximation_{name}"] == pytest.approx(expected)
        assert row[f"count_{name}"] == int(group.sum()) > 0


# --------------------------------------------------------- the smallest perturbations


def test_a_quantile_is_a_point_of_the_curve_of_robust_accuracy(norm_quantiles):
    norms = attacked(NETWORK, "fmn").norms
    rows = norm_quantiles.select(model=NETWORK, attack="fmn")
    assert len(rows) == 49
    for row in rows:
        assert row["norm_low"] <= row["norm"] <= row["norm_high"]
        below = float((norms <= row["norm"]).double().mean())
        assert below >= row["quantile"] - 1e-9
        assert float((norms < row["norm"]).double().mean()) < row["quantile"]
    assert rows[0]["wrong"] == float((norms == 0).double().mean())


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
    row = boundary.row(model=NETWORK, attack="fmn")
    assert row["tied"] == pytest.approx(row["limit"], abs=1e-4)
    assert 0 < row["overshoot"] < 0.01
    found = attacked(NETWORK, "fmn")
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
    tied = torch.tensor([[2.25, 2.25, 0.0], [0.0, 2.0, 1.0], [1.0, 0.0, 0.0]])
    exact = posterior_agreement(Found.logits, tied).pa
    assert row["tied"] == pytest.approx(exact, abs=1e-8)
    Found.norms = torch.tensor([math.inf, math.inf, 0.0])
    assert _at_the_boundary(Found())["overshoot"] is None


def test_adam_ends_below_the_maximum_and_near_it_where_there_is_one(growing_shares):
    paths = growing_shares.frame(what="adam")
    assert set(paths.groupby("ratio").size()) == {3}
    assert (paths.pa <= paths.best_pa + 1e-9).all()
    last = paths.groupby("ratio").last()
    assert (last.best_beta[0.0], last.best_pa[0.0]) == (math.inf, math.log(10))
    assert (last.best_pa - last.pa)[last.index > 0].max() < 1e-3


def test_half_of_the_images_are_those_that_need_least(growing_shares):
    pair = attacked(DEFENDED, "fmn")
    half = pair.norms.argsort(stable=True)[: len(pair.norms) // 2]
    misled = half[pair.norms[half] > 0]
    row = growing_shares.row(what="confidence", model=DEFENDED, ratio=0.5)
    assert row["misled"] == len(misled)
    before, after = (
        gibbs_posterior(logits[misled], 1.0).amax(1)
        for logits in (pair.logits, pair.shifted_logits)
    )
    fall = before - after
    assert row["fall_1"] == pytest.approx(float(fall.mean()), rel=1e-6)
    error = float(fall.std()) / math.sqrt(len(fall))
    assert row["fall_1_se"] == pytest.approx(error, rel=1e-6)


def test_more_steps_are_compared_on_the_same_images(attack_steps):
    first = attack_steps.select(samples=20)
    assert len(first) == 4 * len(SETTING.models) + 2
    for row in attack_steps.rows:
        assert row["more"] >= 3 * row["steps"]
    # More images, from where the network stands elsewhere; then more steps.
    (closer,) = attack_steps.select(model=NETWORK, attack="fmn", samples=100)
    (longer,) = attack_steps.select(model=NETWORK, attack="fmn", steps=closer["more"])
    assert (closer["steps"], closer["more"], longer["more"]) == (20, 100, 300)
    pair = attack_model(RUN, NETWORK, Attack("fmn", None, 100), SETTING.data())
    result = posterior_agreement(pair.logits, pair.shifted_logits)
    assert closer["pa_more"] == pytest.approx(result.pa, abs=1e-8)
    assert closer["pa_more_se"] == pytest.approx(result.standard_error, rel=1e-6)
    data = SETTING.data().subset(range(20))
    row = attack_steps.row(model=NETWORK, attack="fab")
    few, many = (
        attack_model(RUN, NETWORK, Attack("fab", None, row[key]), data)
        for key in ("steps", "more")
    )
    pas = [posterior_agreement(x.logits, x.shifted_logits).pa for x in (few, many)]
    assert row["pa_fall"] == pytest.approx(pas[0] - pas[1], abs=1e-8)
    # Whoever needs less than the bound is not robust.
    kept = [float((x.norms > SETTING.focus).double().mean()) for x in (few, many)]
    assert row["robust_fall"] == pytest.approx(kept[0] - kept[1])


# ------------------------------------------------------------------- noise and words


def test_many_words_lead_the_classifier(text_edits):
    clean = {row["training_seed"]: row for row in text_edits.select(what="model")}
    for row in text_edits.select(what="shift", how="insert", power=64):
        before = clean[row["training_seed"]]["accuracy"]
        right, same = (1, before) if row["kind"] == "amplify" else (0, 1 - before)
        assert row["shifted_accuracy"] == pytest.approx(right, abs=0.01)
        assert row["same_answer_rate"] == pytest.approx(same, abs=0.01)


def test_noise_rows(noise):
    for row in noise.select(what="strength"):
        same = row["same_answer_rate"]
        assert row["pa"] <= math.log(10) - (1 - same) * math.log(2) + 1e-9
        assert row["hard_part"] + row["confidence_part"] == pytest.approx(row["pa"])
        error = math.sqrt(same * (1 - same) / row["samples"])
        assert row["same_answer_rate_se"] == pytest.approx(error)
    draws = noise.frame(what="strength").groupby(["model", "sigma"]).pa
    assert (draws.nunique() == draws.size()).mean() > 0.9, "each draw is another"
    for row in noise.select(what="ratio", ratio=0.0):
        assert row["pa"] == pytest.approx(math.log(10))
    for row in noise.select(what="ratio", ratio=1.0):
        where = {key: row[key] for key in ("model", "sigma", "draw")}
        same = noise.row(what="strength", **where)
        assert row["pa"] == pytest.approx(same["pa"], abs=1e-8)
    for row in (*noise.select(what="kernel"), *noise.select(what="adam")):
        assert row["kernel"] <= row["best_pa"] + 1e-9
