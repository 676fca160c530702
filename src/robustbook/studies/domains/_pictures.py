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
    Environment,
    Scenes,
    Setup,
    draw_all,
)
from robustbook.studies.domains._training import TrainingSetting

#: Environments as the papers print them, and as their published configuration has
#: them.
SETUPS: Final[Mapping[str, Setup]] = MappingProxyType(
    {"printed": DISCRIMINABILITY, "configured": CONFIGURED["discriminability"]}
)


@lru_cache(maxsize=1)
def training_pictures(
    setup: Setup, setting: TrainingSetting, seed: int
) -> list[Dataset]:
    """Images of the source domains, always the same for a setting and a seed."""
    scenes = draw_all(
        setup.training, shapes=setup.shapes, source=setting.dataset,
        count=setting.count, seed=seed,
    )  # fmt: skip
    return pictures(scenes, setting)


def held_out_scenes(
    setup: Setup, environments: Sequence[Environment], split: str,
    setting: TrainingSetting, seed: int, *, other_digits: bool = False,
    most: int | None = None,
) -> tuple[Scenes, ...]:  # fmt: skip
    """Scenes to validate or test on, which show the same digits in all environments.

    With other digits the first environment shares none with the others. Every digit is
    there as often as the others, unless there would be more than `most` scenes.
    """
    fewest = min(_count_digits(setting.dataset, split, shape) for shape in setup.shapes)
    count = len(setup.shapes) * setting.laps * (fewest // (1 + other_digits))
    return draw_all(
        environments, shapes=setup.shapes, source=setting.dataset, split=split,
        count=count if most is None else min(most, count), seed=seed,
        paired=[0] + [int(other_digits)] * (len(environments) - 1),
    )  # fmt: skip


def _count_digits(source: str, split: str, shape: int) -> int:
    """How many pictures of a digit there are: four fifths train, the rest validate."""
    labels = load_dataset(source, "test" if split == "test" else "train").labels
    total = int((labels == shape).sum())
    return total if split == "test" else total - total * 4 // 5


def pictures(scenes: Sequence[Scenes], setting: TrainingSetting) -> list[Dataset]:
    """Images of scenes at a setting's size: uint8, or standardized."""
    images = [one.dataset(size=setting.size, dtype=torch.uint8) for one in scenes]
    return [standardized(one) for one in images] if setting.own else images


def standardized(data: Dataset) -> Dataset:
    """Pictures with mean 1/2 and standard deviation 1/4 in each channel of the set."""
    images = data.images / 255
    mean = images.mean((0, 2, 3), keepdim=True)
    images = 0.5 + 0.25 * (images - mean) / images.std((0, 2, 3), keepdim=True)
    return Dataset(images, data.labels, data.name, data.split, data.num_classes)
