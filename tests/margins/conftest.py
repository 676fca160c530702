"""Linear models whose input margins are known, and a small network."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn

from robustbook.datasets import load_dataset
from robustbook.models import load_model


@dataclass(frozen=True)
class Linear:
    """A linear model, images away from 0 and 1, and exact margins."""

    weight: Tensor
    bias: Tensor
    images: Tensor
    labels: Tensor
    #: Over the other classes, the smallest gap / dual norm of the weights' difference.
    linf: Tensor
    l2: Tensor

    def __call__(self, images: Tensor) -> Tensor:
        return images.flatten(1) @ self.weight.T + self.bias


def linear(num_classes: int, *, pixels: int = 64, count: int = 100) -> Linear:
    """Classes have weights of very different lengths: the likeliest is not nearest."""
    generator = torch.Generator().manual_seed(num_classes)
    weight = torch.randn(num_classes, pixels, generator=generator) / pixels**0.5
    weight *= torch.linspace(0.3, 3, num_classes)[:, None]
    bias = torch.randn(num_classes, generator=generator) / 10
    images = 0.3 + 0.4 * torch.rand(4 * count, pixels, generator=generator)
    logits = images.double() @ weight.double().T + bias.double()
    top = logits.argmax(1)
    rows = torch.arange(len(images))
    gaps = logits[rows, top][:, None] - logits
    steps = (weight[top][:, None] - weight[None]).double()
    margins = {}
    for name, order in (("linf", 1), ("l2", 2)):
        found = gaps / torch.linalg.vector_norm(steps, ord=order, dim=2)
        found[rows, top] = torch.inf
        margins[name] = found.min(1).values
    # On the boundary itself, rounding decides; beyond 0.25, the ends of [0, 1] do.
    kept = ((margins["linf"] > 2e-3) & (margins["linf"] < 0.25)).nonzero()[:count, 0]
    return Linear(
        weight,
        bias,
        images[kept].reshape(-1, 1, 8, pixels // 8),
        top[kept],
        margins["linf"][kept],
        margins["l2"][kept],
    )


@pytest.fixture(scope="session")
def three() -> Linear:
    return linear(3)


@pytest.fixture(scope="session")
def ten() -> Linear:
    return linear(10)


@pytest.fixture(scope="session")
def hundred() -> Linear:
    return linear(100, count=40)


@pytest.fixture(scope="session")
def digits() -> tuple[nn.Module, Tensor, Tensor]:
    """A small network, 40 images and their labels; it is wrong on a few."""
    data = load_dataset("digits", "test")
    return load_model("digits-cnn"), data.images[:40], data.labels[:40]
