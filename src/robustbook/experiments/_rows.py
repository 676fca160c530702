"""What the experiments share: their rows, and the error of a share."""

from __future__ import annotations

import math
from typing import Any

__all__ = ["Row", "share_error"]

Row = dict[str, Any]


def share_error(share: float, count: int) -> float:
    """Standard error of a share among `count` independent samples."""
    return math.sqrt(share * (1 - share) / count)
