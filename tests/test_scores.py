"""Accuracy and the same-answer rate against their definitions; bad input is named."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from robustbook.scores import accuracy, predictions, rank_concordance, same_answer_rate


@st.composite
def problems(draw):
    seed = draw(st.integers(0, 2**31))
    num_samples, num_classes = draw(st.integers(1, 40)), draw(st.integers(2, 6))
    random = np.random.default_rng(seed)
    # Few distinct values, so that ties are common.
    clean, shifted = random.integers(-2, 3, (2, num_samples, num_classes))
    labels = random.integers(0, num_classes, num_samples)
    return clean.astype(float), shifted.astype(float), labels


@given(problems())
def test_definitions(problem):
    clean, shifted, labels = problem
    assert accuracy(clean, labels) == np.mean(clean.argmax(1) == labels)
    assert accuracy(shifted, labels) == np.mean(shifted.argmax(1) == labels)
    same = clean.argmax(1) == shifted.argmax(1)
    assert same_answer_rate(clean, shifted) == np.mean(same)
    assert predictions(clean).tolist() == clean.argmax(1).tolist()


@given(problems(), st.sampled_from([torch.float16, torch.float32, torch.float64]))
def test_torch_numpy_and_precision_agree(problem, dtype):
    clean, shifted, labels = problem
    tensors = (torch.as_tensor(clean, dtype=dtype), torch.as_tensor(shifted).to(dtype))
    assert same_answer_rate(*tensors) == same_answer_rate(clean, shifted)
    assert accuracy(tensors[0], torch.as_tensor(labels)) == accuracy(clean, labels)
    # Labels of a CSV file are often floats.
    assert accuracy(clean, labels.astype(float)) == accuracy(clean, labels)


def test_the_result_is_a_plain_float_and_labels_may_be_unsigned():
    share = accuracy(np.eye(3), np.arange(3, dtype=np.uint8))
    assert type(share) is float
    assert share == 1.0


@pytest.mark.parametrize(
    ("logits", "labels", "error", "message"),
    [
        (np.zeros(3), np.zeros(3, int), ValueError, "logits.*shape.*N, K"),
        (np.eye(2), np.zeros(3, int), ValueError, r"labels.*\(2,\).*\(3,\)"),
        (np.eye(2), np.full(2, 0.5), TypeError, "labels.*integer"),
        (np.eye(2), np.array([0, 2]), ValueError, "labels.*0 to 1.*2"),
        (np.eye(2), np.array([-1, 0]), ValueError, "labels.*0 to 1.*-1"),
    ],
)
def test_bad_input_is_named(logits, labels, error, message):
    with pytest.raises(error, match=message):
        accuracy(logits, labels)


def test_the_shifted_logits_are_named():
    with pytest.raises(ValueError, match=r"shifted_logits.*\(2, 2\).*\(3, 2\)"):
        same_answer_rate(np.zeros((2, 2)), np.zeros((3, 2)))


def test_concordance_is_one_for_one_ranking_and_small_for_opposite_ones():
    rising = torch.tensor([1.0, 2.0, 5.0, 9.0])
    assert rank_concordance(torch.stack([rising, rising.exp(), rising * 3])) == 1.0
    assert rank_concordance(torch.stack([rising, -rising])) == pytest.approx(0.0)
    # With ties, rounding would give more than 1.
    for conditions in range(2, 9):
        tied = rank_concordance(torch.tensor([[1.0, 1.0, 1.0, 2.0]] * conditions))
        assert 1 - 1e-12 < tied <= 1


def test_concordance_is_kendalls_formula():
    generator = torch.Generator().manual_seed(0)
    table = torch.rand(7, 5, generator=generator)
    ranks = table.argsort(1).argsort(1).double() + 1
    sums = ranks.sum(0)
    spread = float(((sums - sums.mean()) ** 2).sum())
    assert rank_concordance(table) == pytest.approx(12 * spread / (7**2 * (5**3 - 5)))


def test_concordance_without_ranks():
    assert math.isnan(rank_concordance(torch.ones(4, 3)))
    for shape in ((3,), (1, 3), (3, 2)):
        with pytest.raises(ValueError, match="at least 2 conditions"):
            rank_concordance(torch.rand(shape))
    with pytest.raises(ValueError, match="expected finite numbers"):
        rank_concordance(torch.tensor([[1.0, math.nan, 2.0], [1.0, 2.0, 3.0]]))
