"""The experiments of chapter 17: rows complete, scores right, nothing trained twice."""

import math

import pytest
import torch

from robustbook.agreement import posterior_agreement
from robustbook.datasets.diagvib import CONFIGURED, OPPORTUNITIES
from robustbook.studies.domains._epochs import FACTORS, _next_of_class, criteria
from robustbook.studies.domains.domain_selection import SETTINGS

PAIRS = ("SD", "ID", "1F-MD", "5F-MD", "OOD")


def test_every_training_has_every_epoch(domain_selection, domain_shortcuts):
    keys = ("factor", "learner", "training_seed", "epoch")
    found = [tuple(row[key] for key in keys) for row in domain_selection.rows]
    (plan,) = SETTINGS["quick"]
    assert len(found) == len(set(found))
    assert set(found) == {
        (factor, learner, seed, epoch)
        for factor in FACTORS
        for learner in ("ERM", "IRM", "LISA")
        for seed in range(plan.seeds)
        for epoch in range(1, plan.epochs + 1)
    }
    found = [
        (row["setting"], *(row[key] for key in keys)) for row in domain_shortcuts.rows
    ]
    (plan,) = SETTINGS["quick shortcuts"]
    assert len(found) == len(set(found))
    assert set(found) == {
        (setting, factor, learner, seed, epoch)
        for setting in OPPORTUNITIES
        for factor in FACTORS
        for learner in ("ERM", "IRM")
        for seed in range(plan.seeds)
        for epoch in range(1, plan.epochs + 1)
    }


def test_columns_are_those_of_the_documentation(domain_selection, domain_shortcuts):
    names = {
        "accuracy",
        "same_answer_rate",
        "pa",
        "other_same_answer_rate",
        "other_pa",
        "classes",
    }
    tests = {f"test/{k}" for k in range(6)}
    shared = {"factor", "learner", "training_seed", "epoch", "loss", "risk"} | tests
    assert set(domain_selection.rows[0]) == shared | {
        f"{p}/{n}" for p in PAIRS for n in names
    }
    of_tests = {f"tests/{n}" for n in ("same_answer_rate", "pa", "beta", "confidence")}
    assert set(domain_shortcuts.rows[0]) == (
        shared | {"setting"} | {f"ID/{name}" for name in names} | of_tests
    )


def test_scores_fit_together(domain_selection, domain_shortcuts):
    for rows, most in ((domain_selection, 4), (domain_shortcuts, 3)):
        for row in rows.rows:
            for name in (name for name in row if name.endswith("pa")):
                agreed = row[name.replace("pa", "same_answer_rate")]
                bound = math.log(most) - (1 - agreed) * math.log(2)
                assert -1e-5 <= row[name] <= bound + 1e-5
            assert 1 <= row["ID/classes"] <= most


def test_the_same_picture_twice_agrees_whatever_the_model(domain_selection):
    for row in domain_selection.rows:
        assert row["SD/same_answer_rate"] == 1
        assert row["SD/pa"] == pytest.approx(math.log(4), abs=1e-5)
        assert row["SD/other_same_answer_rate"] < 1 or row["SD/classes"] < 4


def test_a_shortcut_without_exception_is_believed(domain_shortcuts):
    """The last epoch: right where the hue goes with the class, wrong elsewhere."""
    last = SETTINGS["quick shortcuts"][0].epochs
    for row in domain_shortcuts.rows:
        if (row["factor"], row["setting"], row["epoch"]) == ("hue", "ZGO", last):
            assert row["test/0"] > 0.9
            assert row["test/1"] < 0.2


def test_zso_leaves_no_new_combination(domain_shortcuts):
    for row in domain_shortcuts.rows:
        if row["setting"] == "ZSO":
            assert row["test/0"] == row["test/1"]


def test_criteria_by_hand():
    labels = torch.tensor([0, 1, 0, 1])
    logits = torch.tensor([[2.0, 0.0], [0.0, 1.0], [0.5, 0.0], [0.3, 0.0]])
    shifted = torch.tensor([[1.0, 0.0], [0.0, 3.0], [0.0, 0.2], [0.0, 0.7]])
    found = criteria(logits, shifted, labels)
    assert found["accuracy"] == pytest.approx((0.75 + 0.75) / 2)
    assert found["same_answer_rate"] == pytest.approx(0.5)
    # Rows 0 and 2 are of one class, 1 and 3 of the other: each takes the other's.
    assert found["other_same_answer_rate"] == pytest.approx(0.5)
    crossed = shifted[[2, 3, 0, 1]]
    assert found["other_pa"] == pytest.approx(
        posterior_agreement(logits, crossed).pa, abs=1e-6
    )
    assert found["other_pa"] != pytest.approx(found["pa"], abs=1e-3)
    assert found["classes"] == 2


def test_a_class_of_one_sample_is_paired_with_itself():
    labels = torch.tensor([0, 1, 1])
    assert _next_of_class(labels).tolist() == [0, 2, 1]


def test_position_is_tested_where_shifts_add_up():
    """As the published configuration has it; the printed table falls back in hue."""
    tests = CONFIGURED["selection-position"].tests
    for count, test in enumerate(tests):
        assert len(test.differs_from(tests[0])) == count
