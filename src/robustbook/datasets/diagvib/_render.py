"""From scenes to pictures, many at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import torch
from torch import Tensor

from robustbook.datasets.diagvib._masks import CELL, mask_bank
from robustbook.datasets.diagvib._textures import SIDE, texture_bank

if TYPE_CHECKING:
    from robustbook.datasets.diagvib._scenes import Scenes

__all__ = ["BACKGROUND", "colors_of", "render"]

#: Gray of the background, of 1.
BACKGROUND: Final = 127 / 255
#: Side of the original's pictures, in which cells and textures are measured.
_FULL: Final = 128
#: Pictures made at once: what fits a processor's cache is fastest.
_CHUNK: Final = {"cpu": 64, "cuda": 4096}


def render(scenes: Scenes, *, size: int, device: str, dtype: torch.dtype) -> Tensor:
    """Make pictures (n, 3, size, size)."""
    target = torch.device(device)
    images = torch.empty((len(scenes), 3, size, size), dtype=dtype, device=target)
    side = max(1, round(CELL * size / _FULL))
    masks, first = mask_bank(scenes.source, scenes.split, scenes.shapes, side)
    masks, first = masks.to(target), first.to(target)
    textures = texture_bank(SIDE * size // _FULL).to(target)
    # A cell has a whole number of pixels, so the rest of the size is in the scale.
    unit = CELL * size / _FULL / side
    chunk = _CHUNK.get(target.type, 4096)
    for start in range(0, len(scenes), chunk):
        part = slice(start, start + chunk)
        labels = scenes.labels[part].to(target)
        mask = masks[first[labels] + scenes.instances[part].to(target)]
        mask = mask.float().div_(255)
        grain = mask * _crops(
            textures,
            scenes.levels["texture"][part].to(target),
            scenes.crop[part].to(target),
            side,
        )
        middle = scenes.position[part].to(target) * (size - 1)
        factor = scenes.scale[part].to(target) * unit
        across = _linear_rows(side, size, middle[:, 0], factor)
        down = _linear_rows(side, size, middle[:, 1], factor)
        across = across.transpose(1, 2)
        # Two layers: how much is covered, and how much of that is the dark end.
        layers = torch.stack([down @ mask @ across, down @ grain @ across], dim=1)
        dark, light = colors_of(
            scenes.hue[part].to(target), scenes.lightness[part].to(target)
        )
        mix = torch.stack([light - BACKGROUND, dark - light], dim=2)
        picture = torch.bmm(mix, layers.flatten(2)).add_(BACKGROUND)
        picture = picture.clamp_(0.0, 1.0).mul_(255).round_()
        if dtype == torch.float32:
            picture = picture.div_(255)
        images[part] = picture.view(-1, 3, size, size)
    return images


def colors_of(hue: Tensor, lightness: Tensor) -> tuple[Tensor, Tensor]:
    """RGB colors (n, 3) of the two ends: HLS at full saturation."""
    phase = torch.tensor([0.0, 4.0, 2.0], device=hue.device)
    place = (hue[:, None] / 60.0 + phase) % 6.0
    pure = ((place - 3.0).abs() - 1.0).clamp(0.0, 1.0) - 0.5
    ends = []
    for level in lightness.unbind(1):
        chroma = 1.0 - (2.0 * level - 1.0).abs()
        ends.append(level[:, None] + chroma[:, None] * pure)
    return ends[0], ends[1]


def _crops(textures: Tensor, level: Tensor, crop: Tensor, side: int) -> Tensor:
    """A square piece of each scene's texture, (n, side, side)."""
    room = textures.shape[1] - side + 1
    corner = (crop * room).long()
    steps = torch.arange(side, device=level.device)
    rows = corner[:, 0, None, None] + steps[:, None]
    columns = corner[:, 1, None, None] + steps
    return textures[level[:, None, None], rows, columns]


def _linear_rows(side: int, size: int, middle: Tensor, factor: Tensor) -> Tensor:
    """Matrices (n, size, side) that scale a cell and put it around `middle`.

    Linear interpolation, with a wider kernel where the cell is made smaller. The
    cell's margin is empty, so what the weights of its border sum to does not matter.
    """
    pixels = torch.arange(size, device=middle.device)
    cells = torch.arange(side, device=middle.device)
    inverse = factor.reciprocal()[:, None]
    place = (pixels - middle[:, None]) * inverse + (side - 1) / 2
    reach = inverse.clamp(min=1.0)[:, :, None]
    weight = (1.0 - (place[:, :, None] - cells).abs() / reach).clamp_(min=0.0)
    return weight / weight.sum(2, keepdim=True).clamp_(min=1e-6)
