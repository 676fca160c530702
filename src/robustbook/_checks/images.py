"""Checks of images with pixels in [0, 1], and of inputs of any range."""

from typing import Any, Final

import torch
from torch import Tensor

from robustbook._checks.arguments import as_tensor

#: A resize or a change of dtype may leave [0, 1] by this much.
ROUNDING: Final = 1e-5


def check_images(value: Any, *, planes: bool = True) -> Tensor:
    """Return images as inputs with pixels in [0, 1], as :func:`check_inputs` does.

    Without `planes`, any shape (N, ...) is accepted.
    """
    images = check_inputs(value)
    if planes and images.ndim != 4:
        raise ValueError(
            f"images: expected shape (N, C, H, W), got {tuple(images.shape)}"
        )
    low, high = (float(end) for end in images.aminmax())
    if low < -ROUNDING or high > 1 + ROUNDING:
        remedy = "normalization belongs inside the model"
        if low >= 0 and 2 < high <= 255:
            remedy = "divide them by 255"
        raise ValueError(
            f"images: expected pixels in [0, 1], got {low:g} to {high:g}; {remedy}"
        )
    return images.clamp(0, 1)


def check_inputs(value: Any) -> Tensor:
    """Return inputs (N, ...) of any range, finite, in float64 or else in float32."""
    inputs = as_tensor("images", value)
    if not inputs.is_floating_point():
        raise TypeError(
            f"images: expected float32 or float64, got dtype {inputs.dtype}; convert "
            "them (bytes: images.float() / 255)"
        )
    if inputs.ndim < 2 or inputs.numel() == 0:
        raise ValueError(
            "images: expected shape (N, ...) with at least one input of at least one "
            f"coordinate, got {tuple(inputs.shape)}; for a single input: images[None]"
        )
    if not bool(torch.isfinite(inputs).all()):
        raise ValueError(
            "images: expected finite numbers, got NaN or infinity; remove such inputs"
        )
    return inputs if inputs.dtype == torch.float64 else inputs.float()
