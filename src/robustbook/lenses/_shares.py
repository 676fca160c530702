"""Shares of images that keep their prediction, and the margins that go with them."""

from __future__ import annotations

import torch
from scipy.stats import binomtest
from torch import Tensor

from robustbook.lenses._result import Share
from robustbook.margins import Consistency, InputMargins, margin_consistency

__all__ = ["consistency_of", "robust_share"]


def consistency_of(free: Tensor, margins: InputMargins) -> Consistency | None:
    measured = margins.margins.cpu()
    if (
        len(measured) < 3
        or torch.equal(free.min(), free.max())
        or torch.equal(measured.min(), measured.max())
    ):
        return None
    return margin_consistency(free, measured)


def robust_share(
    unchanged: Tensor | None,
    measured: Tensor,
    margins: InputMargins | None,
    eps: float,
    counted: Tensor | None = None,
) -> Share | None:
    """The share that no change up to `eps` was found for, of what was measured.

    Of PGD on all images and of the search for margins on some: of both, or of the one
    that was not left out. `counted` are the images that count as anything but 0.
    """
    if unchanged is None:
        if margins is None:
            return None
        unchanged = torch.ones(len(measured), dtype=torch.bool)
        counted = None if counted is None else counted[measured]
        measured = torch.arange(len(measured))
    if counted is not None:
        unchanged = unchanged & counted
    return _share(unchanged, measured, margins, eps)


def _share(
    withstood: Tensor, measured: Tensor, margins: InputMargins | None, eps: float
) -> Share:
    """A share of the images, with an interval for where they come from.

    All images were attacked; `withstood` says which of those that count kept their
    prediction. Of some, the margin was measured, and the search found a change for a
    few more: their share is subtracted. Two variances add up, that of these few, who
    were drawn, and that of the images; they stand for fewer images in Wilson's
    interval.
    """
    count, drawn = len(withstood), len(measured)
    if margins is None:
        return Share.of(withstood)
    more = withstood[measured] & (margins.margins.cpu() <= eps)
    value = float(withstood.double().mean() - more.double().mean())
    value = min(1.0, max(0.0, value))
    # As Agresti and Coull do it: none among the drawn is no proof of none.
    few = (int(more.sum()) + 2) / (drawn + 4)
    variance = few * (1 - few) / drawn * (1 - drawn / count)
    spread = value * (1 - value)
    enough = count
    if spread > 0:
        enough = max(1, round(spread / (spread / count + variance)))
    elif drawn < count and bool(withstood.any()):
        enough = drawn
    interval = binomtest(round(value * enough), enough).proportion_ci(method="wilson")
    return Share(value, (float(interval.low), float(interval.high)))
