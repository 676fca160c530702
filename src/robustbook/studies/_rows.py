"""What the experiments share: their rows, and the errors of shares and means."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Row", "Values", "error_of_mean", "rounded", "share_error"]

Row = dict[str, Any]
Values = npt.NDArray[np.float64]


def share_error(share: float, count: int) -> float:
    """Standard error of a share among `count` independent samples."""
    return math.sqrt(share * (1 - share) / count)


def error_of_mean(values: Values) -> float:
    """Standard error of the mean of independent values."""
    return float(values.std(ddof=1) / math.sqrt(len(values)))


def rounded(value: float, digits: int = 6) -> float:
    """A plain number of so many decimals, as rows store it."""
    return round(float(value), digits)
