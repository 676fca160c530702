"""Margins of logits and of features."""

from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from robustbook.margins import class_distances, feature_margin, logit_margin

values = st.floats(-10, 10, width=32)
logits = arrays.arrays(
    np.float64, st.tuples(st.just(4), st.integers(2, 6)), elements=values
)


@settings(deadline=None)
@given(logits, st.floats(0.1, 10), st.floats(-5, 5), st.randoms())
def test_logit_margin_is_the_gap(scores, factor, shift, random):
    margins = logit_margin(scores).numpy()
    ordered = np.sort(scores, axis=1)
    np.testing.assert_array_equal(margins, ordered[:, -1] - ordered[:, -2])
    order = list(range(scores.shape[1]))
    random.shuffle(order)
    moved = logit_margin(factor * scores[:, order] + shift).numpy()
    np.testing.assert_allclose(moved, factor * margins, atol=1e-12)
    half = logit_margin(torch.tensor([[1000.0, 999.5]], dtype=torch.float16))
    assert (float(half[0]), half.dtype) == (0.5, torch.float64)


@pytest.fixture
def head():
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(5, 7, generator=generator, dtype=torch.float64)
    weight *= torch.tensor([0.2, 1, 1, 2, 5])[:, None]
    bias = torch.randn(5, generator=generator, dtype=torch.float64)
    features = torch.randn(6, 7, generator=generator, dtype=torch.float64)
    return features, weight, bias


@pytest.mark.parametrize(("norm", "dual"), [("l2", 2), ("linf", 1)])
def test_feature_margin_is_the_nearest_gap_over_the_dual_norm(head, norm, dual):
    margins = feature_margin(*head, norm=norm).tolist()
    features, weight, bias = (part.numpy() for part in head)
    for x, margin in zip(features, margins, strict=True):
        logits = weight @ x + bias
        top = logits.argmax()
        assert margin == pytest.approx(
            min(
                (logits[top] - logits[other]) / np.linalg.norm(row, dual)
                for other, row in enumerate(weight[top] - weight)
                if other != top
            )
        )


def test_equidistant_classes_make_both_margins_proportional():
    weight = torch.eye(4, dtype=torch.float64)
    features = torch.randn(20, 4, generator=torch.Generator().manual_seed(1)).double()
    margins = feature_margin(features, weight)
    torch.testing.assert_close(margins, logit_margin(features @ weight.T) / 2**0.5)
    assert class_distances(weight).variation == 0
    stretched = weight * torch.tensor([1, 1, 1, 3.0])[:, None]
    assert class_distances(stretched).variation > 0.2
    ratio = feature_margin(features, stretched) / logit_margin(features @ stretched.T)
    assert float(ratio.max() / ratio.min()) > 1.5


def test_class_distances(head):
    _, weight, _ = head
    margins = class_distances(weight)
    pairs = [float((weight[i] - weight[j]).norm()) for i in range(5) for j in range(i)]
    assert margins.mean == pytest.approx(np.mean(pairs))
    assert margins.variation == pytest.approx(np.std(pairs) / np.mean(pairs))
    assert (margins.smallest, margins.largest) == pytest.approx(
        (min(pairs), max(pairs))
    )
    assert torch.equal(margins.distances, margins.distances.T)
    dual = class_distances(weight, norm="linf").distances[0, 1]
    assert float(dual) == pytest.approx(float((weight[0] - weight[1]).abs().sum()))


def test_classes_with_equal_weights():
    """The bias decides whether they always tie or never."""
    weight = torch.ones(2, 3)
    features = torch.rand(2, 3)
    assert feature_margin(features, weight).tolist() == [0, 0]
    far = feature_margin(features, weight, torch.tensor([0.0, 1.0]))
    assert far.tolist() == [torch.inf, torch.inf]
    assert class_distances(weight).variation == 0


HEAD = [[1.0], [2.0]]
L1 = partial(feature_margin, norm="l1")


@pytest.mark.parametrize(
    ("measure", "arguments", "error", "message"),
    [
        (logit_margin, [[[1.0]]], ValueError, "at least 2 classes"),
        (feature_margin, [[[1.0, 2.0]], HEAD], ValueError, r"shape \(K, 2\)"),
        (
            feature_margin,
            [[[1.0]], HEAD, [1.0]],
            ValueError,
            "bias: expected 2 numbers",
        ),
        (L1, [[[1.0]], HEAD], ValueError, "norm: expected one of"),
        (class_distances, [[[1.0]]], ValueError, "at least two classes"),
        (class_distances, [[[1.0], [np.inf]]], ValueError, "weight: expected finite"),
    ],
)
def test_bad_input(measure, arguments, error, message):
    with pytest.raises(error, match=message):
        measure(*arguments)
