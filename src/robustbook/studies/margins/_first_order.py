"""Margins to first order, as the cache keeps them."""

from __future__ import annotations

from torch import nn

from robustbook._store.cache import Arrays
from robustbook.datasets import Dataset
from robustbook.margins import gradient_normalized_margin

__all__ = ["first_order_arrays"]


def first_order_arrays(model: nn.Module, data: Dataset) -> Arrays:
    """Logit margins over the 1-norms of their gradients."""
    return {
        name: gradient_normalized_margin(model, data.images, nearest=nearest).numpy()
        for name, nearest in (
            ("gradient_margins", False),
            ("first_order_margins", True),
        )
    }
