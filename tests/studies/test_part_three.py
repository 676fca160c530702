"""The experiments of Part III: their quick rows against direct computation."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from robustbook.agreement import posterior_agreement, ratio_sweep, shift_by_ratio
from robustbook.studies import (
    EXPERIMENTS,
    Attack,
    attack_model,
    results_for,
    run_experiment,
)
from robustbook.studies.adversarial.settings import SETTINGS, settings_of
from robustbook.studies.results import Results


@pytest.fixture(scope="module")
def sweep() -> Results:
    return results_for("adversarial_sweep", profile="quick")


def test_rows_are_what_the_measure_says(sweep: Results) -> None:
    setting = settings_of("quick")
    eps, model = setting.eps[1], "digits-cnn-adv-s0"
    steps = setting.steps["pgd"]
    found = attack_model(model, Attack("pgd", eps, steps), setting.data())
    (whole,) = sweep.select(attack="pgd", model=model, eps=eps, ratio=1.0)
    exact = posterior_agreement(found.logits, found.shifted_logits)
    assert whole["pa"] == pytest.approx(exact.pa, abs=2e-9)
    assert whole["pa_se"] == pytest.approx(exact.standard_error, rel=1e-3)
    (half,) = sweep.select(attack="pgd", model=model, eps=eps, ratio=0.5)
    several = [
        ratio_sweep(found.logits, found.shifted_logits, [0.5], seed=k)[0].pa
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
    setting = settings_of("quick")
    rows = sweep.select(attack="pgd")
    cells = {(row["model"], row["eps"], row["ratio"]) for row in rows}
    assert len(cells) == len(rows) == len(setting.models) * len(setting.eps) * 11


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


def test_rank_stability_is_reproducible_and_bounded() -> None:
    first = results_for("rank_stability", profile="quick")
    again = results_for("rank_stability", profile="quick")
    assert first.rows == again.rows
    assert all(0 <= row["concordance"] <= 1 for row in first.rows)
    assert len(first.select(bootstrap=-1)) == 18


def test_pseudo_agreement_depends_on_what_pa_does_not() -> None:
    rows = results_for("pseudo_agreement", profile="quick").rows
    assert all(row["exact_pa"] == pytest.approx(math.log(10)) for row in rows)
    one = [row for row in rows if row["model"] == "digits-cnn-s0"]
    assert len({round(row["beta"], 6) for row in one}) > 4


def test_examples_are_small_pictures() -> None:
    import base64
    import io

    from PIL import Image

    rows = results_for("attack_examples", profile="quick").rows
    assert {row["attack"] for row in rows} == {
        "clean",
        *settings_of("quick").steps,
    } - {"pgd-surrogate"}
    for row in rows[:3]:
        with Image.open(io.BytesIO(base64.b64decode(row["png"]))) as picture:
            assert picture.size == (8, 8)
    for row in rows:
        if row["attack"] in ("pgd", "apgd-ce", "apgd-dlr"):
            assert row["norm"] <= settings_of("quick").focus + 1e-6
        if row["attack"] == "clean":
            assert row["predicted"] == row["label"]


def test_more_steps_stop_where_models_are_large() -> None:
    rows = results_for("attack_convergence", profile="quick").rows
    assert {row["steps"] for row in rows} == set(settings_of("quick").many)


def test_every_setting_names_models_that_load_or_are_public() -> None:
    from robustbook.models import list_models, list_public_models

    known = {*list_models(), *list_public_models()}
    for setting in SETTINGS.values():
        assert {name.removesuffix("+jpeg-rs") for name in setting.models} <= known
        assert setting.focus in setting.eps


def test_every_experiment_is_registered_under_its_own_function() -> None:
    import importlib

    for one in EXPERIMENTS.values():
        found = importlib.import_module(f"robustbook.studies.{one.module}")
        assert callable(getattr(found, one.module))


def test_unknown_names_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="name: expected one of"):
        run_experiment("nothing", directory=tmp_path)
    with pytest.raises(ValueError, match="profile: expected 'quick' or 'full'"):
        run_experiment("rank_stability", profile="fast", directory=tmp_path)


def test_a_part_is_shifted_in_the_order_of_its_norms() -> None:
    clean, shifted = torch.zeros(5, 3), torch.ones(5, 3)
    norms = [0.5, 0.1, math.inf, 0.1, 0.0]
    mixed = shift_by_ratio(clean, shifted, 0.6, norms=norms)
    assert mixed[:, 0].tolist() == [0, 1, 0, 1, 1]
    assert torch.equal(shift_by_ratio(clean, shifted, 1.0), shifted)
    assert torch.equal(shift_by_ratio(clean, shifted, 0.0), clean)
    counts = [int(shift_by_ratio(clean, shifted, r)[:, 0].sum()) for r in (0.2, 0.4)]
    assert counts == [1, 2]
