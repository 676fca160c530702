"""Pairings: indices, classes, ties of size, optimality."""

import itertools

import numpy as np
import pytest
import torch

from robustbook.agreement import (
    pair_by_label,
    pair_nearest,
    pair_optimal,
)


@pytest.fixture
def clouds():
    rng = np.random.default_rng(0)
    labels, others = rng.integers(0, 3, 40), rng.integers(0, 3, 30)
    return rng.normal(size=(40, 2)), rng.normal(size=(30, 2)), labels, others


def test_by_label_pairs_within_classes_without_repetition(clouds):
    _, _, labels, others = clouds
    index, shifted = pair_by_label(labels, others)
    assert (labels[index] == others[shifted]).all()
    assert len(set(index.tolist())) == len(index) == len(set(shifted.tolist()))
    expected = sum(min((labels == k).sum(), (others == k).sum()) for k in range(3))
    assert len(index) == expected
    assert index.tolist() == sorted(index.tolist())
    assert not torch.equal(shifted, pair_by_label(labels, others, seed=1)[1])


def test_nearest_is_nearest(clouds):
    clean, shifted, labels, others = clouds
    index, partner = pair_nearest(clean, shifted)
    distance = np.linalg.norm(clean[:, None] - shifted[None], axis=2)
    assert (partner.numpy() == distance.argmin(1)).all()
    assert index.tolist() == list(range(40))
    index, partner = pair_nearest(clean, shifted, labels=labels, shifted_labels=others)
    same = np.where(labels[:, None] == others[None], distance, np.inf)
    assert (partner.numpy() == same.argmin(1)).all()


def test_optimal_is_optimal_and_takes_the_smaller_collection(clouds):
    clean, shifted, labels, others = clouds
    index, partner = pair_optimal(clean[:5], shifted[:5])
    cost = np.linalg.norm(clean[:5, None] - shifted[None, :5], axis=2)
    orders = itertools.permutations(range(5))
    best = min(cost[range(5), list(order)].sum() for order in orders)
    assert cost[index, partner].sum() == pytest.approx(best)
    assert len(pair_optimal(clean, shifted)[0]) == 30
    index, partner = pair_optimal(clean, shifted, labels=labels, shifted_labels=others)
    assert (labels[index] == others[partner]).all()


GOOD = torch.randn(4, 2, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("pair", [pair_nearest, pair_optimal])
@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"shifted_features": GOOD[:, :1]}, ValueError, "expected 2 features"),
        ({"features": GOOD + 1j}, TypeError, "features: expected"),
        ({"shifted_features": GOOD / 0}, ValueError, "finite"),
        ({"features": GOOD[0]}, ValueError, "expected shape"),
        ({"labels": [0] * 4}, ValueError, "shifted_labels: expected labels for both"),
        ({"labels": [0, 1], "shifted_labels": [0] * 4}, ValueError, r"shape \(4,\)"),
        (
            {"labels": [0] * 4, "shifted_labels": [1] * 4},
            ValueError,
            "class that labels have",
        ),
    ],
)
def test_bad_features(pair, change, error, message):
    with pytest.raises(error, match=message):
        pair(**({"features": GOOD, "shifted_features": GOOD} | change))


def test_bad_labels():
    with pytest.raises(TypeError, match="labels: expected integer labels"):
        pair_by_label([0.5], [1])
    with pytest.raises(ValueError, match="at least one class that labels have"):
        pair_by_label([0, 0], [1, 1])
    with pytest.raises(ValueError, match="labels: expected shape"):
        pair_by_label([[0, 0]], [1, 1])


def test_nearest_survives_offsets_and_scales():
    rng = np.random.default_rng(1)
    clean, shifted = rng.normal(size=(2, 50, 40))
    expected = pair_nearest(clean, shifted)[1]
    for offset, scale in ((1e6, 1.0), (0.0, 1e-100), (0.0, 1e100)):
        moved = [scale * part + offset for part in (clean, shifted)]
        assert torch.equal(pair_nearest(*moved)[1], expected)
        assert len(pair_optimal(*moved)[0]) == 50
