"""Theorems of Chapters 15 and 16: what agreement on labeled pairs measures."""

import pytest
import torch

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
