"""Theorems of Part II on attacks, noise and certain answers, on random logits."""

import math

import numpy as np
import pytest
import torch

from robustbook.agreement import posterior_agreement
from robustbook.scores import accuracy, predictions


@pytest.fixture
def generator():
    return torch.Generator().manual_seed(0)


@pytest.mark.parametrize("classes", [2, 5])
def test_accuracy_sees_a_difference_and_agreement_a_sum(classes, generator):
    before, noise = torch.randn(2, 60, classes, generator=generator)
    after = before + noise
    labels = torch.randint(0, classes, (60,), generator=generator)
    found = posterior_agreement(before, after)
    was, now = (predictions(x) == labels for x in (before, after))
    moved = accuracy(after, labels) - accuracy(before, labels)
    repaired, broken = (float(x.double().mean()) for x in (~was & now, was & ~now))
    assert moved == pytest.approx(repaired - broken)
    assert repaired + broken <= found.mismatch + 1e-12
    assert found.pa <= math.log(classes) - abs(moved) * math.log(2)


def test_any_agreement_occurs_with_one_pair_that_disagrees():
    def agreement(height):
        left = torch.eye(3)[[0] * 100]
        right = left.clone()
        left[0] *= height
        right[0] = torch.eye(3)[1] * height
        return posterior_agreement(left, right).pa

    values = [agreement(height) for height in np.logspace(-2, 2.8, 15)]
    assert values[0] > 0.97 * math.log(3)
    assert values[-1] < 1e-6
    assert all(np.diff(values) <= 1e-8)


def test_certain_answers_leave_the_label_agreement(generator):
    logits = torch.randn(80, 4, generator=generator).double()
    labels = logits.argmax(1)
    labels[::4] = (labels[::4] + 1) % 4
    reach = float((logits.amax(1) - logits[torch.arange(80), labels]).max())
    loss = min(
        float(torch.nn.functional.cross_entropy(beta * logits, labels))
        for beta in np.logspace(-3, 2, 400)
    )
    right = torch.nn.functional.one_hot(labels, 4).double()
    for lead in (2 * reach, 1000 * reach):
        value = posterior_agreement(logits, lead * right).pa
        error = 3 * reach / math.e / (lead - reach)
        assert value <= math.log(4) - loss + error + 1e-4
    assert value == pytest.approx(math.log(4) - loss, abs=5e-3)


def test_an_attack_that_stops_on_the_boundary_costs_log_two(generator):
    clean = torch.randn(60, 5, generator=generator).double() * 2
    first, second = clean.argsort(1, descending=True)[:45, :2].T
    missing, betas = [], []
    for overshoot in (1, 1e-2, 1e-4, 1e-6):
        shifted = clean.clone()
        level = clean.amax(1)[:45]
        shifted[torch.arange(45), first] = level
        shifted[torch.arange(45), second] = level + overshoot
        result = posterior_agreement(clean, shifted)
        missing.append(math.log(5) - 0.75 * math.log(2) - result.pa)
        betas.append(result.beta)
    assert all(np.diff(missing) < 0)
    assert 0 <= missing[-1] < 0.01
    assert all(np.diff(betas) > 0)
