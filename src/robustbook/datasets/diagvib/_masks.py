"""Digits as the masks that objects are cut out with."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - torch's own name for it

from robustbook.datasets._registry import load_dataset

__all__ = ["CELL", "SOURCES", "SPLITS", "count_masks", "mask_bank"]

#: Where digits come from.
SOURCES: Final = ("digits", "mnist")
#: Parts that share no digit.
SPLITS: Final = ("train", "validation", "test")
#: Side of an object's cell in a picture of 128 pixels; the digit fills 28 of it.
CELL: Final = 40
_DIGIT: Final = 28.0
#: Beyond this brightness, of 255, a pixel belongs to the digit's bounding box.
_IN_BOX: Final = 100
#: Beyond this one it belongs to the digit, once that is enlarged.
_IN_MASK: Final = {"mnist": 150.0, "digits": 100.0}


@lru_cache(maxsize=6)
def _digits_of(source: str, split: str) -> tuple[Tensor, ...]:
    """The pictures of a part, (n, H, W) uint8, one tensor for each digit.

    Of each digit's training images the first four fifths are for training, the
    rest for validation, as in the original.
    """
    data = load_dataset(source, "test" if split == "test" else "train")
    masks = []
    for shape in range(data.num_classes):
        members = torch.nonzero(data.labels == shape)[:, 0]
        most = len(members) * 4 // 5
        if split == "train":
            members = members[:most]
        elif split == "validation":
            members = members[most:]
        masks.append((255 * data.images[members, 0]).round().to(torch.uint8))
    return tuple(masks)


def count_masks(source: str, split: str, shape: int) -> int:
    """How many different pictures of a digit a part has."""
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
    cell: Tensor = down @ images.float() @ across.transpose(1, 2)
    return cell


def _extent(touched: Tensor) -> tuple[Tensor, Tensor]:
    """First and one past the last True of each row of (n, L)."""
    places = torch.arange(touched.shape[1])
    low = torch.where(touched, places, touched.shape[1]).amin(1)
    high = torch.where(touched, places, -1).amax(1) + 1
    return low, high


def _cubic_rows(length: int, low: Tensor, high: Tensor, factor: Tensor) -> Tensor:
    """Matrices (n, 40, length) that enlarge [low, high) around the cell's middle.

    Cubic interpolation (Keys' kernel); nothing outside [low, high) is seen.
    """
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
    """Masks of several digits in one tensor, and where each digit begins."""
    masks = [_masks(source, split, shape, side) for shape in shapes]
    counts = torch.tensor([0] + [len(part) for part in masks])
    return torch.cat(masks), counts.cumsum(0)[:-1]
