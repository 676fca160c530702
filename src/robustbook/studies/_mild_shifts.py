"""Two mild shifts that stored trainings for agreement have met: blur and rotation.

They are not the standard corruptions, of which :mod:`robustbook.corruptions` has all.
"""

import math

import torch
from scipy.ndimage import gaussian_filter
from torch import Tensor
from torch.nn import functional

__all__ = ["blurred", "rotated"]


def blurred(images: Tensor, width: float) -> Tensor:
    """Blur images (N, C, H, W) by a Gaussian of this width, in pixels."""
    pixels = images.double().cpu().numpy()
    moved = gaussian_filter(pixels, sigma=(0, 0, width, width), mode="nearest")
    return torch.from_numpy(moved).to(images).clamp(0, 1)


def rotated(images: Tensor, degrees: float) -> Tensor:
    """Rotate images (N, C, H, W)."""
    cosine, sine = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    height, width = images.shape[2:]
    # In the units of the grid, any image is two wide and two high.
    turn = [[cosine, -sine * height / width, 0], [sine * width / height, cosine, 0]]
    turns = torch.tensor(turn, dtype=images.dtype, device=images.device)
    grid = functional.affine_grid(
        turns.expand(len(images), 2, 3), list(images.shape), align_corners=False
    )
    moved = functional.grid_sample(
        images, grid, padding_mode="border", align_corners=False
    )
    return moved.clamp(0, 1)
