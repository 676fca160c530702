"""The rows of chapter 11: complete, consistent, and right where they can be checked."""

import math

import pytest
import torch
from sklearn.metrics import roc_auc_score

from robustbook.agreement import gibbs_posterior, posterior_agreement
from robustbook.studies import Attack, attack_model
from robustbook.studies.adversarial.adversarial_groups import BINS
from robustbook.studies.adversarial.settings import SETTINGS

(SETTING,) = SETTINGS["quick"]
GROUPS = ("kept_correct", "kept_wrong", "changed_correct", "changed_wrong")


@pytest.fixture
def summaries(adversarial_groups):
    return adversarial_groups.select(table="summary")


def row_and_pair(groups, model):
    """One model under PGD at the bound in focus."""
    attack = Attack("pgd", SETTING.focus, SETTING.steps_on(model, "pgd"))
    pair = attack_model(model, attack, SETTING.data(), seed=0, device="cpu")
    row = groups.row(table="summary", model=model, attack="pgd", eps=SETTING.focus)
    return row, pair


def test_every_model_meets_every_attack_once(summaries):
    bounds = [("pgd", eps) for eps in SETTING.eps]
    expected = [*bounds, ("apgd-dlr", SETTING.focus), ("fmn", None)]
    for model in SETTING.models:
        own = [(r["attack"], r["eps"]) for r in summaries if r["model"] == model]
        assert sorted(own, key=str) == sorted(expected, key=str)


def test_groups_add_up(summaries):
    for row in summaries:
        assert sum(row[f"count_{g}"] for g in GROUPS) == row["samples"]
        exact = math.fsum(row[f"contribution_{g}"] for g in GROUPS)
        assert exact == pytest.approx(row["pa"], abs=1e-9)
        correct = row["count_kept_correct"] + row["count_changed_correct"]
        assert correct == pytest.approx(row["accuracy"] * row["samples"])
        kept = row["count_kept_correct"] + row["count_kept_wrong"]
        assert kept == pytest.approx(row["same_answer_rate"] * row["samples"])
        assert row["hard_part"] + row["confidence_part"] == pytest.approx(row["pa"])


def test_numbers_of_one_model_by_hand(adversarial_groups):
    row, pair = row_and_pair(adversarial_groups, "digits-cnn-s0")
    clean, shifted = pair.logits.double(), pair.shifted_logits.double()
    before, after = clean.softmax(1).amax(1), shifted.softmax(1).amax(1)
    correct = clean.argmax(1) == pair.labels
    fooled = correct & (clean.argmax(1) != shifted.argmax(1))
    change = (after - before)[fooled]
    error = float(change.std()) / math.sqrt(int(fooled.sum()))
    mean = float(before[correct].mean())
    assert row["confidence_clean_correct_1"] == pytest.approx(mean)
    assert row["confidence_fooled_change_1"] == pytest.approx(float(change.mean()))
    assert row["confidence_fooled_change_1_se"] == pytest.approx(error)
    truth = [1] * int(correct.sum()) + [0] * int(fooled.sum())
    scores = torch.cat([before[correct], after[fooled]])
    assert row["auroc_attack"] == pytest.approx(roc_auc_score(truth, scores))
    result = posterior_agreement(clean, shifted)
    both = gibbs_posterior(clean, result.beta).amax(1)
    both = both * gibbs_posterior(shifted, result.beta).amax(1)
    kept = clean.argmax(1) == shifted.argmax(1)
    assert row["auroc_change"] == pytest.approx(roc_auc_score(kept, both))
    posterior = clean.softmax(1)[correct]
    entropy = -(posterior * posterior.log()).nansum(1).mean()
    assert row["mean_entropy_1"] == pytest.approx(float(entropy))


def test_standard_error_of_beta_against_the_bootstrap(adversarial_groups):
    row, pair = row_and_pair(adversarial_groups, "digits-cnn-s0")
    generator = torch.Generator().manual_seed(0)
    count, betas = len(pair.labels), []
    for _ in range(100):
        index = torch.randint(count, (count,), generator=generator)
        drawn = pair.logits[index], pair.shifted_logits[index]
        betas.append(posterior_agreement(*drawn, tol=1e-6).beta)
    spread = float(torch.tensor(betas).std())
    assert 0.7 < row["beta_se"] / spread < 1.4


def test_intervals_hold_their_estimate(adversarial_groups, summaries):
    for row in summaries:
        for name in ("attack", "change"):
            ends = row[f"auroc_{name}_low"], row[f"auroc_{name}_high"]
            if None not in ends and row[f"auroc_{name}"] is not None:
                assert 0 <= ends[0] <= ends[1] <= 1
                assert ends[0] - 0.1 <= row[f"auroc_{name}"] <= ends[1] + 0.1
    for row in adversarial_groups.select(table="rank"):
        assert row["tau"] is None or -1 <= row["tau"] <= 1
        assert row["models"] == len(SETTING.models)


def test_histograms_are_complete(adversarial_groups):
    shares = {}
    for row in adversarial_groups.select(table="histogram"):
        key = row["model"], row["attack"], row["group"]
        shares.setdefault(key, []).append(row["share"])
    for values in shares.values():
        assert len(values) == BINS
        assert sum(values) == pytest.approx(1) or sum(values) == 0
