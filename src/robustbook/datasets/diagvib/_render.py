"""Textures from formulas, and masks of handwritten digits."""

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
from robustbook.datasets._images import load_dataset
from robustbook.datasets.diagvib._factors import TEXTURES

#: Where digits come from.
SOURCES: Final = ("digits", "mnist")
#: Splits that share no digit.
SPLITS: Final = ("train", "validation", "test")
#: Side of an object's cell in a picture of 128 pixels; the digit fills 28 of it.
CELL: Final = 40
_DIGIT: Final = 28.0
#: Beyond this brightness, of 255, a pixel belongs to the digit's bounding box.
_IN_BOX: Final = 100
#: Beyond this one it belongs to the digit, once that is enlarged.
_IN_MASK: Final = {"mnist": 150.0, "digits": 100.0}
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


#: The column of each pixel of a texture.
_COLUMNS: Final = np.mgrid[0:SIDE, 0:SIDE][1].astype(np.float64)


def _blocks(
    random: np.random.RandomState,
    height: float,
    width: float,
    *,
    joint: float,
    running: bool,
    contrast: float,
) -> Array:
    """Rectangles of random brightness with joints between them."""
    course = np.floor(_COLUMNS.T / height).astype(int)
    shift = np.where(course % 2 == 1, width / 2, 0.0) if running else 0.0
    number = np.floor((_COLUMNS + shift) / width).astype(int)
    down, across = _COLUMNS.T % height, (_COLUMNS + shift) % width
    inside = np.minimum.reduce([down, height - down, across, width - across])
    gray = random.random_sample((course.max() + 1, number.max() + 1))[course, number]
    rise = np.clip((inside - joint) / 1.5, 0.0, 1.0)
    return rise * (1.0 + contrast * gray) + 0.12 * _noise(random, (64, 64))


def _tiles(random: np.random.RandomState) -> Array:
    return _blocks(random, 9, 9, joint=0.8, running=False, contrast=0.9)


def _bricks(random: np.random.RandomState) -> Array:
    grain = 0.5 * _noise(random, (128, 128))
    return grain + _blocks(random, 6.4, 16, joint=0.7, running=True, contrast=0.6)


def _wood(random: np.random.RandomState) -> Array:
    drift = 26.0 * _noise(random, (3, 6)) + 3.0 * _noise(random, (10, 24))
    rings = np.sin(2 * np.pi * (_COLUMNS + drift) / 11.0)
    return rings + 1.1 * _noise(random, (16, 128))


def _carpet(random: np.random.RandomState) -> Array:
    warp = np.sin(2 * np.pi * (_COLUMNS.T + _COLUMNS) / 5.0)
    weft = np.sin(2 * np.pi * (_COLUMNS.T - _COLUMNS) / 5.0)
    tufts = _noise(random, (128, 128))
    octaves = np.sum([_noise(random, (8, 8)), _noise(random, (16, 16)) / 2], axis=0)
    return warp * weft + 2.2 * tufts + 0.5 * octaves


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
    """Return a texture of ``TEXTURES``: gray, all levels equally frequent.

    1 takes the dark end of the object's color, 0 the light end; "blank" is all 0.

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


@lru_cache(maxsize=6)
def _digits_of(source: str, split: str) -> tuple[Tensor, ...]:
    """The pictures of a split, (n, H, W) uint8, one tensor for each digit."""
    data = load_dataset(source, "test" if split == "test" else "train")
    masks = []
    for shape in range(data.num_classes):
        members = torch.nonzero(data.labels == shape)[:, 0]
        most = len(members) * 4 // 5  # the last fifth is for validation, as in DiagViB
        parts = {"train": slice(most), "validation": slice(most, None)}
        members = members[parts.get(split, slice(None))]
        masks.append((255 * data.images[members, 0]).round().to(torch.uint8))
    return tuple(masks)


def count_masks(source: str, split: str, shape: int) -> int:
    """Return the number of different pictures of a digit in a split."""
    return len(_digits_of(source, split)[shape])


@lru_cache(maxsize=64)
def _masks(source: str, split: str, shape: int, side: int) -> Tensor:
    """Masks of one digit, (n, side, side) uint8: how much of a pixel is covered."""
    parts = []
    for images in torch.split(_digits_of(source, split)[shape], 512):
        cell = _centered(images) > _IN_MASK[source]
        mask = cell.float()[:, None]
        if side != CELL:
            mask = F.interpolate(mask, (side, side), mode="bilinear", antialias=True)
        parts.append((255 * mask[:, 0]).round().to(torch.uint8))
    return torch.cat(parts)


def _centered(images: Tensor) -> Tensor:
    """Enlarge every digit until its bounding box touches a square of 28 pixels."""
    inside = images > _IN_BOX
    low_row, high_row = _extent(inside.any(2))
    low_column, high_column = _extent(inside.any(1))
    factor = _DIGIT / torch.maximum(high_row - low_row, high_column - low_column)
    down = _cubic_rows(images.shape[1], low_row, high_row, factor)
    across = _cubic_rows(images.shape[2], low_column, high_column, factor)
    return down @ images.float() @ across.transpose(1, 2)


def _extent(touched: Tensor) -> tuple[Tensor, Tensor]:
    """Positions of the first True and behind the last one, of each row of (n, L)."""
    places = torch.arange(touched.shape[1])
    low = torch.where(touched, places, touched.shape[1]).amin(1)
    high = torch.where(touched, places, -1).amax(1) + 1
    return low, high


def _cubic_rows(length: int, low: Tensor, high: Tensor, factor: Tensor) -> Tensor:
    """Matrices (n, 40, length) that enlarge [low, high) around the cell's middle."""
    # Keys' kernel; pixels outside [low, high) have no weight.
    middle = (low + high - 1) / 2
    offset = torch.arange(CELL) - (CELL - 1) / 2
    place = middle[:, None] + offset / factor[:, None]
    distance = (place[:, :, None] - torch.arange(length)).abs()
    near = (1.5 * distance - 2.5) * distance**2 + 1
    far = ((-0.5 * distance + 2.5) * distance - 4) * distance + 2
    weight = torch.where(distance <= 1, near, torch.where(distance < 2, far, 0.0))
    columns = torch.arange(length)
    kept = (columns >= low[:, None]) & (columns < high[:, None])
    return weight * kept[:, None]


@lru_cache(maxsize=16)
def mask_bank(
    source: str, split: str, shapes: tuple[int, ...], side: int
) -> tuple[Tensor, Tensor]:
    """Masks of several digits in one tensor, and the position of each digit's first."""
    masks = [_masks(source, split, shape, side) for shape in shapes]
    counts = torch.tensor([0] + [len(part) for part in masks])
    return torch.cat(masks), counts.cumsum(0)[:-1]
