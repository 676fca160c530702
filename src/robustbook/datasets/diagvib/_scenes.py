"""Scenes: everything about a picture that is drawn at random, then the picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from robustbook._checks.arguments import check_choice, check_count
from robustbook.datasets._types import Dataset, positions_of
from robustbook.datasets.diagvib import _factors
from robustbook.datasets.diagvib._factors import FACTORS, SHAPES, Environment
from robustbook.datasets.diagvib._render import SOURCES, SPLITS, count_masks, render

Integers = npt.NDArray[np.int64]

#: What is drawn of each scene, one number in [0, 1) each: only ever add at the end, or
#: seeds have other pictures.
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
        """Every class once in each run of as many labels, in a random order."""
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


@dataclass(frozen=True, eq=False)
class Scenes:
    """Objects with all their factors; ``images`` makes their pictures.

    Attributes
    ----------
    environment, source, split : Environment, str, str
        Where the scenes, and the digits in them, come from.
    shapes : tuple of int
        The digits that are told apart.
    labels : Tensor, shape (n,)
        int64 classes: k means the digit ``shapes[k]``.
    instances : Tensor, shape (n,)
        Which picture of its digit, among those of `split`, each object is cut out with.
    levels : dict of str to Tensor, shape (n,)
        The level of each factor, as a position in :data:`FACTORS`.
    hue, scale : Tensor, shape (n,)
        Hues, in degrees, and factors by which the objects are made larger.
    lightness : Tensor, shape (n, 2)
        Lightness of the dark and of the light end, from 0 to 1.
    crop : Tensor, shape (n, 2)
        Where each object's piece of the texture is, down and across, in [0, 1).
    position : Tensor, shape (n, 2)
        Middles of the objects, across and down, in units of the image's side.

    Examples
    --------
    >>> scenes = draw(Environment(hue="blue"), shapes=(4, 9), count=100)
    >>> scenes
    Scenes(100 of 4|9, Environment(blue, dark, blank, center, normal))
    >>> scenes.images(range(2), size=32).shape
    torch.Size([2, 3, 32, 32])
    """

    environment: Environment
    shapes: tuple[int, ...]
    source: str
    split: str
    labels: Tensor
    instances: Tensor
    levels: Mapping[str, Tensor]
    hue: Tensor
    lightness: Tensor
    crop: Tensor
    position: Tensor
    scale: Tensor

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        shapes = "|".join(map(str, self.shapes))
        return f"Scenes({len(self)} of {shapes}, {self.environment})"

    def subset(self, index: Any) -> Scenes:
        """Return the scenes of an index: positions, a slice, or a mask."""
        index = positions_of(index, len(self))
        levels = {name: level[index] for name, level in self.levels.items()}
        tensors = {n: v for n, v in vars(self).items() if isinstance(v, Tensor)}
        chosen: Any = {name: value[index] for name, value in tensors.items()}
        return replace(self, levels=levels, **chosen)

    def images(
        self,
        index: Any = None,
        *,
        size: int = 64,
        device: str = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> Tensor:
        """Make the pictures, always the same; objects may be cut off at the edge.

        Parameters
        ----------
        index : slice, sequence of int, Tensor or ndarray, optional
            Which; all by default.
        size : int, default 64
            Side of a picture, in pixels, at least 16; the original's is 128.
        device : str, default "cpu"
            Where to make them, and where they are left.
        dtype : torch.dtype, default torch.float32
            Or ``torch.uint8`` for a quarter of the memory.

        Returns
        -------
        Tensor, shape (n, 3, size, size)
            Pixels in [0, 1], in steps of 1/255; or those times 255.
        """
        check_count("size", size, minimum=16)
        if dtype not in (torch.float32, torch.uint8):
            raise TypeError(f"dtype: expected float32 or uint8, got {dtype}")
        chosen = self if index is None else self.subset(index)
        return render(chosen, size=size, device=device, dtype=dtype)

    def dataset(
        self,
        *,
        size: int = 64,
        name: str = "diagvib",
        dtype: torch.dtype = torch.float32,
    ) -> Dataset:
        """Make all pictures, as :meth:`images` does, and return them with their labels.

        Examples
        --------
        >>> draw(Environment(), shapes=(4, 9), count=10).dataset(size=32)
        Dataset('diagvib', 'train', 10 images of 3x32x32, 2 classes)
        """
        images = self.images(size=size, dtype=dtype)
        return Dataset(images, self.labels, name, self.split, len(self.shapes))


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
        The digits that are told apart, equally frequent; all ten by default.
    count : int
        The number of scenes. More scenes of one seed begin with the fewer.
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
    for item in environments if _listed(environments) else [environments]:
        if not isinstance(item, Environment):
            expected = f"expected a sequence of Environment, got {item!r}"
            raise TypeError(f"environments: {expected}")
    if len(environments) == 0:
        raise ValueError("environments: expected at least one, got none")
    if not _listed(shapes):
        raise TypeError(f"shapes: expected a sequence of digits, got {shapes!r}")
    shapes = tuple(check_count("shapes", shape, minimum=0) for shape in shapes)
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


def _listed(value: Any) -> bool:
    return isinstance(value, (Sequence, np.ndarray)) and not isinstance(value, str)


def _groups(paired: bool | Sequence[int], count: int) -> list[int]:
    """Number of the digits that each environment has."""
    if isinstance(paired, (bool, np.bool_)):
        return [0] * count if paired else list(range(count))
    if not _listed(paired):
        raise TypeError(
            f"paired: expected true, false, or {count} numbers, got {paired!r}"
        )
    groups = [check_count("paired", number, minimum=0) for number in paired]
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
    as for :func:`draw` and :meth:`Scenes.images`.

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

    digits = [str(digit) for digit in SHAPES]
    rows = [("shape", digits, torch.cat([picture(environment, d) for d in SHAPES]))]
    for factor, levels in FACTORS.items():
        varied = [environment.changed(**{factor: level}) for level in levels]
        rows.append((factor, list(levels), torch.cat(list(map(picture, varied)))))
    middle = slice(size // 4, size - size // 4)
    uncropped = ("position", "scale")
    return [
        (name, levels, images if name in uncropped else images[..., middle, middle])
        for name, levels, images in rows
    ]
