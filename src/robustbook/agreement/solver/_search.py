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
from collections.abc import Callable, Sequence
from functools import cached_property

import torch

from robustbook.agreement.solver._bounds import (
    LARGEST_CURVED,
    StartBound,
    interval_bound,
    tail_bound,
)
from robustbook.agreement.solver._interpolation import Interpolation
from robustbook.agreement.solver._intervals import (
    FIRST_GROWTH,
    LARGEST_GROWTH,
    CertificateError,
    Interval,
    SearchTrace,
    Step,
)
from robustbook.agreement.solver._kernel import Evaluation, Kernel
from robustbook.agreement.solver._problem import TooSimilarError
from robustbook.agreement.solver._survey import concave_run, plan, summit, survey

#: Evaluations after which the search gives up and says what is still open: all of
#: them, and those in which the gap did not fall by a tenth.
MOST_EVALUATIONS = 20_000
MOST_IN_VAIN = 500
#: Interpolation costs a millisecond, more than an evaluation of a small problem, which
#: therefore takes this many evaluations before it interpolates. Large problems
#: interpolate at once, and do without the curvature bound, which needs power sums of
#: every sample.
PATIENCE = 10
#: A kernel whose subsample takes more evaluations is too flat for a survey.
MOST_SURVEYED = 24
#: Evaluations at the maximum that a survey shows.
MOST_TOPS = 2


class _Search:
    """Best-first search; one instance a problem."""

    def __init__(
        self, kernel: Kernel, tol: float, on_step: Callable[[Step], None]
    ) -> None:
        self.kernel, self.tol, self.on_step = kernel, tol, on_step
        self.count = 0
        #: Open intervals; then ends and bounds of those that are proven.
        self.queue: list[Interval] = []
        self.closed: list[tuple[float, float, float]] = []
        self.closed_bound = -math.inf
        self.steps: list[Step] = []
        self.best_beta, self.best_value = math.nan, -math.inf
        self.best_rounding = 0.0
        #: The best evaluation; None while a limit, at 0 or infinity, is better.
        self.best_point: Evaluation | None = None
        self.interpolation: Interpolation | None = None
        #: Evaluations that the interpolation has not used yet.
        self.fresh: list[Evaluation] = []

    def run(self) -> SearchTrace:
        kernel = self.kernel
        # At beta = 0 both posteriors are uniform: J(0) needs no pass.
        start = kernel.value_at_zero
        self.best_beta, self.best_value = 0.0, min(start, kernel.cap)
        per_sample = torch.full_like(kernel.depths, start)
        if kernel.limit is not None:
            # Every argmax set meets: J has a limit at infinity, a candidate.
            limit = min(kernel.mean(kernel.limit), kernel.cap)
            if limit > self.best_value:
                self.best_beta, self.best_value = math.inf, limit
                self.best_rounding = kernel.rounding(kernel.cap)
                per_sample = kernel.limit
        if not self._proven(kernel.cap) and not kernel.everything_idle:
            self._start()
        gap, count = math.inf, self.count
        while items := self._worst():
            self._split(items)
            if self._upper() - self.best_value < 0.9 * gap:
                gap, count = self._upper() - self.best_value, self.count
            elif self.count - count > MOST_IN_VAIN and self.queue:
                raise self._refusal(self.queue[0], gap)
        if self._upper() - self.best_value > self.tol:
            raise self._refusal(None, 2.0 * self.best_rounding)
        if self.best_point is not None:
            per_sample = kernel.contributions(self.best_point)
        still_open = [(*item.ends, item.bound) for item in self.queue]
        return SearchTrace(
            beta=self.best_beta,
            value=self.best_value,
            upper_bound=self._upper(),
            value_at_zero=start,
            per_sample=per_sample,
            evaluations=self.count,
            passes=kernel.passes,
            steps=self.steps,
            intervals=sorted(self.closed + still_open),
        )

    def _start(self) -> None:
        """Evaluate at 0, and of a large problem where its maximum is likely to be."""
        kernel, points, curvatures = self.kernel, [self.kernel.start], [math.inf]
        self.count = 1
        self._keep(points)
        if kernel.surveyed and (chosen := self._plan()):
            self.count += len(chosen[1])
            rough, between = survey(kernel, *chosen)
            points, curvatures = [*points, *rough], [math.inf, *between, math.inf]
        elif kernel.batch > 1:
            outward = [1.0, FIRST_GROWTH, FIRST_GROWTH**2]
            points += self._evaluate([factor / kernel.scale for factor in outward])
            curvatures *= len(points)
        self._push_all(points, curvatures)
        for before, point in itertools.pairwise(points):
            self._step(point, (before.beta, math.inf))
        if points[-1].rough:
            self._refine(points, curvatures)

    def _plan(self) -> tuple[float, list[int], slice] | None:
        """Solve for every s-th sample; None where that does not say where to look."""
        with contextlib.suppress(CertificateError, TooSimilarError):
            kernel = self.kernel.of_subsample()
            trace = maximize(kernel, self.tol)
            if 0.0 < trace.beta < math.inf and len(trace.steps) <= MOST_SURVEYED:
                return plan(kernel, trace)
        return None

    def _push_all(
        self, points: Sequence[Evaluation], curvatures: Sequence[float]
    ) -> None:
        """Cover [0, infinity) by the intervals between evaluations, in their order."""
        self.queue, self.closed, self.closed_bound = [], [], -math.inf
        ends = [*points[1:], None]
        for left, right, most in zip(points, ends, curvatures, strict=True):
            self._push(Interval(left, right, most))

    def _refine(self, points: list[Evaluation], curvatures: list[float]) -> None:
        """Evaluate the maximum that a survey shows, then rough ends that still matter.

        Neighbouring intervals where J is concave are joined around that maximum, so
        that the rounding of the rough evaluations between them no longer counts.
        """
        items = list(itertools.starmap(Interval, itertools.pairwise(points)))
        hill = next((place for place, item in enumerate(items) if item.peaked), None)
        if hill is not None:
            low, high = concave_run(curvatures, hill)
            run, most = points[low : high + 1], max(curvatures[low:high])
            curvatures[low:high] = [most, most]
            for _ in range(MOST_TOPS):
                (top,) = self._evaluate([summit(run)], curved=False)
                run = sorted([*run, top], key=lambda point: point.beta)
                points[low + 1 : high], high = [top], low + 2
                self._push_all(points, curvatures)
                self._step(top, (points[low].beta, points[high].beta))
                if all(top not in (item.left, item.right) for item in self.queue):
                    break
        edges = [end for item in self.queue for end in (item.left, item.right)]
        rough = sorted({end.beta for end in edges if end and not end.complete})
        if rough:
            precise = {point.beta: point for point in self._evaluate(rough)}
            points = [precise.get(point.beta, point) for point in points]
            for point in precise.values():
                self._step(point, (point.beta, point.beta))
            self._push_all(points, curvatures)

    def _evaluate(self, betas: list[float], *, curved: bool = True) -> list[Evaluation]:
        """One pass over the data."""
        self.count += len(betas)
        small, options = self.kernel.small, {"curved": curved}
        options |= {"columns": small, "moments": curved and not small}
        points = self.kernel.evaluate_all(betas, **options)
        self._keep(points)
        return points

    def _keep(self, points: Sequence[Evaluation]) -> None:
        """Compare evaluations with the best one; keep the facts that bounds need."""
        self.fresh += [point for point in points if point.complete]
        for point in points:
            # No value exceeds the cap; rounding may, by an ulp.
            value, worse = min(point.value, self.kernel.cap), point
            if value > self.best_value:
                worse, self.best_point = self.best_point or point, point
                self.best_beta, self.best_value = point.beta, value
                self.best_rounding = point.rounding
            # Contributions of single samples are kept at the best evaluation alone.
            if worse is not self.best_point:
                worse.per_sample = None

    @cached_property
    def start_bound(self) -> StartBound | None:
        uniform = self.kernel.uniform
        return StartBound(self.kernel, self.kernel.start) if uniform else None

    def _step(self, point: Evaluation, interval: tuple[float, float]) -> None:
        bounds = self.best_value, self._upper()
        step = Step(point.beta, point.value, point.slope, interval, *bounds)
        self.steps.append(step)
        self.on_step(step)

    def _upper(self) -> float:
        """Proven upper bound on sup J: the intervals and the best value."""
        top = self.best_value + 2.0 * self.best_rounding
        return max([top, self.closed_bound, *(item.bound for item in self.queue[:1])])

    def _proven(self, bound: float) -> bool:
        return bound <= self.best_value + self.tol

    def _push(self, item: Interval) -> None:
        """Bound J over an interval from its ends."""
        kernel, enough = self.kernel, self.best_value + self.tol
        if item.right is None:
            bound = tail_bound(kernel, item.left)
        else:
            bound = interval_bound(kernel, item.left, item.right, enough, item.most)
        # A bound that is not a number proves nothing.
        item.bound = kernel.cap if math.isnan(bound) else bound
        self._file(item)

    def _file(self, item: Interval) -> None:
        """Keep an interval open, or close it for good: the best value only rises."""
        if self._proven(item.bound):
            self.closed.append((*item.ends, item.bound))
            self.closed_bound = max(self.closed_bound, item.bound)
        else:
            heapq.heappush(self.queue, item)

    def _worst(self) -> list[Interval]:
        """Take out the open intervals to split in the next pass."""
        items: list[Interval] = []
        while len(items) < self.kernel.batch and self.queue:
            if self._proven(self.queue[0].bound):
                break
            item = heapq.heappop(self.queue)
            if item.tried == self.count:
                items.append(item)
            else:
                self._tighten(item)
                self._file(item)
        return items

    def _tighten(self, item: Interval) -> None:
        """Try the bounds that use more than the two ends."""
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
            if self.fresh:
                self.interpolation.add(*self.fresh)
                self.fresh.clear()
            near = self.interpolation.near(low)
            if near != item.near:
                item.near = near
                top = self.interpolation.ceiling(near, item.bound, 0.1 * self.tol)
                bounds += [] if top is None else [top.top]
        item.bound = min(bound for bound in bounds if not math.isnan(bound))

    def _split(self, items: list[Interval]) -> None:
        """Evaluate inside intervals, all in one pass, and bound the parts."""
        splits = []
        for item in items:
            beta, stride = self._cut(item)
            low, high = item.ends
            stuck = self._stuck(item)
            if stuck or not low < beta < high or self.count >= MOST_EVALUATIONS:
                allowed = item.bound - self.best_value
                if stuck:
                    ends = (item.left, item.right or item.left)
                    rounding = max(end.rounding for end in ends)
                    allowed = 8.0 * max(self.best_rounding, rounding)
                raise self._refusal(item, allowed)
            splits.append((beta, stride))
        points = self._evaluate([beta for beta, _ in splits])
        for item, point, (_, stride) in zip(items, points, splits, strict=True):
            growth = min(item.growth**2, LARGEST_GROWTH)
            outward = growth if item.right is None else FIRST_GROWTH
            self._push(Interval(item.left, point, item.most, growth, stride))
            self._push(Interval(point, item.right, item.most, outward, stride))
        for item, point in zip(items, points, strict=True):
            self._step(point, item.ends)

    def _cut(self, item: Interval) -> tuple[float, float]:
        """Where to split: [0, beta] just inside what the bound near 0 proves."""
        (low, high), start = item.ends, self.start_bound
        if low == 0.0 and high < math.inf and start is not None:
            low = start.reach(self.best_value + 0.9 * self.tol, high)
            beta = low if 16.0 * low > high else math.sqrt(low) * math.sqrt(high)
            return beta, math.inf
        return item.cut(self.kernel.scale, self.tol)

    def _stuck(self, item: Interval) -> bool:
        """Whether only the allowance for rounding is unproven, so no split can help.

        Either this allowance is near that of the best value, and the bound without it
        is proven; or an end with its own allowance is above what the tolerance accepts.
        """
        ends = [item.left] if item.right is None else [item.left, item.right]
        if any(end.rough for end in ends):
            return False
        slack = 2.0 * (ends[0].rounding + ends[-1].rounding)
        if slack <= 16.0 * self.best_rounding and item.bound - slack <= self.best_value:
            return True
        least = 2.0 * min(end.rounding for end in ends)
        return not self._proven(max(end.value for end in ends) + least)

    def _refusal(self, item: Interval | None, allowed: float) -> CertificateError:
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


def maximize(
    kernel: Kernel, tol: float, on_step: Callable[[Step], None] = lambda step: None
) -> SearchTrace:
    """Certified global maximum of J over beta in [0, infinity].

    A pass over the data evaluates up to ``kernel.batch`` inverse temperatures: that
    takes fewer passes, and a few more evaluations. `on_step` is called after each step.
    """
    return _Search(kernel, tol, on_step).run()
