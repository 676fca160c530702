"""Small models: linear, quadratic with a known answer, and a network."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Linear:
    """A linear classifier in float64, and inputs."""

    weights: Tensor
    bias: Tensor
    x: Tensor

    def __call__(self, x):
        return x.flatten(1) @ self.weights.to(x).T + self.bias.to(x)


def linear(num_classes, size=12, count=8):
    generator = torch.Generator().manual_seed(num_classes)
    kwargs = {"generator": generator, "dtype": torch.float64}
    return Linear(
        torch.randn(num_classes, size, **kwargs),
        torch.randn(num_classes, **kwargs),
        torch.randn(count, size, **kwargs),
    )


@dataclass(frozen=True)
class Curved:
    """Three classes in two dimensions: a parabola and a line bound class 0."""

    bend: float = 0.6

    def __call__(self, x):
        first = 0.8 + x[:, 0] + self.bend * x[:, 1] ** 2
        second = 1.0 + 0.4 * x[:, 0] - x[:, 1]
        return torch.stack([torch.zeros_like(first), -first, -second], dim=1)

    def exact(self, point, sigma):
        """By quadrature over the second coordinate; the first is a normal tail."""
        grid = torch.linspace(-8, 8, 20_001, dtype=torch.float64)
        b = point[1] + sigma * grid
        # first > 0: a > -0.8 - bend b²; second > 0: a > (b - 1) / 0.4.
        need = torch.maximum(-0.8 - self.bend * b**2, (b - 1.0) / 0.4)
        above = torch.special.ndtr((point[0] - need) / sigma)
        weight = torch.exp(-(grid**2) / 2) / (2 * torch.pi) ** 0.5
        return float(torch.trapezoid(above * weight, grid))


@pytest.fixture(scope="session")
def network():
    """A small network with convolution, pooling and ReLU, float64, 5 classes."""
    with torch.random.fork_rng():
        torch.manual_seed(3)
        model = nn.Sequential(
            nn.Conv2d(1, 6, 3, padding=1),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(6 * 9, 5),
        )
    return model.double().eval()


@pytest.fixture(scope="session")
def images():
    generator = torch.Generator().manual_seed(5)
    return torch.rand(7, 1, 6, 6, generator=generator, dtype=torch.float64)
