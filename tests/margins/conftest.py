"""Linear models whose margins are known, and a small network."""

from __future__ import annotations

import pytest
from linear_models import Linear, linear
from torch import Tensor, nn

from robustbook.datasets import load_dataset
from robustbook.models import load_model


@pytest.fixture(scope="session")
def three() -> Linear:
    return linear(3, count=100, uneven=True)


@pytest.fixture(scope="session")
def ten() -> Linear:
    return linear(10, count=100, uneven=True)


@pytest.fixture(scope="session")
def hundred() -> Linear:
    return linear(100, count=40, uneven=True)


@pytest.fixture(scope="session")
def digits() -> tuple[nn.Module, Tensor, Tensor]:
    """A small network, 40 images and their labels; it is wrong on a few."""
    data = load_dataset("digits", "test")
    return load_model("digits-cnn"), data.images[:40], data.labels[:40]
