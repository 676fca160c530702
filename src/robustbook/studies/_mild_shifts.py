"""Five mild shifts that a camera makes, which two stored studies have measured.

They are not the standard corruptions, of which :mod:`robustbook.corruptions` has all.
"""

import math
from collections.abc import Callable
from typing import Final

import numpy as np
import torch
from PIL import Image
from scipy.ndimage import gaussian_filter
from torch import Tensor
from torch.nn import functional

__all__ = ["MILD_SHIFTS", "mildly_shifted"]


def _blur(images: Tensor, width: float) -> Tensor:
    pixels = images.double().cpu().numpy()
    blurred = gaussian_filter(pixels, sigma=(0, 0, width, width), mode="nearest")
    return torch.from_numpy(blurred).to(images)


def _contrast(images: Tensor, factor: float) -> Tensor:
    means = images.mean(dim=(2, 3), keepdim=True)
    return means + factor * (images - means)


def _pixelate(images: Tensor, share: float) -> Tensor:
    box = Image.Resampling.BOX
    height, width = images.shape[2:]
    large = (width, height)
    small = (max(1, int(width * share)), max(1, int(height * share)))
    planes = images.float().flatten(0, 1).cpu().numpy()
    boxes = [Image.fromarray(p).resize(small, box).resize(large, box) for p in planes]
    stacked = torch.from_numpy(np.stack([np.asarray(image) for image in boxes]))
    return stacked.reshape(images.shape).to(images)


def _rotation(images: Tensor, degrees: float) -> Tensor:
    cosine, sine = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    height, width = images.shape[2:]
    # In the units of the grid, any image is two wide and two high.
    turn = [[cosine, -sine * height / width, 0], [sine * width / height, cosine, 0]]
    turns = torch.tensor(turn, dtype=images.dtype, device=images.device)
    grid = functional.affine_grid(
        turns.expand(len(images), 2, 3), list(images.shape), align_corners=False
    )
    return functional.grid_sample(
        images, grid, padding_mode="border", align_corners=False
    )


_Shift = Callable[[Tensor, float], Tensor]
#: Each kind with its five sizes.
_KINDS: Final[dict[str, tuple[_Shift, tuple[float, ...]]]] = {
    "blur": (_blur, (0.4, 0.6, 0.7, 0.8, 1.0)),
    "brightness": (torch.add, (0.05, 0.1, 0.15, 0.2, 0.3)),
    "contrast": (_contrast, (0.75, 0.5, 0.4, 0.3, 0.15)),
    "pixelate": (_pixelate, (0.95, 0.9, 0.85, 0.75, 0.65)),
    "rotation": (_rotation, (5.0, 10.0, 15.0, 20.0, 30.0)),
}
MILD_SHIFTS: Final = tuple(_KINDS)


def mildly_shifted(images: Tensor, kind: str, severity: int) -> Tensor:
    """Shift images (N, C, H, W) with pixels in [0, 1]; severities are 1 to 5."""
    function, sizes = _KINDS[kind]
    return function(images, sizes[severity - 1]).clamp(0, 1)
