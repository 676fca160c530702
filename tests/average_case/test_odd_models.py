"""Models that do what they should not: the answer of a proper one, or a clear error."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from robustbook.average_case import (
    control_variate,
    mmse,
    monte_carlo,
    softmax_proxy,
    taylor,
)


def with_sigma(estimate):
    return lambda model, x: estimate(model, x, 0.3, seed=0).probability


FUNCTIONS = pytest.mark.parametrize(
    "function",
    [*map(with_sigma, (monte_carlo, control_variate, taylor, mmse)), softmax_proxy],
    ids=["monte_carlo", "control_variate", "taylor", "mmse", "softmax_proxy"],
)


def in_place(z: Tensor) -> Tensor:
    z.sub_(0.5)
    total = z.sum(1)
    return torch.stack([total, -total], 1)


def pure(z: Tensor) -> Tensor:
    return in_place(z.clone())


@FUNCTIONS
def test_a_model_that_works_in_place_changes_no_image_and_no_number(function):
    x = torch.full((2, 3), 0.3)
    before = x.clone()
    probability = function(in_place, x)
    assert torch.equal(x, before)
    assert torch.equal(probability, function(pure, x))


@FUNCTIONS
@pytest.mark.parametrize("model_type", [torch.float32, torch.float64])
def test_model_and_images_of_different_types_are_named(function, model_type):
    model = nn.Linear(3, 2).to(model_type).eval()
    images = torch.rand(2, 3).to(
        torch.float64 if model_type == torch.float32 else torch.float32
    )
    with pytest.raises(TypeError, match=f"expected the dtype .* {model_type}"):
        function(model, images)


@FUNCTIONS
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (Tensor.to_sparse, "dense logits"),
        (lambda logits: logits * (1 + 1j), "real floating-point logits"),
        (Tensor.long, "real floating-point logits"),
    ],
    ids=["sparse", "complex", "integer"],
)
def test_logits_of_another_kind_are_refused(function, change, message):
    with pytest.raises(TypeError, match=message):
        function(lambda x: change(x), torch.rand(2, 3))
