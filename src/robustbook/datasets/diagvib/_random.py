"""What is drawn at random of a scene, from a seed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from robustbook.datasets.diagvib._factors import (
    FACTORS,
    HUE_SPREAD,
    HUES,
    LIGHTNESSES,
    POSITIONS,
    SCALES,
    Environment,
    level_index,
)

__all__ = ["RandomStreams", "factor_values"]

#: What is drawn of each scene, one number in [0, 1) each. Their order fixes which
#: pictures belong to a seed: only ever add at the end.
_DRAWN: Final = (
    "hue level",
    "hue",
    "lightness level",
    "dark end",
    "light end",
    "texture level",
    "texture row",
    "texture column",
    "position level",
    "across",
    "down",
    "scale level",
    "scale",
)


class RandomStreams:
    """Streams of random numbers, each with a name: none moves when another grows."""

    def __init__(self, seed: int, split: int) -> None:
        self.key = (seed, split)

    def _stream(self, *name: int) -> np.random.Generator:
        return np.random.default_rng((*self.key, *name))

    def labels(self, count: int, classes: int) -> npt.NDArray[np.int64]:
        """Every class once in each run of as many labels, in a random order."""
        runs = self._stream(0).random((-(-count // classes), classes))
        return runs.argsort(axis=1).ravel()[:count].astype(np.int64)

    def uniform(self, count: int, part: int) -> npt.NDArray[np.float64]:
        """One row of numbers for each scene."""
        return self._stream(1, part).random((count, len(_DRAWN)))

    def pool(
        self, size: int, shape: int, part: int, parts: int
    ) -> npt.NDArray[np.int64]:
        """The digits of one of several parts that share none."""
        if size < parts:
            raise ValueError(
                f"environments: expected at most {size}, the number of pictures of "
                f"the digit {shape}, if they are to share none; got {parts}; or pass "
                "paired=True"
            )
        return self._stream(2, shape).random(size).argsort()[part::parts]

    def walk(
        self, pool: npt.NDArray[np.int64], count: int, shape: int, part: int
    ) -> npt.NDArray[np.int64]:
        """Go through a pool as often as needed, each time in another order."""
        rounds = [
            pool[self._stream(3, shape, part, lap).random(len(pool)).argsort()]
            for lap in range(-(-count // len(pool)))
        ]
        return np.concatenate(rounds)[:count] if rounds else pool[:0]


def factor_values(
    environment: Environment,
    shapes: tuple[int, ...],
    labels: npt.NDArray[np.int64],
    uniform: npt.NDArray[np.float64],
) -> dict[str, Any]:
    """Levels and values of all factors, from uniform numbers."""
    column = dict(zip(_DRAWN, uniform.T, strict=True))
    levels: dict[str, npt.NDArray[np.int64]] = {}
    for factor in FACTORS:
        level = np.empty(len(labels), dtype=np.int64)
        for label, shape in enumerate(shapes):
            names = environment.levels(factor, shape)
            choices = np.array([level_index(factor, name) for name in names])
            mine = labels == label
            share = column[f"{factor} level"][mine]
            level[mine] = choices[(share * len(choices)).astype(np.int64)]
        levels[factor] = level

    def between(
        intervals: Sequence[tuple[float, float]], factor: str, name: str
    ) -> Tensor:
        low, high = np.array(intervals)[levels[factor]].T
        return torch.from_numpy((low + (high - low) * column[name]).astype(np.float32))

    hues = [(hue - HUE_SPREAD, hue + HUE_SPREAD) for hue in HUES.values()]
    ends = list(LIGHTNESSES.values())
    places = list(POSITIONS.values())
    crop = np.stack([column["texture row"], column["texture column"]], axis=1)
    return {
        "levels": {name: torch.from_numpy(level) for name, level in levels.items()},
        "hue": between(hues, "hue", "hue") % 360.0,
        "lightness": torch.stack(
            [
                between([dark for dark, _ in ends], "lightness", "dark end"),
                between([light for _, light in ends], "lightness", "light end"),
            ],
            dim=1,
        ),
        "crop": torch.from_numpy(crop.astype(np.float32)),
        "position": torch.stack(
            [
                between([across for across, _ in places], "position", "across"),
                between([down for _, down in places], "position", "down"),
            ],
            dim=1,
        ),
        "scale": between(list(SCALES.values()), "scale", "scale"),
    }
