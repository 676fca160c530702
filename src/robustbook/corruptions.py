"""Corruptions of images, as by cameras and weather, at five severities.

They serve as shifts that no attacker chose. None is random, so that no seed is needed.
Noise is in :func:`robustbook.training.add_gaussian_noise`.
"""

import math
from collections.abc import Callable
from typing import Final

import numpy as np
import torch
from scipy.ndimage import gaussian_filter
from torch import Tensor
from torch.nn import functional

from robustbook import _defaults as defaults
from robustbook._checks.arguments import ArrayLike, check_choice, check_count
from robustbook._checks.extras import extra
from robustbook._checks.images import check_images

__all__ = ["CORRUPTIONS", "corrupt"]


def _blur(images: Tensor, width: float) -> Tensor:
    # scipy has no half-precision filter.
    pixels = images.double().cpu().numpy()
    blurred = gaussian_filter(pixels, sigma=(0, 0, width, width), mode="nearest")
    return torch.from_numpy(blurred).to(images)


def _contrast(images: Tensor, factor: float) -> Tensor:
    means = images.mean(dim=(2, 3), keepdim=True)
    return means + factor * (images - means)


def _pixelate(images: Tensor, share: float) -> Tensor:
    with extra("data"):
        from PIL import Image
    box = Image.Resampling.BOX
    height, width = images.shape[2:]
    large = (width, height)
    small = (max(1, int(width * share)), max(1, int(height * share)))
    planes = images.float().flatten(0, 1).cpu().numpy()
    # The benchmark used the box filter of Pillow.
    boxes = [Image.fromarray(p).resize(small, box).resize(large, box) for p in planes]
    stacked = torch.from_numpy(np.stack([np.asarray(image) for image in boxes]))
    return stacked.reshape(images.shape).to(images)


def _rotation(images: Tensor, degrees: float) -> Tensor:
    cosine, sine = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    if images.dtype not in (torch.float32, torch.float64):
        # Coordinates of pixels need more digits than half precision has.
        return _rotation(images.float(), degrees).to(images)
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


_Corruption = Callable[[Tensor, float], Tensor]

#: Each kind with its five sizes.
_KINDS: Final[dict[str, tuple[_Corruption, tuple[float, ...]]]] = {
    "blur": (_blur, (0.4, 0.6, 0.7, 0.8, 1.0)),
    "brightness": (torch.add, (0.05, 0.1, 0.15, 0.2, 0.3)),
    "contrast": (_contrast, (0.75, 0.5, 0.4, 0.3, 0.15)),
    "pixelate": (_pixelate, (0.95, 0.9, 0.85, 0.75, 0.65)),
    "rotation": (_rotation, (5.0, 10.0, 15.0, 20.0, 30.0)),
}

#: The kinds of corruption that :func:`corrupt` knows, in alphabetical order.
CORRUPTIONS: Final = tuple(_KINDS)


def corrupt(
    images: ArrayLike, kind: str, *, severity: int = defaults.SEVERITY
) -> Tensor:
    """Corrupt images in one way.

    Source: D. Hendrycks, T. Dietterich, "Benchmarking neural network robustness to
    common corruptions and perturbations", ICLR 2019, whose sizes for images of 32 by 32
    pixels these are. They have no rotation, and add brightness in HSV. Chapter 25.

    Parameters
    ----------
    images : Tensor or ndarray, shape (N, C, H, W)
        Images in [0, 1], floating-point.
    kind : {"blur", "brightness", "contrast", "pixelate", "rotation"}
        "blur" is a Gaussian filter, 0.4 to 1 pixel wide. "brightness" adds 0.05 to 0.3
        to every pixel. "contrast" multiplies the distance to the mean of a channel by
        0.75 to 0.15. "pixelate" reduces the number of pixels on each side to 0.95 to
        0.65 of it. "rotation" turns by 5 to 30 degrees, counterclockwise; pixels from
        outside repeat the edge.
    severity : int, default 3
        1 to 5, from the first of these sizes to the last.

    Returns
    -------
    Tensor, shape (N, C, H, W)
        Images in [0, 1], of the same type and on the same device.

    Raises
    ------
    TypeError
        If the images are not floating-point numbers.
    ValueError
        If their shape is another, a pixel is outside [0, 1] or not finite, or there
        is no such corruption or severity.

    Examples
    --------
    >>> image = torch.tensor([[[[0.0, 1.0], [0.0, 1.0]]]])
    >>> corrupt(image, "contrast", severity=2)
    tensor([[[[0.2500, 0.7500],
              [0.2500, 0.7500]]]])
    """
    pixels = check_images(images)
    check_choice("kind", kind, CORRUPTIONS)
    function, sizes = _KINDS[kind]
    if check_count("severity", severity) > len(sizes):
        raise ValueError(f"severity: expected 1 to {len(sizes)}, got {severity}")
    return function(pixels, sizes[severity - 1]).clamp(0, 1)
