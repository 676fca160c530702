"""Pictures of digits in two domains, with few factors that differ between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Final

import torch

from robustbook.datasets import Dataset, load_dataset
from robustbook.datasets.diagvib import (
    CONFIGURED,
    DISCRIMINABILITY,
    Scenes,
    Setup,
    draw_all,
)
from robustbook.studies.domains._training import TrainingSetting

__all__ = ["SETUPS", "fewest_digits", "pictures", "training_pictures"]

#: Environments as the papers print them, and as their published configuration has
#: them.
SETUPS: Final[Mapping[str, Setup]] = MappingProxyType(
    {"printed": DISCRIMINABILITY, "configured": CONFIGURED["discriminability"]}
)


@lru_cache(maxsize=1)
def training_pictures(setup: str, setting: TrainingSetting, seed: int) -> list[Dataset]:
    """Images of the source domains, always the same for a setting and a seed."""
    chosen = SETUPS[setup]
    scenes = draw_all(
        chosen.training,
        shapes=chosen.shapes,
        source=setting.dataset,
        count=setting.count,
        seed=seed,
    )
    return pictures(scenes, setting)


def fewest_digits(setting: TrainingSetting, split: str, shapes: Sequence[int]) -> int:
    """How many pictures there are of the digit with the fewest."""
    return min(_count_digits(setting.dataset, split, shape) for shape in shapes)


def _count_digits(source: str, split: str, shape: int) -> int:
    """How many pictures of a digit there are: four fifths train, the rest validate."""
    labels = load_dataset(source, "test" if split == "test" else "train").labels
    total = int((labels == shape).sum())
    return total if split == "test" else total - total * 4 // 5


def pictures(scenes: Sequence[Scenes], setting: TrainingSetting) -> list[Dataset]:
    """Images of scenes at a setting's size, as uint8."""
    return [one.dataset(size=setting.size, dtype=torch.uint8) for one in scenes]
