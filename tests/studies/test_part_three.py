"""The studies of Part III: their quick rows against direct computation."""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Callable

import pytest
from PIL import Image

from robustbook.agreement import posterior_agreement, shift_by_ratio
from robustbook.studies import STUDIES, Attack, attack_model
from robustbook.studies.adversarial.settings import SETTINGS
from robustbook.studies.results import Results

(SETTING,) = SETTINGS["quick"]


@pytest.fixture
def sweep(quick: Callable[[str], Results]) -> Results:
    return quick("adversarial_sweep")


def test_rows_are_what_the_measure_says(sweep: Results) -> None:
    eps, model = SETTING.eps[1], "digits-cnn-adv-s0"
    attack = Attack("pgd", eps, SETTING.steps["pgd"])
    found = attack_model(model, attack, SETTING.data())
    (whole,) = sweep.select(attack="pgd", model=model, eps=eps, ratio=1.0)
    clean, shifted = found.logits, found.shifted_logits
    exact = posterior_agreement(clean, shifted)
    assert whole["pa"] == pytest.approx(exact.pa, abs=2e-9)
    assert whole["pa_se"] == pytest.approx(exact.standard_error, rel=1e-3)
    (half,) = sweep.select(attack="pgd", model=model, eps=eps, ratio=0.5)
    several = [
        posterior_agreement(clean, shift_by_ratio(clean, shifted, 0.5, seed=k)).pa
        for k in range(half["orders"])
    ]
    assert half["pa"] == pytest.approx(sum(several) / len(several), abs=2e-9)
    assert half["pa_order_sd"] > 0


def test_nothing_shifted_is_full_agreement(sweep: Results) -> None:
    for row in sweep.select(ratio=0.0):
        assert row["pa"] == pytest.approx(math.log(10))
        assert row["beta"] == math.inf
        assert row["afr_pred"] == 1
        assert row["log_pa"] == pytest.approx(0, abs=1e-9)


def test_every_model_meets_every_bound(sweep: Results) -> None:
    rows = sweep.select(attack="pgd")
    cells = {(row["model"], row["eps"], row["ratio"]) for row in rows}
    assert len(cells) == len(rows) == len(SETTING.models) * len(SETTING.eps) * 11


def test_only_the_defended_model_has_a_surrogate_and_it_is_weaker(
    sweep: Results,
) -> None:
    rows = sweep.select(attack="pgd-surrogate", ratio=1.0)
    assert {row["model"] for row in rows} == {"digits-cnn-s0+jpeg-rs"}
    for row in rows:
        (direct,) = sweep.select(
            attack="pgd", model=row["model"], eps=row["eps"], ratio=1.0
        )
        assert row["afr_true"] <= direct["afr_true"]


def test_rank_stability_is_reproducible_and_bounded(
    quick: Callable[[str], Results],
) -> None:
    first = quick("rank_stability")
    again = STUDIES["rank_stability"].compute(profile="quick", device="cpu")
    assert first.rows == again.rows
    assert all(0 <= row["concordance"] <= 1 for row in first.rows)
    assert len(first.select(bootstrap=-1)) == 18


def test_pseudo_agreement_depends_on_what_pa_does_not(
    quick: Callable[[str], Results],
) -> None:
    rows = quick("pseudo_agreement").rows
    assert all(row["exact_pa"] == pytest.approx(math.log(10)) for row in rows)
    one = [row for row in rows if row["model"] == "digits-cnn-s0"]
    assert len({round(row["beta"], 6) for row in one}) > 4


def test_examples_are_small_pictures(quick: Callable[[str], Results]) -> None:
    rows = quick("attack_examples").rows
    assert {row["attack"] for row in rows} == {"clean", *SETTING.steps} - {
        "pgd-surrogate"
    }
    for row in rows[:3]:
        with Image.open(io.BytesIO(base64.b64decode(row["png"]))) as picture:
            assert picture.size == (8, 8)
    for row in rows:
        if row["attack"] in ("pgd", "apgd-ce", "apgd-dlr"):
            assert row["norm"] <= SETTING.focus + 1e-6
        if row["attack"] == "clean":
            assert row["predicted"] == row["label"]


def test_more_steps_are_tried(quick: Callable[[str], Results]) -> None:
    rows = quick("attack_convergence").rows
    assert {row["steps"] for row in rows} == set(SETTING.many)
