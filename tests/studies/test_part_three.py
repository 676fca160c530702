"""The studies of Part III: their quick rows against direct computation."""

import base64
import io
import math

import pytest
from PIL import Image

from robustbook.agreement import (
    compare_agreement,
    posterior_agreement,
    shift_by_ratio,
)
from robustbook.studies import STUDIES, Attack, attack_model
from robustbook.studies.adversarial.settings import SETTINGS

(SETTING,) = SETTINGS["quick"]


def test_rows_are_what_the_measure_says(adversarial_sweep):
    eps, model = SETTING.eps[1], "digits-cnn-adv-s0"
    attack = Attack("pgd", eps, SETTING.steps["pgd"])
    found = attack_model(model, attack, SETTING.data())
    (whole,) = adversarial_sweep.select(attack="pgd", model=model, eps=eps, ratio=1.0)
    clean, shifted = found.logits, found.shifted_logits
    exact = posterior_agreement(clean, shifted)
    assert whole["pa"] == pytest.approx(exact.pa, abs=2e-9)
    assert whole["pa_se"] == pytest.approx(exact.standard_error, rel=1e-3)
    (half,) = adversarial_sweep.select(attack="pgd", model=model, eps=eps, ratio=0.5)
    several = [
        posterior_agreement(clean, shift_by_ratio(clean, shifted, 0.5, seed=k)).pa
        for k in range(half["orders"])
    ]
    assert half["pa"] == pytest.approx(sum(several) / len(several), abs=2e-9)
    assert half["pa_order_sd"] > 0


def test_nothing_shifted_is_full_agreement(adversarial_sweep):
    for row in adversarial_sweep.select(ratio=0.0):
        assert row["pa"] == pytest.approx(math.log(10))
        assert row["beta"] == math.inf
        assert row["same_answer_rate"] == 1
        assert row["log_pa"] == pytest.approx(0, abs=1e-9)


def test_every_model_meets_every_bound(adversarial_sweep):
    rows = adversarial_sweep.select(attack="pgd")
    cells = {(row["model"], row["eps"], row["ratio"]) for row in rows}
    assert len(cells) == len(rows) == len(SETTING.models) * len(SETTING.eps) * 11


def test_only_the_defended_model_has_a_surrogate_and_it_is_weaker(adversarial_sweep):
    rows = adversarial_sweep.select(attack="pgd-surrogate", ratio=1.0)
    assert {row["model"] for row in rows} == {"digits-cnn-s0+jpeg-rs"}
    for row in rows:
        where = {"model": row["model"], "eps": row["eps"], "ratio": 1.0}
        direct = adversarial_sweep.row(attack="pgd", **where)
        assert row["shifted_accuracy"] <= direct["shifted_accuracy"]


def test_rank_stability_is_reproducible_and_bounded(rank_stability):
    again = STUDIES["rank_stability"].compute(profile="quick", device="cpu")
    assert rank_stability.rows == again.rows
    assert all(0 <= row["concordance"] <= 1 for row in rank_stability.rows)
    assert len(rank_stability.select(bootstrap=-1)) == 18


def test_pseudo_agreement_depends_on_what_pa_does_not(pseudo_agreement):
    rows = pseudo_agreement.rows
    assert all(row["exact_pa"] == pytest.approx(math.log(10)) for row in rows)
    one = [row for row in rows if row["model"] == "digits-cnn-s0"]
    assert len({round(row["beta"], 6) for row in one}) > 4


def test_examples_are_small_pictures(attack_examples):
    rows = attack_examples.rows
    attacks = {"clean", *SETTING.steps} - {"pgd-surrogate"}
    assert {row["attack"] for row in rows} == attacks
    for row in rows[:3]:
        with Image.open(io.BytesIO(base64.b64decode(row["png"]))) as picture:
            assert picture.size == (8, 8)
    for row in rows:
        if row["attack"] in ("pgd", "apgd-ce", "apgd-dlr"):
            assert row["norm"] <= SETTING.focus + 1e-6
        if row["attack"] == "clean":
            assert row["predicted"] == row["label"]


def test_more_steps_are_tried(attack_convergence):
    rows = attack_convergence.rows
    assert {row["steps"] for row in rows} == set(SETTING.many)


# ---------------------------------------------------------- paired differences

FIRST, SECOND = "digits-cnn-noise-s0", "digits-cnn-adv-s0"


def test_agreement_is_compared_as_the_package_does(paired_differences):
    eps, ratio = SETTING.eps[1], 0.5
    pairs = []
    for model in (FIRST, SECOND):
        attack = Attack("pgd", eps, SETTING.steps["pgd"])
        found = attack_model(model, attack, SETTING.data())
        mixed = shift_by_ratio(found.logits, found.shifted_logits, ratio, seed=0)
        pairs += [found.logits, mixed]
    expected = compare_agreement(*pairs)
    (row,) = paired_differences.select(eps=eps, ratio=ratio, first=FIRST, second=SECOND)
    assert row["pa"] == pytest.approx(expected.difference, abs=4e-9)
    assert row["pa_se"] == pytest.approx(expected.standard_error, rel=1e-4)


def test_where_all_is_attacked_it_agrees_with_the_sweep(
    paired_differences, adversarial_sweep
):
    found = {
        (row["model"], row["eps"]): row
        for row in adversarial_sweep.select(attack="pgd", ratio=1.0)
    }
    rows = paired_differences.select(ratio=1.0)
    pairs = math.comb(len(SETTING.models), 2)
    assert len(rows) == len(SETTING.eps) * pairs
    for row in rows:
        first, second = (found[row[key], row["eps"]] for key in ("first", "second"))
        for measure in ("pa", "shifted_accuracy", "same_answer_rate"):
            difference = first[measure] - second[measure]
            assert row[measure] == pytest.approx(difference, abs=4e-9)
            # A paired error is at most the sum of the two.
            widest = first[f"{measure}_se"] + second[f"{measure}_se"]
            assert row[f"{measure}_se"] <= widest * 1.01
