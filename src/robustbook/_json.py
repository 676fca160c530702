"""Numbers as strict JSON can hold them."""

from __future__ import annotations

import math
from typing import Any


def strict(value: Any) -> Any:
    """Infinite numbers become "inf", which ``float`` reads, undefined ones None."""
    if isinstance(value, dict):
        return {key: strict(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [strict(one) for one in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    return value
