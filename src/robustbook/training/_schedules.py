"""Learning rates: one for each step of a whole training."""

from __future__ import annotations

import math

__all__ = ["cosine", "trapezoid"]


def cosine(lr: float, steps: int) -> list[float]:
    """From `lr` to zero along half a cosine.

    By the recursion of :class:`torch.optim.lr_scheduler.CosineAnnealingLR`: the closed
    form differs in the last bits, and so would the committed weights.

    Examples
    --------
    >>> [round(rate, 3) for rate in cosine(1.0, 4)]
    [1.0, 0.854, 0.5, 0.146]
    """
    rates = [lr]
    for step in range(1, steps):
        now, before = (1 + math.cos(math.pi * s / steps) for s in (step, step - 1))
        rates.append(now / before * rates[-1])
    return rates


def trapezoid(lr: float, steps: int, *, rise: int, fall: int) -> list[float]:
    """Up to `lr` in `rise` steps, level, and down to zero in the last `fall` ones.

    Examples
    --------
    >>> trapezoid(1.0, 8, rise=2, fall=4)
    [0.5, 1.0, 1.0, 1.0, 1.0, 0.75, 0.5, 0.25]
    """
    return [
        lr * max(0.0, min((step + 1) / rise, 1.0, (steps - step) / fall))
        for step in range(steps)
    ]
