"""Random scenes from environments."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from robustbook._checks.arguments import check_choice, check_count
from robustbook.datasets.diagvib import _factors
from robustbook.datasets.diagvib._factors import FACTORS, SHAPES, Environment
from robustbook.datasets.diagvib._render import SOURCES, SPLITS, count_masks
from robustbook.datasets.diagvib._scenes import Scenes

Integers = npt.NDArray[np.int64]

#: The random numbers of each scene, in [0, 1). Add further ones only at the end, or the
#: pictures of every seed change.
_DRAWN: Final = (
    *("hue level", "hue", "lightness level", "dark end", "light end", "texture level"),
    *("texture row", "texture column", "position level", "across", "down"),
    *("scale level", "scale"),
)


@dataclass(frozen=True)
class _RandomStreams:
    """Streams of random numbers, each with a name: none moves when another grows."""

    seed: int
    split: int

    def _stream(self, *name: int) -> np.random.Generator:
        return np.random.default_rng((self.seed, self.split, *name))

    def labels(self, count: int, classes: int) -> Integers:
        """Draw labels in runs that hold every class once, in a random order."""
        runs = self._stream(0).random((-(-count // classes), classes))
        return runs.argsort(axis=1).ravel()[:count].astype(np.int64)

    def uniform(self, count: int, part: int) -> npt.NDArray[np.float64]:
        """One row of numbers for each scene."""
        return self._stream(1, part).random((count, len(_DRAWN)))

    def pool(self, size: int, shape: int, part: int, parts: int) -> Integers:
        """The digits of one of several parts that share none."""
        if size < parts:
            raise ValueError(
                f"environments: expected at most {size}, the number of pictures of "
                f"the digit {shape}, if they are to share none; got {parts}; or pass "
                "paired=True"
            )
        return self._stream(2, shape).random(size).argsort()[part::parts]

    def walk(self, pool: Integers, count: int, shape: int, part: int) -> Integers:
        """Go through a pool as often as needed, each time in another order."""
        rounds = [
            pool[self._stream(3, shape, part, lap).random(len(pool)).argsort()]
            for lap in range(-(-count // len(pool)))
        ]
        return np.concatenate(rounds)[:count] if rounds else pool[:0]


def _factor_values(
    environment: Environment,
    shapes: tuple[int, ...],
    labels: Integers,
    uniform: npt.NDArray[np.float64],
) -> dict[str, Any]:
    """Levels and values of all factors, from uniform numbers."""
    column = dict(zip(_DRAWN, uniform.T, strict=True))
    levels = {factor: np.empty(len(labels), dtype=np.int64) for factor in FACTORS}
    for factor, level in levels.items():
        for label, shape in enumerate(shapes):
            names = environment.levels(factor, shape)
            choices = np.array([_factors.level_index(factor, name) for name in names])
            members = labels == label
            share = column[f"{factor} level"][members]
            level[members] = choices[(share * len(choices)).astype(np.int64)]

    def between(
        intervals: Sequence[tuple[float, float]], factor: str, name: str
    ) -> Tensor:
        low, high = np.array(intervals)[levels[factor]].T
        return torch.from_numpy((low + (high - low) * column[name]).astype(np.float32))

    spread = _factors.HUE_SPREAD
    hues = [(hue - spread, hue + spread) for hue in _factors.HUES.values()]
    dark, light = zip(*_factors.LIGHTNESSES.values(), strict=True)
    across, down = zip(*_factors.POSITIONS.values(), strict=True)
    lightness = (dark, "dark end"), (light, "light end")
    position = (across, "across"), (down, "down")
    crop = np.stack([column["texture row"], column["texture column"]], axis=1)
    return {
        "levels": {name: torch.from_numpy(level) for name, level in levels.items()},
        "hue": between(hues, "hue", "hue") % 360.0,
        "lightness": torch.stack([between(x, "lightness", k) for x, k in lightness], 1),
        "crop": torch.from_numpy(crop.astype(np.float32)),
        "position": torch.stack([between(x, "position", k) for x, k in position], 1),
        "scale": between(list(_factors.SCALES.values()), "scale", "scale"),
    }


def draw(
    environment: Environment,
    *,
    shapes: Sequence[int] = SHAPES,
    count: int,
    split: str = "train",
    source: str = "digits",
    seed: int = 0,
) -> Scenes:
    """Draw scenes from one environment; several at once: :func:`draw_all`.

    Parameters
    ----------
    environment : Environment
        Which levels the factors have.
    shapes : sequence of int
        The digits that are the classes, equally frequent; all ten by default.
    count : int
        The number of scenes. A larger count of one seed adds scenes at the end.
    split : str, default "train"
        "train", "validation" or "test": they share no digit.
    source : str, default "digits"
        "digits", those inside scikit-learn, 8 pixels wide; or "mnist".
    seed : int, default 0
        Random seed.

    Raises
    ------
    ValueError
        If an argument is not one of those above.
    DataUnavailableError
        If `source` is "mnist" and MNIST is not available.

    Examples
    --------
    >>> scenes = draw(Environment(scale="large"), shapes=(4, 9), count=1000, seed=1)
    >>> torch.bincount(scenes.labels).tolist()
    [500, 500]
    """
    options: dict[str, Any] = {"split": split, "source": source, "seed": seed}
    return draw_all([environment], shapes=shapes, count=count, **options)[0]


def draw_all(
    environments: Sequence[Environment],
    *,
    shapes: Sequence[int] = SHAPES,
    count: int,
    split: str = "train",
    paired: bool | Sequence[int] = False,
    source: str = "digits",
    seed: int = 0,
) -> tuple[Scenes, ...]:
    """Draw scenes from several environments; scene i has the same class in all.

    Parameters
    ----------
    environments : sequence of Environment
        One or more.
    shapes, count, split, source, seed
        As for :func:`draw`, for each environment.
    paired : bool or sequence of int, default False
        If true, scene i is the same digit in every environment, and a factor with the
        same level in two of them has the same value: nothing differs but the factors
        that are shifted. If false, the environments share no digit, and all values
        are drawn anew: there is sampling noise between them too. Or a number from 0
        for each environment: those with the same number are paired. The thesis says
        shifted and control setting (section 4.3, Experiments 5a and 5b).

    Returns
    -------
    tuple of Scenes
        One for each environment, in their order. No digit is used again before all of
        its class have been used.

    Raises
    ------
    ValueError
        As :func:`draw`, or if there are too few digits for environments to share none.

    Examples
    --------
    >>> pair = [Environment(hue="red"), Environment(hue="blue")]
    >>> first, second = draw_all(pair, shapes=(4, 9), count=100, paired=True)
    >>> torch.equal(first.instances, second.instances)
    True
    """
    if isinstance(environments, Environment):
        environments = [environments]
    environments = _sequence("environments", environments)
    if not all(isinstance(item, Environment) for item in environments):
        raise TypeError(f"environments: expected Environments, got {environments!r}")
    if not environments:
        raise ValueError("environments: expected at least one, got none")
    shapes = tuple(map(operator.index, _sequence("shapes", shapes)))
    if not shapes or len(set(shapes)) < len(shapes) or not set(shapes) <= set(SHAPES):
        raise ValueError(f"shapes: expected different digits from 0 to 9, got {shapes}")
    check_choice("split", split, SPLITS)
    check_choice("source", source, SOURCES)
    check_count("count", count)
    random = _RandomStreams(check_count("seed", seed, minimum=0), SPLITS.index(split))
    labels = random.labels(count, len(shapes))
    groups = _groups(paired, len(environments))
    parts = max(groups) + 1
    drawn = []
    for part, environment in zip(groups, environments, strict=True):
        instances = np.empty(count, dtype=np.int64)
        for label, shape in enumerate(shapes):
            pool = random.pool(count_masks(source, split, shape), shape, part, parts)
            members = labels == label
            instances[members] = random.walk(pool, int(members.sum()), shape, part)
        uniform = random.uniform(count, part)
        values = _factor_values(environment, shapes, labels, uniform)
        places = torch.from_numpy(labels), torch.from_numpy(instances)
        drawn.append(Scenes(environment, shapes, source, split, *places, **values))
    return tuple(drawn)


def _sequence(name: str, values: Any) -> list[Any]:
    if not isinstance(values, (Sequence, np.ndarray)) or isinstance(values, str):
        raise TypeError(f"{name}: expected a sequence, got {values!r}")
    return list(values)


def _groups(paired: bool | Sequence[int], count: int) -> list[int]:
    """The group of each environment; environments of one group share their digits."""
    if isinstance(paired, (bool, np.bool_)):
        return [0] * count if paired else list(range(count))
    groups = list(map(operator.index, _sequence("paired", paired)))
    if len(groups) != count or set(groups) != set(range(max(groups, default=-1) + 1)):
        raise ValueError(
            f"paired: expected true, false, or {count} numbers from 0 without a gap, "
            f"one for each environment; got {groups}"
        )
    return groups


def every_level(
    *, source: str = "digits", size: int = 128
) -> list[tuple[str, list[str], Tensor]]:
    """Make one picture of each level of each factor, with the others unchanged.

    The object is a large tiled 4, darker blue, in the middle; `source` and `size` are
    as for :func:`draw` and ``Scenes.images``.

    Returns
    -------
    list of (str, list of str, Tensor)
        Name, levels and pictures (n, 3, H, W) of each factor, shape first, for
        :func:`robustbook.style.image_rows`. Where place and size do not matter, only
        the middle half of each picture is there.

    Examples
    --------
    >>> [(name, len(levels)) for name, levels, _ in every_level(size=32)]
    [('shape', 10), ('hue', 6), ('lightness', 4), ('texture', 6), ('position', 9),
     ('scale', 5)]
    """
    environment = Environment("blue", "darker", "tiles", scale="large")

    def picture(environment: Environment, shape: int = 4) -> Tensor:
        scenes = draw(environment, shapes=[shape], count=1, source=source, seed=28)
        return scenes.images(size=size)

    middle = slice(size // 4, size - size // 4)
    digits = torch.cat([picture(environment, digit) for digit in SHAPES])
    rows = [("shape", list(map(str, SHAPES)), digits[..., middle, middle])]
    for factor, levels in FACTORS.items():
        varied = [environment.changed(**{factor: level}) for level in levels]
        images = torch.cat(list(map(picture, varied)))
        if factor not in ("position", "scale"):
            images = images[..., middle, middle]
        rows.append((factor, list(levels), images))
    return rows
