"""The first images of a data set, and what names them and the models they meet."""

from __future__ import annotations

from collections.abc import Iterable

from torch import nn

from robustbook.datasets import Dataset, load_dataset
from robustbook.studies.adversarial.attacked import data_sha256, model_sha256

__all__ = ["first_images", "sums_of"]


def first_images(dataset: str, split: str, count: int) -> Dataset:
    """Load the first `count` images."""
    return load_dataset(dataset, split).subset(slice(count))


def sums_of(
    dataset: str, split: str, count: int, models: Iterable[tuple[str, nn.Module]]
) -> dict[str, str]:
    """sha256 of these images, and of models by their names."""
    images = data_sha256(first_images(dataset, split, count))
    sums = {name: model_sha256(model) for name, model in models}
    return {**sums, f"{dataset} {split} {count}": images}
