"""Scenes: everything about a picture that was drawn at random, and their pictures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import torch
from torch import Tensor

from robustbook._checks.arguments import check_count
from robustbook.datasets._types import Dataset, positions_of
from robustbook.datasets.diagvib._factors import Environment
from robustbook.datasets.diagvib._render import CELL, SIDE, mask_bank, texture_bank

#: Gray of the background, from 0 to 1.
BACKGROUND: Final = 127 / 255
#: Side of the original's pictures, in which cells and textures are measured.
_FULL: Final = 128
#: Pictures made at once; a batch that fits a processor's cache is fastest.
_CHUNK: Final = 64


@dataclass(frozen=True, eq=False)
class Scenes:
    """Objects with all their factors; ``images`` makes their pictures.

    Attributes
    ----------
    environment, source, split : Environment, str, str
        Where the scenes, and the digits in them, come from.
    shapes : tuple of int
        The digits that are the classes.
    labels : Tensor, shape (n,)
        int64 classes: k means the digit ``shapes[k]``.
    instances : Tensor, shape (n,)
        Which picture of its digit, among those of `split`, each object is cut out with.
    levels : dict of str to Tensor, shape (n,)
        The level of each factor, as a position in ``FACTORS``.
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
    >>> from robustbook.datasets.diagvib import draw
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
        dtype: torch.dtype = torch.float32,
    ) -> Tensor:
        """Make the pictures, always the same; objects may be cut off at the edge.

        Parameters
        ----------
        index : slice, sequence of int, Tensor or ndarray, optional
            Which; all by default.
        size : int, default 64
            Side of a picture, in pixels, at least 16; the original's is 128.
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
        return render(chosen, size=size, dtype=dtype)

    def dataset(self, *, size: int = 64, dtype: torch.dtype = torch.float32) -> Dataset:
        """Make all pictures, as :meth:`images` does, and return them with their labels.

        Examples
        --------
        >>> from robustbook.datasets.diagvib import draw
        >>> draw(Environment(), shapes=(4, 9), count=10).dataset(size=32)
        Dataset('diagvib', 'train', 10 images of 3x32x32, 2 classes)
        """
        images = self.images(size=size, dtype=dtype)
        return Dataset(images, self.labels, "diagvib", self.split, len(self.shapes))


def render(scenes: Scenes, *, size: int, dtype: torch.dtype) -> Tensor:
    """Make pictures (n, 3, size, size)."""
    images = torch.empty((len(scenes), 3, size, size), dtype=dtype)
    side = max(1, round(CELL * size / _FULL))
    masks, first = mask_bank(scenes.source, scenes.split, scenes.shapes, side)
    textures = texture_bank(SIDE * size // _FULL)
    # A cell has a whole number of pixels, so the rest of the size is in the scale.
    unit = CELL * size / _FULL / side
    for start in range(0, len(scenes), _CHUNK):
        part = slice(start, start + _CHUNK)
        mask = masks[first[scenes.labels[part]] + scenes.instances[part]]
        mask = mask.float().div_(255)
        level, crop = scenes.levels["texture"][part], scenes.crop[part]
        grain = mask * _crops(textures, level, crop, side)
        middle = scenes.position[part] * (size - 1)
        factor = scenes.scale[part] * unit
        across = _linear_rows(side, size, middle[:, 0], factor).transpose(1, 2)
        down = _linear_rows(side, size, middle[:, 1], factor)
        # Two layers: how much is covered, and how much of that is the dark end.
        layers = torch.stack([down @ mask @ across, down @ grain @ across], dim=1)
        dark, light = colors_of(scenes.hue[part], scenes.lightness[part])
        mix = torch.stack([light - BACKGROUND, dark - light], dim=2)
        picture = torch.bmm(mix, layers.flatten(2)).add_(BACKGROUND)
        picture = picture.clamp_(0.0, 1.0).mul_(255).round_()
        if dtype == torch.float32:
            picture = picture.div_(255)
        images[part] = picture.view(-1, 3, size, size)
    return images


def colors_of(hue: Tensor, lightness: Tensor) -> tuple[Tensor, Tensor]:
    """RGB colors (n, 3) of the two ends: HLS at full saturation."""
    phase = torch.tensor([0.0, 4.0, 2.0])
    place = (hue[:, None] / 60.0 + phase) % 6.0
    pure = ((place - 3.0).abs() - 1.0).clamp(0.0, 1.0) - 0.5
    chroma = 1.0 - (2.0 * lightness - 1.0).abs()
    ends = lightness[:, :, None] + chroma[:, :, None] * pure[:, None]
    return ends[:, 0], ends[:, 1]


def _crops(textures: Tensor, level: Tensor, crop: Tensor, side: int) -> Tensor:
    """A square piece of each scene's texture, (n, side, side)."""
    room = textures.shape[1] - side + 1
    corner = (crop * room).long()
    steps = torch.arange(side)
    rows = corner[:, 0, None, None] + steps[:, None]
    columns = corner[:, 1, None, None] + steps
    return textures[level[:, None, None], rows, columns]


def _linear_rows(side: int, size: int, middle: Tensor, factor: Tensor) -> Tensor:
    """Matrices (n, size, side) that scale a cell and put it around `middle`."""
    # Linear interpolation, with a wider kernel where the cell is made smaller. The
    # cell's margin is empty, so the sum of the weights of its border does not matter.
    pixels, cells = torch.arange(size), torch.arange(side)
    inverse = factor.reciprocal()[:, None]
    place = (pixels - middle[:, None]) * inverse + (side - 1) / 2
    reach = inverse.clamp(min=1.0)[:, :, None]
    weight = (1.0 - (place[:, :, None] - cells).abs() / reach).clamp_(min=0.0)
    return weight / weight.sum(2, keepdim=True).clamp_(min=1e-6)
