"""Numbers in strict JSON, which has neither infinity nor NaN."""

from __future__ import annotations

import math
from typing import Any


def strict(value: Any) -> Any:
    """Replace infinite numbers by "inf", which ``float`` reads, and NaN by None."""
    if isinstance(value, dict):
        return {key: strict(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [strict(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    return value
