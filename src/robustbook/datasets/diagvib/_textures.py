"""Textures, made by formulas: no picture of anybody's."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - torch's own name for it

from robustbook._checks.arguments import check_choice
from robustbook.datasets.diagvib._factors import TEXTURES

#: Side of a texture, in pixels of a picture of 128 pixels.
SIDE: Final = 256

Array = npt.NDArray[np.float64]


def _noise(random: np.random.RandomState, cells: tuple[int, int]) -> Array:
    """Smooth noise on the square: random values on a grid, cubic in between."""
    from scipy.ndimage import map_coordinates

    values = random.random_sample(cells)
    steps = [np.arange(SIDE) * count / SIDE for count in cells]
    place = np.meshgrid(*steps, indexing="ij")
    return map_coordinates(values, place, order=3, mode="grid-wrap")


def _octaves(random: np.random.RandomState, cells: int, number: int) -> Array:
    """Noise of several sizes, the smaller the weaker."""
    layers = (
        _noise(random, (cells * 2**k, cells * 2**k)) / 2**k for k in range(number)
    )
    return np.sum(list(layers), axis=0)


def _grid() -> tuple[Array, Array]:
    rows, columns = np.mgrid[0:SIDE, 0:SIDE].astype(np.float64)
    return rows, columns


def _blocks(
    random: np.random.RandomState,
    *,
    height: float,
    width: float,
    joint: float,
    running: bool,
    contrast: float,
) -> Array:
    """Rectangles with joints between them, each of its own brightness."""
    rows, columns = _grid()
    course = np.floor(rows / height).astype(int)
    shift = np.where(course % 2 == 1, width / 2, 0.0) if running else 0.0
    number = np.floor((columns + shift) / width).astype(int)
    inside = np.minimum.reduce(
        [
            rows % height,
            height - rows % height,
            (columns + shift) % width,
            width - (columns + shift) % width,
        ]
    )
    own = random.random_sample((course.max() + 1, number.max() + 1))[course, number]
    rise = np.clip((inside - joint) / 1.5, 0.0, 1.0)
    return rise * (1.0 + contrast * own) + 0.12 * _noise(random, (64, 64))


def _tiles(random: np.random.RandomState) -> Array:
    return _blocks(random, height=9, width=9, joint=0.8, running=False, contrast=0.9)


def _bricks(random: np.random.RandomState) -> Array:
    grain = 0.5 * _noise(random, (128, 128))
    wall = _blocks(random, height=6.4, width=16, joint=0.7, running=True, contrast=0.6)
    return wall + grain


def _wood(random: np.random.RandomState) -> Array:
    _, columns = _grid()
    drift = 26.0 * _noise(random, (3, 6)) + 3.0 * _noise(random, (10, 24))
    rings = np.sin(2 * np.pi * (columns + drift) / 11.0)
    fibers = _noise(random, (16, 128))
    return rings + 1.1 * fibers


def _carpet(random: np.random.RandomState) -> Array:
    rows, columns = _grid()
    warp = np.sin(2 * np.pi * (rows + columns) / 5.0)
    weft = np.sin(2 * np.pi * (rows - columns) / 5.0)
    tufts = _noise(random, (128, 128))
    return warp * weft + 2.2 * tufts + 0.5 * _octaves(random, 8, 2)


def _lava(random: np.random.RandomState) -> Array:
    ridges = np.zeros((SIDE, SIDE))
    for octave, weight in ((20, 1.0), (40, 0.45), (80, 0.2)):
        ridges += weight * np.abs(_noise(random, (octave, octave)) - 0.5)
    return -ridges


_MAKERS: Final[dict[str, Callable[[np.random.RandomState], Array]]] = {
    "tiles": _tiles,
    "wood": _wood,
    "carpet": _carpet,
    "bricks": _bricks,
    "lava": _lava,
}


@lru_cache(maxsize=len(TEXTURES))
def _made(name: str) -> Array:
    """A texture whose values are equally frequent in [0, 1]."""
    random = np.random.RandomState(TEXTURES.index(name))
    rough = _MAKERS[name](random).ravel()
    flat = np.empty_like(rough)
    flat[np.argsort(rough, kind="stable")] = np.linspace(0.0, 1.0, rough.size)
    return flat.reshape(SIDE, SIDE)


def texture(name: str) -> Tensor:
    """Return a texture of :data:`TEXTURES`: gray, all levels equally frequent.

    Returns
    -------
    Tensor, shape (256, 256)
        float32 in [0, 1]: 1 takes the dark end of the object's color, 0 the light
        end. "blank" is 0 everywhere.

    Raises
    ------
    ValueError
        If there is no such texture.

    Examples
    --------
    >>> bricks = texture("bricks")
    >>> bricks.shape, round(float(bricks.mean()), 3)
    (torch.Size([256, 256]), 0.5)
    """
    if check_choice("name", name, TEXTURES) == "blank":
        return torch.zeros(SIDE, SIDE)
    return torch.from_numpy(_made(name).astype(np.float32))


@lru_cache(maxsize=8)
def texture_bank(side: int) -> Tensor:
    """All textures at another resolution, shape (6, side, side)."""
    bank = torch.stack([texture(name) for name in TEXTURES])[:, None]
    if side != SIDE:
        bank = F.interpolate(bank, (side, side), mode="bilinear", antialias=True)
    return bank[:, 0].clamp(0.0, 1.0).contiguous()
