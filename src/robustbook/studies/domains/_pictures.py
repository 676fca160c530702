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
    OPPORTUNITIES,
    SELECTION_HUE,
    SELECTION_POSITION,
    Environment,
    Scenes,
    Setup,
    draw_all,
    opportunities,
)
from robustbook.studies.domains._training import TrainingSetting

#: Environments of Experiment 5 as the papers print them, and as their published
#: configuration has them.
PRINTED_AND_CONFIGURED: Final = ("printed", "configured")
#: The factor in which the source domains of Experiments 6 and 7 differ.
FACTORS: Final = ("hue", "position")
#: Domains that differ in the hue: it tells nothing of the class (Experiment 6), or it
#: gives the class away, more and less (Experiment 7).
HUES: Final = ("two hues", *OPPORTUNITIES)
#: The same with the position in place of the hue.
POSITIONS: Final = ("two positions", *(f"position {name}" for name in OPPORTUNITIES))
# The configuration's test environments are cumulative also for position; twice the
# same domain, the thesis's SD, is printed for it but not configured.
SETUPS: Final[Mapping[str, Setup]] = MappingProxyType(
    {
        "printed": DISCRIMINABILITY,
        "configured": CONFIGURED["discriminability"],
        "two hues": SELECTION_HUE,
        "two positions": SELECTION_POSITION,
        **{name: opportunities(name) for name in OPPORTUNITIES},
        **{factor: CONFIGURED[f"selection-{factor}"] for factor in FACTORS},
        **{
            f"{factor} {name}": opportunities(name, factor=factor)
            for factor in FACTORS
            for name in OPPORTUNITIES
        },
    }
)


@lru_cache(maxsize=1)
def training_pictures(setup: str, setting: TrainingSetting, seed: int) -> list[Dataset]:
    """Images of the source domains, always the same for a setting and a seed."""
    scenes = draw_all(
        SETUPS[setup].training,
        shapes=SETUPS[setup].shapes,
        source=setting.dataset,
        count=setting.count,
        seed=seed,
    )
    return pictures(scenes, setting)


def held_out_scenes(
    setup: str,
    environments: Sequence[Environment],
    split: str,
    setting: TrainingSetting,
    seed: int,
    *,
    other_digits: bool = False,
) -> tuple[Scenes, ...]:
    """Scenes to validate or test on, which show the same digits in all environments.

    With other digits, the first environment shares none with the others. Each digit
    appears equally often, unless the setting limits the number of scenes.
    """
    shapes = SETUPS[setup].shapes
    fewest = min(_count_digits(setting.dataset, split, shape) for shape in shapes)
    count = len(shapes) * setting.repeats_per_digit * (fewest // (1 + other_digits))
    limit = setting.tested if split == "test" else setting.validated
    return draw_all(
        environments,
        shapes=shapes,
        source=setting.dataset,
        split=split,
        count=count if limit is None else min(limit, count),
        seed=seed,
        paired=[0] + [int(other_digits)] * (len(environments) - 1),
    )


def _count_digits(source: str, split: str, shape: int) -> int:
    """How many pictures of a digit there are: four fifths train, the rest validate."""
    labels = load_dataset(source, "test" if split == "test" else "train").labels
    total = int((labels == shape).sum())
    return total if split == "test" else total - total * 4 // 5


@lru_cache(maxsize=1)
def held_out_pictures(
    setup: str, setting: TrainingSetting, seed: int
) -> tuple[dict[str, tuple[Dataset, Dataset]], list[Dataset]]:
    """Validation pairs, and tests: the same digits in all environments of a part."""
    chosen = SETUPS[setup]
    wanted = dict(chosen.validation)
    if setup in FACTORS:
        wanted = {"SD": (chosen.training[0], chosen.training[0]), **wanted}
    # Each environment is drawn once, also if several pairs contain it.
    environments = list(dict.fromkeys(env for pair in wanted.values() for env in pair))
    samples, tests = (
        pictures(held_out_scenes(setup, drawn, split, setting, seed), setting)
        for drawn, split in ((environments, "validation"), (chosen.tests, "test"))
    )
    pairs = {
        name: (samples[environments.index(first)], samples[environments.index(second)])
        for name, (first, second) in wanted.items()
    }
    return pairs, tests


def validation_pair(
    setup: str, setting: TrainingSetting, seed: int
) -> tuple[Dataset, Dataset]:
    """The pair of Experiment 5a: the same digits in both environments."""
    environments = SETUPS[setup].validation["ID"]
    scenes = held_out_scenes(setup, environments, "validation", setting, seed)
    first, second = pictures(scenes, setting)
    return first, second


def pictures(scenes: Sequence[Scenes], setting: TrainingSetting) -> list[Dataset]:
    """Images of scenes at a setting's size: uint8, or standardized."""
    images = [drawn.dataset(size=setting.size, dtype=torch.uint8) for drawn in scenes]
    return [standardized(data) for data in images] if setting.own else images


def standardized(data: Dataset) -> Dataset:
    """Pictures with mean 1/2 and standard deviation 1/4 in each channel of the set."""
    images = data.images / 255
    mean = images.mean((0, 2, 3), keepdim=True)
    images = 0.5 + 0.25 * (images - mean) / images.std((0, 2, 3), keepdim=True)
    return Dataset(images, data.labels, data.name, data.split, data.num_classes)
