"""Theorems of Chapters 15 and 16: what agreement on labeled pairs measures."""

import math
from itertools import product

import pytest
import torch

from robustbook.datasets.diagvib import OPPORTUNITIES, co_occurrence
from robustbook.selection import pair_scores


@pytest.mark.parametrize("classes", [2, 4])
def test_agreement_is_accuracy_plus_common_mistakes(classes):
    generator = torch.Generator().manual_seed(classes)
    labels = torch.randint(classes, (400,), generator=generator)
    logits = torch.randn(2, 400, classes, generator=generator)
    logits[:, torch.arange(400), labels] += 1
    scores = pair_scores(*logits, labels)
    first, second = logits.argmax(2)
    neither = (first != labels) & (second != labels)
    common = neither & (first == second)
    extra = (neither.double().mean() + common.double().mean()).item()
    assert scores["same_answer_rate"] == pytest.approx(
        2 * scores["accuracy"] - 1 + extra
    )
    if classes == 2:
        assert torch.equal(neither, common)
        opposite = pair_scores(-logits[0], -logits[1], labels)
        assert opposite["pa"] == pytest.approx(scores["pa"], abs=1e-5)


def test_a_constant_answer_has_the_largest_agreement():
    logits = torch.randn(30, 3, generator=torch.Generator().manual_seed(1))
    stuck = logits + torch.tensor([20.0, 0.0, 0.0])
    scores = pair_scores(stuck, stuck.flip(0), torch.arange(3).repeat(10))
    assert scores["same_answer_rate"] == 1
    assert scores["beta"] == math.inf
    assert scores["pa"] == pytest.approx(math.log(3), abs=1e-6)


@pytest.mark.parametrize("setting", OPPORTUNITIES)
def test_no_rule_of_the_level_beats_the_ceiling(setting):
    seen = co_occurrence(setting).double()
    share = seen / seen.sum(1, keepdim=True)
    ceiling = float(share.amax(0).sum() / 3)
    best = max(
        float(sum(share[answer, level] / 3 for level, answer in enumerate(rule)))
        for rule in product(range(3), repeat=3)
    )
    assert best == pytest.approx(ceiling)
