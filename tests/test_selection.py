"""Theorems of Chapters 15 and 16 on agreement of labeled pairs."""

import pytest
import torch
from torch import nn

from robustbook.agreement import posterior_agreement
from robustbook.datasets import Dataset
from robustbook.selection import pair_by_features, pair_scores


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
    exact = posterior_agreement(*logits, tol=1e-9).pa
    assert scores["pa"] == pytest.approx(exact, abs=1.1e-6)


def test_pairs_of_bytes_are_those_of_the_same_images_in_floating_point():
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(256, (2, 5, 1, 2, 2), generator=generator)
    labels = torch.zeros(5, dtype=torch.int64)
    model = nn.Sequential(nn.Flatten(), nn.Sigmoid(), nn.Linear(4, 2))
    made = []
    for scaled in (images.to(torch.uint8), images / 255):
        samples = [Dataset(one, labels, 2, "five", "test") for one in scaled]
        made.append(pair_by_features(model, *samples)[1].images * 1.0)
    assert torch.equal(made[0] / 255, made[1])
