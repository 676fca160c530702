"""Certified global maximum of the agreement kernel by branch and bound.

Evaluated inverse temperatures cut [0, infinity) into intervals; each interval has a
proven upper bound (:mod:`robustbook.agreement.solver._bounds`). Split the interval with
the largest bound until none exceeds the best value found by more than the tolerance.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from robustbook.agreement.solver._bounds import (
    LARGEST_CURVED,
    StartBound,
    interval_bound,
    tail_bound,
)
from robustbook.agreement.solver._evaluation import Evaluation
from robustbook.agreement.solver._interpolation import Interpolation, Node
from robustbook.agreement.solver._kernel import Kernel
from robustbook.agreement.solver._survey import survey
from robustbook.agreement.solver._trace import CertificateError, SearchTrace, Step

#: Evaluations after which the search gives up and says what is still open: all of
#: them, and those in which the gap did not fall by a tenth.
MOST_EVALUATIONS = 20_000
MOST_IN_VAIN = 500
#: The unbounded interval grows by this factor, then by its square, and so on.
FIRST_GROWTH = 4.0
LARGEST_GROWTH = 1e8
LARGEST_BETA = 1e290
#: Interpolation costs a millisecond. With so few entries a pass over the data costs
#: less, and the first evaluations do without. Problems with more entries do without
#: the curvature bound, and so without power sums of every sample.
PATIENCE = 10
#: A survey of a large problem evaluates at multiples of its likely maximizer over PEAK,
#: with moments for interpolation at those NEAR it.
PEAK = 16
NEAR = 7
MARGIN = 0.02
#: What takes more evaluations is too flat for single precision.
MOST_SURVEYED = 24
LARGEST_MULTIPLE = 2000
#: A peak between ends within this factor is interpolated.
WIDE = 20.0


@dataclass(eq=False)
class _Interval:
    left: Evaluation
    right: Evaluation | None
    bound: float
    growth: float
    order: int
    #: How far the split that made it was from an end of its interval, in log beta, if
    #: it was at an interpolated peak.
    stride: float
    #: An upper bound on the curvature of J inside, if one is known.
    most: float = math.inf
    #: How many evaluations there were when all bounds were tried, and which ones the
    #: interpolation could use.
    tried: int = 0
    near: list[Node] = field(default_factory=list)

    def __lt__(self, other: _Interval) -> bool:
        """Largest bound first; among equals, the older one."""
        return (-self.bound, self.order) < (-other.bound, other.order)

    @property
    def ends(self) -> tuple[float, float]:
        right = math.inf if self.right is None else self.right.beta
        return self.left.beta, right

    @property
    def peaked(self) -> bool:
        """Whether J rises at the left end and falls at the right one."""
        right = self.right
        return right is not None and self.left.slope > 0.0 > right.slope

    @property
    def summary(self) -> tuple[float, float, float]:
        return *self.ends, self.bound


class _Search:
    """Best-first search; one instance a problem."""

    def __init__(
        self,
        kernel: Kernel,
        tol: float,
        on_step: Callable[[Step], None] | None,
        batch: int,
    ) -> None:
        self.kernel = kernel
        self.tol = tol
        self.on_step = on_step
        self.batch = batch
        self.count = 0
        self.order = itertools.count()
        self.queue: list[_Interval] = []
        #: Intervals that are done: their evaluations are not kept.
        self.closed: list[tuple[float, float, float]] = []
        self.closed_bound = -math.inf
        self.steps: list[Step] = []
        self.best_beta = math.nan
        self.best_value = -math.inf
        self.best_rounding = 0.0
        self.best_per_sample: Tensor | None = None
        self.start_bound: StartBound | None = None
        self.interpolation: Interpolation | None = None
        #: Evaluations that the interpolation does not know yet.
        self.fresh: list[Evaluation] = []

    def run(self) -> SearchTrace:
        kernel = self.kernel
        # At beta = 0 both posteriors are uniform: J(0) needs no pass.
        start = kernel.value_at_zero
        self._offer(0.0, start, torch.full_like(kernel.first.depth, start), 0.0)
        if kernel.limit is not None:
            # Every argmax set meets: J has a limit at infinity, a candidate.
            limit, rounding = kernel.mean(kernel.limit), kernel.rounding(kernel.cap)
            self._offer(math.inf, limit, kernel.limit, rounding)
        if not self._proven(kernel.cap) and not kernel.everything_idle:
            self._start()
        gap, count = math.inf, self.count
        while items := self._worst():
            self._split(items)
            if self._upper() - self.best_value < 0.9 * gap:
                gap, count = self._upper() - self.best_value, self.count
            elif self.count - count > MOST_IN_VAIN and self.queue:
                raise self._refusal(self.queue[0], gap)
        assert self.best_per_sample is not None
        if self._upper() - self.best_value > self.tol:
            raise self._refusal(None, 2.0 * self.best_rounding)
        return SearchTrace(
            beta=self.best_beta,
            value=self.best_value,
            upper_bound=self._upper(),
            value_at_zero=kernel.value_at_zero,
            per_sample=self.best_per_sample,
            evaluations=self.count,
            passes=kernel.passes,
            steps=self.steps,
            intervals=sorted(self.closed + [item.summary for item in self.queue]),
        )

    def _start(self) -> None:
        """Evaluate at 0, and a large problem where its maximum is likely to be."""
        self.count = 1
        points, curvatures = [self.kernel.start], [math.inf]
        self._keep(points)
        if self.kernel.surveyed:
            rough, between = self._survey()
            points, curvatures = points + rough, [math.inf, *between, math.inf]
        if len(points) == 1 and self.batch > 1:
            scale = self.kernel.scale
            points += self._evaluate([1.0 / scale, 4.0 / scale, 16.0 / scale])
            curvatures = [math.inf] * len(points)
        ends: list[Evaluation | None] = [*points[1:], None]
        for left, right, most in zip(points, ends, curvatures, strict=False):
            self._push(left, right, most=most)
        for before, point in itertools.pairwise(points):
            self._step(point, (before.beta, math.inf))
        if any(point.rough for point in points):
            self._close_hill()
            self._repeat_precisely()

    def _survey(self) -> tuple[list[Evaluation], list[float]]:
        """Evaluate roughly where some of the samples prove their result."""
        # Differences between a few samples alone may be too small to measure.
        with contextlib.suppress(CertificateError, ValueError):
            found = maximize(self.kernel.of_some(), self.tol)
            if 0.0 < found.beta < math.inf and len(found.steps) <= MOST_SURVEYED:
                step = found.beta / PEAK
                # All samples differ from some: what these barely prove is cut in two.
                barely = found.value - MARGIN * (found.value - found.value_at_zero)
                cuts = [cut.beta for cut in found.steps]
                cuts += [
                    math.sqrt(left * right) if left else 0.25 * right
                    for left, right, bound in found.intervals
                    if bound > barely and right < math.inf
                ]
                places = {max(1, round(cut / step)) for cut in cuts}
                places = {place for place in places if abs(place - PEAK) > 1}
                places |= {PEAK - 1, PEAK, PEAK + 1}
                multiples = sorted(places & {*range(1, LARGEST_MULTIPLE)})
                near = [abs(place - PEAK) <= NEAR for place in multiples]
                self.count += len(multiples)
                return survey(self.kernel, step, multiples, near)
        return [], []

    def _close_hill(self) -> None:
        """Evaluate at the likely maximum of the hill that a survey found.

        Neighbouring intervals where J is concave become one: what rounding allows at
        the ends between them does not matter then.
        """
        hill = next((item for item in self.queue if item.peaked), None)
        if hill is None:
            return
        beta, _ = self._point(hill)
        items = sorted(self.queue, key=lambda item: item.left.beta)
        low = high = items.index(hill)
        while items[low - 1].right is items[low].left and items[low - 1].most < 0.0:
            low -= 1
        while items[high].right is items[high + 1].left and items[high + 1].most < 0.0:
            high += 1
        if hill.most < 0.0:
            hill.left, hill.right = items[low].left, items[high].right
            hill.most = max(item.most for item in items[low : high + 1])
            items[low : high + 1] = [hill]
        self.queue = [item for item in items if item is not hill]
        heapq.heapify(self.queue)
        (point,) = self._evaluate([beta], moments=False)
        self._push(hill.left, point, most=hill.most)
        self._push(point, hill.right, most=hill.most)
        self._step(point, hill.ends)

    def _repeat_precisely(self) -> None:
        """Evaluate the ends of what is still open again, with all that bounds need."""
        items, self.queue = self.queue, []
        for item in items:
            self._file(item)
        ends = [end for item in self.queue for end in (item.left, item.right) if end]
        rough = sorted({end.beta for end in ends if not end.complete})
        precise: dict[float, Evaluation] = {}
        for point in self._evaluate(rough) if rough else []:
            precise[point.beta] = point
            self._step(point, (point.beta, point.beta))
        items, self.queue = self.queue, []
        for item in items:
            left = precise.get(item.left.beta, item.left)
            right = item.right and precise.get(item.right.beta, item.right)
            self._push(left, right, most=item.most)

    def _step(self, point: Evaluation, interval: tuple[float, float]) -> None:
        bounds = self.best_value, self._upper()
        step = Step(point.beta, point.value, point.slope, interval, *bounds)
        self.steps.append(step)
        if self.on_step is not None:
            self.on_step(step)

    def _worst(self) -> list[_Interval]:
        """Take out the open intervals to split in the next pass."""
        items: list[_Interval] = []
        while len(items) < self.batch and self.queue:
            if self._proven(self.queue[0].bound):
                break
            item = heapq.heappop(self.queue)
            if item.tried == self.count:
                items.append(item)
            else:
                self._tighten(item)
                self._file(item)
        return items

    def _upper(self) -> float:
        """Proven upper bound on sup J: the open intervals and the best value."""
        top = self.best_value + 2.0 * self.best_rounding
        bounds = [self.closed_bound, *(item.bound for item in self.queue[:1])]
        return max(top, *bounds)

    def _proven(self, bound: float) -> bool:
        return bound <= self.best_value + self.tol

    def _offer(
        self, beta: float, value: float, per_sample: Tensor, rounding: float
    ) -> None:
        # No value exceeds the cap; rounding may, by an ulp.
        value = min(value, self.kernel.cap)
        if value > self.best_value:
            self.best_beta, self.best_value = beta, value
            self.best_per_sample = per_sample
            self.best_rounding = rounding

    def _evaluate(
        self, betas: list[float], *, moments: bool = True
    ) -> list[Evaluation]:
        """One pass over the data."""
        self.count += len(betas)
        small = self.kernel.small
        points = self.kernel.evaluate_all(
            betas, columns=small, moments=moments and not small
        )
        self._keep(points)
        return points

    def _keep(self, points: list[Evaluation]) -> None:
        """Offer evaluations as the best one; keep what bounds need of them."""
        if self.start_bound is None and self.kernel.uniform:
            self.start_bound = StartBound(self.kernel, points[0])
        self.fresh += [point for point in points if point.complete]
        for point in points:
            assert point.per_sample is not None
            self._offer(point.beta, point.value, point.per_sample, point.rounding)
            # Of the best evaluation they are kept; what is left is a few numbers.
            point.per_sample = None

    def _push(
        self,
        left: Evaluation,
        right: Evaluation | None,
        growth: float = FIRST_GROWTH,
        stride: float = math.inf,
        most: float = math.inf,
    ) -> None:
        if right is None:
            bound = tail_bound(self.kernel, left)
        else:
            enough = self.best_value + self.tol
            bound = interval_bound(self.kernel, left, right, enough, most)
        # A bound that is not a number proves nothing.
        bound = self.kernel.cap if math.isnan(bound) else bound
        order = next(self.order)
        self._file(_Interval(left, right, bound, growth, order, stride, most))

    def _file(self, item: _Interval) -> None:
        """Keep an interval open, or close it for good: the best value only rises."""
        if self._proven(item.bound):
            self.closed.append(item.summary)
            self.closed_bound = max(self.closed_bound, item.bound)
        else:
            heapq.heappush(self.queue, item)

    def _tighten(self, item: _Interval) -> None:
        """Try the bounds that know more than the two ends."""
        item.tried = self.count
        low, right = item.left.beta, item.right
        if right is None or right.beta > LARGEST_CURVED:
            return
        bounds = [item.bound]
        if low == 0.0 and self.start_bound is not None:
            bounds.append(self.start_bound(right.beta))
        soft = self.kernel.labels is not None
        if not soft and (not self.kernel.small or self.count >= PATIENCE):
            if self.interpolation is None:
                self.interpolation = Interpolation(self.kernel)
            for point in self.fresh:
                self.interpolation.add(point)
            self.fresh.clear()
            near = self.interpolation.near(low)
            if near != item.near:
                item.near = near
                top = self.interpolation.ceiling(near, item.bound, 0.1 * self.tol)
                bounds += [] if top is None else [top.top]
        item.bound = min(bound for bound in bounds if not math.isnan(bound))

    def _split(self, items: list[_Interval]) -> None:
        """Evaluate inside intervals, all in one pass, and bound the parts."""
        splits = []
        for item in items:
            left, right = item.left, item.right
            beta, stride = self._point(item)
            low, high = item.ends
            # Where the slack for rounding is all that keeps the bound up, and is as
            # small as it gets, a split cannot help. Nor can it at an end that is too
            # high for any tolerance below its slack.
            ends = [left] if right is None else [left, right]
            slack = 2.0 * (ends[0].rounding + ends[-1].rounding)
            stuck = item.bound - slack <= self.best_value
            stuck = stuck and slack <= 16.0 * self.best_rounding
            least = 2.0 * min(end.rounding for end in ends)
            stuck = stuck or not self._proven(max(end.value for end in ends) + least)
            stuck = stuck and not any(end.rough for end in ends)
            if stuck or not low < beta < high or self.count >= MOST_EVALUATIONS:
                excess = item.bound - self.best_value
                allowed = 8.0 * self.best_rounding if stuck else excess
                raise self._refusal(item, allowed)
            splits.append((beta, stride))
        points = self._evaluate([beta for beta, _ in splits])
        for item, point, (_, stride) in zip(items, points, splits, strict=True):
            growth = min(item.growth**2, LARGEST_GROWTH)
            self._push(item.left, point, stride=stride, most=item.most)
            outward = growth if item.right is None else FIRST_GROWTH
            self._push(point, item.right, outward, stride, item.most)
        for item, point in zip(items, points, strict=True):
            self._step(point, item.ends)

    def _refusal(self, item: _Interval | None, allowed: float) -> CertificateError:
        """Say what is known, what is still open and which tolerance can be had."""
        message = (
            f"posterior agreement: the gap could not be closed to tol={self.tol:g}. "
            f"After {self.count} evaluations the best value is {self.best_value:.12g} "
            f"nats at beta={self.best_beta:g}"
        )
        if item is not None:
            low, high = item.ends
            message += (
                f", and for beta in [{low:g}, {high:g}] the proven upper bound is "
                f"{item.bound:.12g}"
            )
        return CertificateError(f"{message}. Set tol above {allowed:.1e}")

    def _point(self, item: _Interval) -> tuple[float, float]:
        """Where to split (outward, at a peak, in the middle), and the stride there."""
        left, right = item.left, item.right
        if right is None:
            start = 4.0 / self.kernel.scale
            beta = left.beta * item.growth if left.beta > 0.0 else start
            return beta if beta < LARGEST_BETA else math.nan, math.inf
        low, high = left.beta, right.beta
        if low == 0.0:
            return self._first(high), math.inf
        if left.slope > 0.0 > right.slope and high <= WIDE * low:
            top = _interpolated_top(left, right)
            # If the peak's estimate creeps along, halve the interval in between.
            stride = min(math.log(top / low), math.log(high / top))
            if stride <= 0.5 * item.stride and self._worth(left, right, top):
                return top, stride
        if high > 2.5 * low:
            return math.sqrt(low) * math.sqrt(high), math.inf
        return low + 0.5 * (high - low), math.inf

    def _first(self, high: float) -> float:
        """Where to split [0, high]: at once, or step by step in log beta."""
        if self.start_bound is None:
            return high / FIRST_GROWTH
        low = self.start_bound.reach(self.best_value + 0.9 * self.tol, high)
        return low if 16.0 * low > high else math.sqrt(low) * math.sqrt(high)

    def _worth(self, left: Evaluation, right: Evaluation, top: float) -> bool:
        """Whether evaluating at `top` may raise the best value noticeably.

        As slopes are bounded, it also keeps cuts from crowding at an end: the
        search stops after finitely many (Chapter 7).
        """
        near = left if top - left.beta < right.beta - top else right
        gain = 0.5 * abs((top - near.beta) * near.slope)
        return left.beta < top < right.beta and gain >= 0.1 * self.tol


def _interpolated_top(left: Evaluation, right: Evaluation) -> float:
    """Zero of dJ/d(log beta), interpolated by a cubic between the two ends.

    In log beta a peak has the same shape at every scale.
    """
    width = math.log(right.beta / left.beta)
    starts = left.beta * left.slope
    stops = right.beta * right.slope
    rise = width * (starts + left.beta**2 * left.curvature)
    fall = width * (stops + right.beta**2 * right.curvature)

    def slope(t: float) -> float:
        s = 1.0 - t
        return s * s * ((1.0 + 2.0 * t) * starts + t * rise) + t * t * (
            (3.0 - 2.0 * t) * stops - s * fall
        )

    low, high = 0.0, 1.0
    for _ in range(50):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if slope(middle) > 0.0 else (low, middle)
    return left.beta * math.exp(low * width)


def maximize(
    kernel: Kernel,
    tol: float,
    on_step: Callable[[Step], None] | None = None,
    batch: int = 1,
) -> SearchTrace:
    """Certified global maximum of J over beta in [0, infinity].

    A pass over the data evaluates up to `batch` inverse temperatures: that takes fewer
    passes, and a few more evaluations. `on_step` is told every step.
    """
    return _Search(kernel, tol, on_step, batch).run()
