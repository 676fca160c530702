"""Rows: flat dictionaries of plain values, and how their values are written."""

from __future__ import annotations

import base64
import io
from typing import Any

import torch
from torch import Tensor

from robustbook._checks.extras import extra

__all__ = ["Row", "decimals", "png", "significant"]

Row = dict[str, Any]


def decimals(value: Any, digits: int = 6) -> float:
    """A plain number of so many decimals."""
    return round(float(value), digits)


def significant(value: Any) -> float:
    """A plain number of six significant digits."""
    return float(f"{float(value):.6g}")


def png(image: Tensor) -> str:
    """An image (C, H, W) with pixels in [0, 1] as a PNG file in base64."""
    with extra("data"):
        from PIL import Image

    levels = (image * 255).round().to(torch.uint8).permute(1, 2, 0).numpy()
    buffer = io.BytesIO()
    Image.fromarray(levels.squeeze()).save(buffer, "PNG", optimize=True)
    return base64.b64encode(buffer.getvalue()).decode("ascii")
