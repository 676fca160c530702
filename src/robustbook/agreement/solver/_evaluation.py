"""What a pass over the data tells of the kernel at one inverse temperature."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import torch
from torch import Tensor

from robustbook.agreement.solver._shards import Reduction
from robustbook.agreement.solver._sums import add_up

#: How the four numbers of :class:`Moments` of chunks go together.
MOMENTS: Final[tuple[Reduction, ...]] = (math.fsum, math.fsum, max, max)


class Moments(NamedTuple):
    """What bounds by interpolation need of the power sums, over all samples.

    With E x^k the mean under the weights exp(beta x), ``size`` is the mean of E x^2
    summed over the views and their product, ``square`` the largest of them. Of each
    sample's widest view, with r the sum of the other ranges, ``mixed`` is the largest
    sqrt(E x^2) + r, ``blend`` the mean of r (1 - 1 / sum_j exp(beta x_j)).
    """

    size: float
    blend: float
    square: float
    mixed: float

    @classmethod
    def of(cls, numbers: Sequence[float], num_samples: int) -> "Moments":
        """From sums over all samples, and the largest ones."""
        size, blend, square, mixed = numbers
        return cls(size / num_samples, blend / num_samples, square, mixed)


def spreads(
    columns: Tensor, widest: Tensor, narrow: Tensor, counts: Tensor | None
) -> Tensor:
    """The numbers of :class:`Moments` of one chunk, before they go together.

    Of each sample, `widest` is the place of its widest view and `narrow` the sum of the
    ranges of the others.
    """
    logs, _, squares = columns
    own = squares.gather(0, widest)[0].sqrt_().add_(narrow)
    blend = narrow * -torch.expm1(-logs.gather(0, widest)[0])
    table = torch.stack((squares.sum(0), blend))
    if counts is not None:
        table *= counts
    return torch.cat([add_up(table), torch.stack([squares.max(), own.max()])])


@dataclass(eq=False)
class Evaluation:
    """The kernel at one inverse temperature; means over samples unless per-sample.

    ``columns``, shape (3, m + 1, N), has of each view, and last of the product of all,
    the logarithm of sum_j w_j exp(beta x_j) and the means of x and x^2 under these
    weights. All x are at most 0, those of the product less their largest. ``rough`` is
    one in single precision.
    """

    beta: float
    value: float
    slope: float
    curvature: float
    convex: float
    concave: float
    concave_slope: float
    rounding: float
    slope_rounding: float
    moments: Moments | None
    per_sample: Tensor | None
    columns: Tensor | None
    rough: bool = False

    @property
    def complete(self) -> bool:
        """Whether moments are known that bounds by interpolation need."""
        return self.columns is not None or self.moments is not None
