"""What a pass over the data tells of the kernel at one inverse temperature."""

from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor


@dataclass(frozen=True, eq=False)
class PowerSums:
    """Sums over classes of x^k exp(beta x), k = 0, 1, 2, for each sample.

    All x are at most 0, so the zeroth and second sums fall in beta, the first rises.
    """

    zeroth: Tensor
    first: Tensor
    second: Tensor


class Moments(NamedTuple):
    """What bounds by interpolation need of the power sums, over all samples.

    With E x^k a power sum over the zeroth one, ``size`` is the mean of E x^2 summed
    over the views and their product, ``square`` the largest of them. Of each sample's
    widest view, with r the sum of the other ranges, ``mixed`` is the largest
    sqrt(E x^2) + r, ``blend`` the mean of r (1 - 1 / zeroth sum).
    """

    size: float
    blend: float
    square: float
    mixed: float


@dataclass(eq=False)
class Evaluation:
    """The kernel at one inverse temperature; means over samples unless per-sample.

    ``joint`` holds the power sums of the product of all posteriors, ``marginals``
    those of each view's own; both are taken from ``sums``, shape (3 m + 3, N), where
    they were asked for.
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
    sums: Tensor | None

    @property
    def joint(self) -> PowerSums:
        assert self.sums is not None
        return PowerSums(*self.sums[-3:])

    @property
    def marginals(self) -> tuple[PowerSums, ...]:
        assert self.sums is not None
        views = range(0, len(self.sums) - 3, 3)
        return tuple(PowerSums(*self.sums[v : v + 3]) for v in views)
