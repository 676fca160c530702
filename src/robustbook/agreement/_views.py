"""Where the logits of a problem come from: blocks of samples, pass by pass."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import torch
from torch import Tensor


class Source(Protocol):
    """Logits of the same samples in several views; may be read many times.

    ``num_samples`` is None as long as it is not known.
    """

    num_views: int
    num_classes: int
    num_samples: int | None
    device: torch.device

    def blocks(self) -> Iterator[tuple[Tensor, ...]]:
        """One pass: blocks of all samples in order, a tensor (n, K) for each view."""


class InMemory:
    """Checked tensors."""

    def __init__(self, views: tuple[Tensor, ...]) -> None:
        self.views = views
        self.num_views = len(views)
        self.num_samples: int | None
        self.num_samples, self.num_classes = views[0].shape
        self.device = views[0].device

    def blocks(self) -> Iterator[tuple[Tensor, ...]]:
        """All samples at once."""
        yield self.views
