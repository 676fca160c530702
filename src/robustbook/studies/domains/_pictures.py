"""Pictures of digits in two domains, with few factors that differ between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Final

import torch
from torch import Tensor

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
    scenes = training_scenes(setup, setting, seed)
    return pictures(scenes, setting, scenes)


def training_scenes(
    setup: str, setting: TrainingSetting, seed: int
) -> tuple[Scenes, ...]:
    """Scenes of the source domains."""
    return draw_all(
        SETUPS[setup].training,
        shapes=SETUPS[setup].shapes,
        source=setting.dataset,
        count=setting.count,
        seed=seed,
    )


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
    sources = training_scenes(setup, setting, seed)
    samples, tests = (
        pictures(held_out_scenes(setup, drawn, split, setting, seed), setting, sources)
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


def pictures(
    scenes: Sequence[Scenes], setting: TrainingSetting, sources: Sequence[Scenes] = ()
) -> list[Dataset]:
    """Images of scenes at a setting's size: uint8, or standardized.

    `sources` are the scenes of the domains whose statistics a setting may ask for.
    """
    drawn = [one.dataset(size=setting.size, dtype=torch.uint8) for one in scenes]
    if setting.scale == "drawn":
        return drawn
    if setting.scale == "own":
        return [standardized(data) for data in drawn]
    learned = [one.dataset(size=setting.size, dtype=torch.uint8) for one in sources]
    like = torch.cat([data.images for data in learned])
    return [standardized(data, like) for data in drawn]


def standardized(data: Dataset, like: Tensor | None = None) -> Dataset:
    """Pictures on a scale on which each channel has mean 1/2 and deviation 1/4.

    It has these over the set, or over other images, uint8, that are `like` it.
    """
    images = data.images / 255
    reference = images if like is None else like / 255
    mean = reference.mean((0, 2, 3), keepdim=True)
    images = 0.5 + 0.25 * (images - mean) / reference.std((0, 2, 3), keepdim=True)
    return Dataset(images, data.labels, data.name, data.split, data.num_classes)
