"""Linear models whose margins are known, and a small network."""

import pytest
from linear_models import linear

from robustbook.datasets import load_dataset
from robustbook.models import load_model


@pytest.fixture(scope="session")
def binary():
    return linear(2, count=200)


@pytest.fixture(scope="session")
def ten():
    return linear(10, count=200)


@pytest.fixture(scope="session")
def hundred():
    return linear(100, count=60)


@pytest.fixture(scope="session")
def digits():
    """A small network, 60 images and their labels; it is wrong on a few."""
    data = load_dataset("digits", "test")
    return load_model("digits-cnn"), data.images[:60], data.labels[:60]
