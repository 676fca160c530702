"""Paired differences between models against the sweep and against the package."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from robustbook.agreement import compare_agreement, shift_by_ratio
from robustbook.studies import Attack, attack_model
from robustbook.studies.adversarial.settings import SETTINGS
from robustbook.studies.results import Results

FIRST, SECOND = "digits-cnn-noise-s0", "digits-cnn-adv-s0"


@pytest.fixture
def differences(quick: Callable[[str], Results]) -> Results:
    return quick("paired_differences")


def test_agreement_is_compared_as_the_package_does(differences: Results) -> None:
    (setting,) = SETTINGS["quick"]
    eps, ratio = setting.eps[1], 0.5
    pairs = []
    for model in (FIRST, SECOND):
        attack = Attack("pgd", eps, setting.steps["pgd"])
        found = attack_model(model, attack, setting.data())
        mixed = shift_by_ratio(found.logits, found.shifted_logits, ratio, seed=0)
        pairs += [found.logits, mixed]
    expected = compare_agreement(*pairs)
    (row,) = differences.select(eps=eps, ratio=ratio, first=FIRST, second=SECOND)
    assert row["pa"] == pytest.approx(expected.difference, abs=4e-9)
    assert row["pa_se"] == pytest.approx(expected.standard_error, rel=1e-4)


def test_where_all_is_attacked_it_agrees_with_the_sweep(
    differences: Results, quick: Callable[[str], Results]
) -> None:
    sweep = quick("adversarial_sweep")
    found = {
        (row["model"], row["eps"]): row for row in sweep.select(attack="pgd", ratio=1.0)
    }
    rows = differences.select(ratio=1.0)
    assert len(rows) == 3 * 10  # bounds, pairs of five models
    for row in rows:
        first, second = (found[row[key], row["eps"]] for key in ("first", "second"))
        for measure in ("pa", "afr_true", "afr_pred"):
            difference = first[measure] - second[measure]
            assert row[measure] == pytest.approx(difference, abs=4e-9)
            # A paired error is at most the sum of the two.
            widest = first[f"{measure}_se"] + second[f"{measure}_se"]
            assert row[f"{measure}_se"] <= widest * 1.01
