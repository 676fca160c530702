"""The parts of a search: intervals and where to cut them, its steps, its result."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field

from scipy.optimize import brentq
from torch import Tensor

from robustbook.agreement.solver._interpolation import Node
from robustbook.agreement.solver._kernel import Evaluation

#: The unbounded interval grows by this factor, then by its square, and so on.
FIRST_GROWTH = 4.0
LARGEST_GROWTH = 1e8
LARGEST_BETA = 1e290
#: A peak between ends within this factor is interpolated.
WIDE = 20.0


class CertificateError(ArithmeticError):
    """The gap between the best value and its upper bound could not be closed."""


@dataclass(frozen=True)
class Step:
    """One evaluation of the search and the state of the certificate after it.

    Attributes
    ----------
    beta, value, slope : float
        The inverse temperature evaluated, J there (nats) and its derivative.
    interval : tuple of float
        The interval that this evaluation split.
    lower, upper : float
        Best value so far and proven upper bound so far (nats).
    """

    beta: float
    value: float
    slope: float
    interval: tuple[float, float]
    lower: float
    upper: float


@dataclass(frozen=True, eq=False)
class SearchTrace:
    """The result of a search, and its proof.

    Attributes
    ----------
    beta, value, upper_bound : float
        The maximizer, J there, and the proven upper bound on sup J (nats).
    value_at_zero : float
        J(0): 0 for a uniform prior.
    per_sample : Tensor, shape (N,)
        Contributions to J at ``beta``.
    evaluations, passes : int
        Inverse temperatures at which the kernel was evaluated, and passes over all the
        data, those before the search included.
    steps : list of Step
        One an evaluation, in order; the first pass, at beta = 0, has none.
    intervals : list of (left, right, bound)
        The intervals at the end, from left to right, with their upper bounds.
    """

    beta: float
    value: float
    upper_bound: float
    value_at_zero: float
    per_sample: Tensor
    evaluations: int
    passes: int
    steps: list[Step]
    intervals: list[tuple[float, float, float]]


@dataclass(eq=False)
class Interval:
    """Inverse temperatures between two evaluations, or beyond one."""

    left: Evaluation
    right: Evaluation | None
    #: An upper bound on the curvature of J inside, if one is known.
    most: float = math.inf
    growth: float = FIRST_GROWTH
    #: If a split at an interpolated peak made this interval: the distance of that peak
    #: from the nearer end of the interval that was split, in log beta.
    stride: float = math.inf
    bound: float = math.inf
    #: The number of evaluations when all bounds were last tried, and the nodes that the
    #: interpolation used then.
    tried: int = 0
    near: list[Node] = field(default_factory=list)
    order: int = field(default_factory=itertools.count().__next__)

    def __lt__(self, other: Interval) -> bool:
        """Largest bound first; among equals, the older one."""
        return (-self.bound, self.order) < (-other.bound, other.order)

    @property
    def ends(self) -> tuple[float, float]:
        return self.left.beta, math.inf if self.right is None else self.right.beta

    @property
    def peaked(self) -> bool:
        """Whether J rises at the left end and falls at the right one."""
        right = self.right
        return right is not None and self.left.slope > 0.0 > right.slope

    def cut(self, scale: float, tol: float) -> tuple[float, float]:
        """Where to split (outward, at a peak, in the middle), and the stride there.

        An evaluation at a peak must promise to raise the best value noticeably. As
        slopes are bounded, this also keeps cuts from crowding at an end: the search
        stops after finitely many (Chapter 7).
        """
        left, right, low = self.left, self.right, self.left.beta
        if right is None:
            beta = low * self.growth if low > 0.0 else FIRST_GROWTH / scale
            return beta if beta < LARGEST_BETA else math.nan, math.inf
        high = right.beta
        if low == 0.0:
            return high / FIRST_GROWTH, math.inf
        known = math.isfinite(left.curvature + right.curvature)
        if self.peaked and known and high <= WIDE * low:
            top = _interpolated_top(left, right)
            stride = min(math.log(top / low), math.log(high / top))
            near = left if top - low < high - top else right
            gain = 0.5 * abs((top - near.beta) * near.slope)
            # If the peak's estimate creeps along, halve the interval in between.
            worth = low < top < high and gain >= 0.1 * tol
            if worth and stride <= 0.5 * self.stride:
                return top, stride
        return middle(low, high), math.inf


def middle(low: float, high: float) -> float:
    """The middle of an interval; of a wide one, in log beta."""
    if high > 2.5 * low:
        return math.sqrt(low) * math.sqrt(high)
    return low + 0.5 * (high - low)


def _interpolated_top(left: Evaluation, right: Evaluation) -> float:
    """Zero of dJ/d(log beta), interpolated by a cubic between the two ends.

    In log beta a peak has the same shape at every scale.
    """
    width = math.log(right.beta / left.beta)
    starts, stops = left.beta * left.slope, right.beta * right.slope
    rise = width * left.beta * (left.slope + left.beta * left.curvature)
    fall = width * right.beta * (right.slope + right.beta * right.curvature)

    def slope(t: float) -> float:
        s = 1.0 - t
        return s * s * ((1.0 + 2.0 * t) * starts + t * rise) + t * t * (
            (3.0 - 2.0 * t) * stops - s * fall
        )

    place = float(brentq(slope, 0.0, 1.0, xtol=1e-15))
    return left.beta * math.exp(place * width)
