"""Linear models whose margins are known, for the tests of attacks and of margins."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Linear:
    """A linear model, images on which pixels are far from 0 and 1, exact margins."""

    weight: Tensor
    bias: Tensor
    images: Tensor
    labels: Tensor
    #: Smallest gap to another class, over the dual norm of the weights' difference.
    linf: Tensor
    l2: Tensor

    def __call__(self, images):
        return images.flatten(1) @ self.weight.T + self.bias


def linear(num_classes, *, count, uneven=False):
    """With uneven weights, the likeliest other class is often not the nearest."""
    generator = torch.Generator().manual_seed(num_classes)
    weight = torch.randn(num_classes, 64, generator=generator) / 8
    if uneven:
        weight *= torch.linspace(0.3, 3, num_classes)[:, None]
    bias = torch.randn(num_classes, generator=generator) / 10
    images = 0.3 + 0.4 * torch.rand(4 * count, 64, generator=generator)
    logits = images.double() @ weight.double().T + bias.double()
    top = logits.argmax(1)
    rows = torch.arange(len(images))
    gaps = logits[rows, top][:, None] - logits
    steps = (weight[top][:, None] - weight[None]).double()
    margins = {}
    for name, order in (("linf", 1), ("l2", 2)):
        to_class = gaps / torch.linalg.vector_norm(steps, ord=order, dim=2)
        to_class[rows, top] = torch.inf
        margins[name] = to_class.min(1).values
    # At the boundary, rounding matters; beyond 0.25, the ends of [0, 1] do.
    clear = ((margins["linf"] > 2e-3) & (margins["linf"] < 0.25)).nonzero()[:count, 0]
    return Linear(
        weight,
        bias,
        images[clear].reshape(-1, 1, 8, 8),
        top[clear],
        margins["linf"][clear],
        margins["l2"][clear],
    )
