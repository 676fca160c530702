"""Checks of images with pixels in [0, 1], and of inputs of any range."""

import math
from typing import Any, Final

import torch
from torch import Tensor

from robustbook._checks.arguments import as_tensor

#: A resize or a change of dtype may leave [0, 1] by this much.
ROUNDING: Final = 1e-5


def check_images(
    value: Any,
    *,
    name: str = "images",
    planes: bool = True,
    half: bool = True,
    clip: bool = False,
) -> Tensor:
    """Return images as a tensor with pixels in [0, 1], without a gradient.

    Without `planes`, any shape (N, ...) is accepted; without `half`, pixels of 16 bits
    are refused. With `clip`, for layers inside a model, pixels outside [0, 1] are
    clipped instead of refused, and a batch may be empty.
    """
    images = as_tensor(name, value)
    wanted = (torch.float32, torch.float64)
    if not images.is_floating_point() or not (half or images.dtype in wanted):
        kind = "floating-point" if half else "float32 or float64"
        raise TypeError(
            f"{name}: expected {kind} pixels in [0, 1], got dtype {images.dtype}; "
            f"convert them (bytes: {name}.float() / 255)"
        )
    if images.ndim == 4 and not len(images) and clip:
        return images
    shape = "(N, C, H, W)" if planes else "(N, ...)"
    if images.ndim < 2 or (planes and images.ndim != 4) or 0 in images.shape:
        raise ValueError(
            f"{name}: expected shape {shape} with at least one image of at least one "
            f"pixel, got {tuple(images.shape)}"
        )
    low, high = (float(end) for end in images.aminmax())
    if not (math.isfinite(low) and math.isfinite(high)):
        raise ValueError(
            f"{name}: expected finite pixels in [0, 1], got NaN or infinity; remove "
            "such images"
        )
    if low >= 0 and high <= 1:
        return images
    if not clip and (low < -ROUNDING or high > 1 + ROUNDING):
        remedy = "normalization belongs inside the model"
        if low >= 0 and 2 < high <= 255:
            remedy = "divide them by 255"
        raise ValueError(
            f"{name}: expected pixels in [0, 1], got {low:g} to {high:g}; {remedy}"
        )
    return images.clamp(0, 1)


def check_inputs(name: str, value: Any) -> Tensor:
    """Return inputs of any range, (N, ...), as a tensor of finite numbers."""
    inputs = as_tensor(name, value)
    if inputs.dtype not in (torch.float32, torch.float64):
        raise TypeError(
            f"{name}: expected float32 or float64 inputs, got {inputs.dtype}; convert "
            f"them (bytes: {name}.float() / 255)"
        )
    if inputs.ndim < 2 or inputs.numel() == 0:
        raise ValueError(
            f"{name}: expected shape (N, ...) with at least one input of at least one "
            f"coordinate, got {tuple(inputs.shape)}; for a single input: {name}[None]"
        )
    if not bool(torch.isfinite(inputs).all()):
        raise ValueError(
            f"{name}: expected finite numbers, got NaN or infinity; remove such inputs"
        )
    return inputs
