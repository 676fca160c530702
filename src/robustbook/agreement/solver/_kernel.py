"""The agreement kernel J = C - D, evaluated in chunks with bounded rounding.

With the logits of each of m views shifted so that the largest of each sample is 0
(x^v = F^v - max F^v), prior pi and inverse temperature beta,

    C_i(beta) = log sum_j pi_j^(1-m) exp(beta sum_v x^v_ij)      (convex)
    D_i(beta) = sum_v log sum_j exp(beta x^v_ij)                 (convex)
    J(beta)   = mean_i [C_i(beta) - D_i(beta)]

One pass over the data takes one exponential per class, sample and view: the joint
term is their product. A pass returns the values, the slopes and the moments
from which :mod:`robustbook.agreement.solver._bounds` builds its upper bounds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor

from robustbook.agreement.solver._problem import Problem
from robustbook.agreement.solver._sums import (
    UNIT_ROUNDOFF,
    Numbers,
    Reduction,
    add_up,
    sum_without,
)

#: How the numbers of :class:`Moments` of chunks are joined.
MOMENTS: Final[tuple[Reduction, ...]] = (math.fsum, math.fsum, max, max)


class Moments(NamedTuple):
    """Numbers from the power sums that bounds by interpolation need.

    With E x^k the mean under the weights exp(beta x), ``size`` is the mean of E x^2
    summed over the views and their product, ``square`` the largest of them. Of each
    sample's widest view, with r the sum of the other ranges, ``mixed`` is the largest
    sqrt(E x^2) + r, ``blend`` the mean of r (1 - 1 / sum_j exp(beta x_j)).
    """

    size: float
    blend: float
    square: float
    mixed: float


@dataclass(eq=False)
class Evaluation:
    """The kernel at one inverse temperature; means over samples unless per-sample.

    ``columns``, shape (3, m + 1, N), has of each view, and last of the product of all,
    the logarithm of sum_j w_j exp(beta x_j) and the means of x and x^2 under these
    weights. All x are at most 0, those of the product less their largest. An evaluation
    in single precision is ``rough``.
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
    moments: Moments | None = None
    per_sample: Tensor | None = None
    columns: Tensor | None = None
    rough: bool = False

    @property
    def complete(self) -> bool:
        """Whether the moments are known that bounds by interpolation need."""
        return self.columns is not None or self.moments is not None


class Kernel(Problem):
    """J of a problem at inverse temperatures: :meth:`evaluate`."""

    def __init__(self, *views: Tensor, **options: Any) -> None:
        super().__init__(*views, **options)
        sums = self.sums
        del self.sums
        numbers = self.reduce_chunks(
            self.rows, lambda rows: self._totals(rows, sums[..., rows]), self.how
        )
        #: The evaluation at beta = 0, which needs no other pass.
        self.start = self.evaluation(0.0, numbers)
        self.start.columns = sums

    @property
    def how(self) -> tuple[Reduction, ...]:
        """How the numbers of :meth:`evaluation` of chunks are joined: all are added."""
        return (math.fsum,) * (3 * (self.num_views + 1))

    @property
    def mismatch(self) -> float:
        """Share of samples on which not all predictions (first argmax) coincide."""
        united = sum(n for votes, n in self.votes.items() if len(set(votes)) == 1)
        return (self.votes.total() - united) / self.votes.total()

    @cached_property
    def ranges(self) -> Tensor:
        """Distances of the smallest logits from the largest, (m, N): one more pass."""
        ranges = self.new(self.num_views, len(self.depths))

        def fill(rows: slice, x: Tensor) -> Tensor:
            torch.neg(x[:-1].amin(2), out=ranges[:, rows])
            return ranges.new_empty(0)

        self.reduce_chunks(self.stacks, fill, ())
        self.passes += self.kept is None
        return ranges if self.active is None else ranges * self.active

    @cached_property
    def widest(self) -> Tensor:
        """Of each sample the place of the view with the largest range, (1, N)."""
        return self.ranges.max(0, keepdim=True).indices

    @cached_property
    def narrow(self) -> Tensor:
        """Of each sample the sum of the ranges of all views but the widest."""
        return sum_without(self.ranges, self.widest)

    def of_subsample(self) -> Kernel:
        """The kernel of every s-th sample, in memory, which is not surveyed again."""
        kernel = Kernel(*self.subsample, prior=self.prior, shards=self.shards)
        kernel.surveyed = False
        return kernel

    def evaluate(self, beta: float) -> Evaluation:
        """Value, slope, curvature and moments of J at a finite beta >= 0."""
        return self.evaluate_all([beta])[0]

    def evaluate_all(
        self,
        betas: Sequence[float],
        *,
        columns: bool = True,
        moments: bool = False,
        samples: bool = True,
        curved: bool = True,
    ) -> list[Evaluation]:
        """The same at several inverse temperatures in one pass.

        With `columns` those of each sample are kept, or with `samples` only what each
        contributes; with `moments` those of all together. Without `curved` there is no
        curvature, nor what needs it.
        """
        if not betas:
            return []
        size, height = len(self.depths), self.num_views + 1
        # Rows of columns that are not kept are overwritten by the next ones.
        sums = [
            self.new(3, height, size if columns else self.chunk)
            for _ in (betas if columns else betas[:1])
        ] * (1 if columns else len(betas))
        per_sample = [self.new(size if samples and not columns else 0) for _ in betas]
        how = self.how + (MOMENTS if moments else ())
        if moments:
            _ = self.narrow  # a pass of its own, before this one

        def numbers_at(rows: slice, x: Tensor) -> Tensor:
            numbers, place = [], rows if columns else slice(rows.stop - rows.start)
            for beta, table, values in zip(betas, sums, per_sample, strict=True):
                part = table[..., place]
                self._exponential_sums(rows, x, beta, part[: 2 + curved])
                numbers.append(self._totals(rows, part))
                if len(values):
                    values[rows] = self._contributions(beta, rows, part)
                if moments:
                    numbers.append(self._spreads(rows, part))
            return torch.cat(numbers)

        numbers = self.reduce_chunks(self.stacks, numbers_at, how * len(betas))
        self.passes += 1
        points = []
        for place, beta in enumerate(betas):
            point = self.evaluation(beta, numbers[len(how) * place :])
            if not curved:
                point.curvature = math.nan
            if moments:
                rest = numbers[len(how) * place + len(self.how) :]
                point.moments = self._moments(rest[: len(MOMENTS)])
            if columns:
                point.columns = sums[place]
            elif samples:
                point.per_sample = per_sample[place]
            points.append(point)
        return points

    def evaluation(
        self, beta: float, numbers: Numbers, unit: float = 1.0
    ) -> Evaluation:
        """The evaluation from sums over all samples, with logits times `unit`."""
        height = self.num_views + 1
        means = [total / self.num_samples for total in numbers[: 3 * height]]
        logs, slopes, spreads = (means[i * height : (i + 1) * height] for i in range(3))
        c, d = logs[-1] - beta * self.depth, math.fsum(logs[:-1])
        if math.isnan(c) or math.isnan(d):
            raise ValueError(
                "logits: expected the same finite numbers in every pass, got NaN "
                "in a later one; measure again when nobody changes them"
            )
        rise, fall = slopes[-1] / unit - self.depth, math.fsum(slopes[:-1]) / unit
        # |C| of a sample is at most this, on average.
        size = self.largest_log + beta * self.depth
        return Evaluation(
            beta=beta,
            value=c - d,
            slope=rise - fall,
            curvature=(spreads[-1] - math.fsum(spreads[:-1])) / unit / unit,
            convex=c,
            concave=d,
            concave_slope=fall,
            rounding=self.rounding(size + d),
            slope_rounding=self.relative_error * (abs(rise) + abs(fall)),
        )

    def contributions(self, point: Evaluation) -> Tensor:
        """What each sample contributes to the value of an evaluation that kept it."""
        if point.per_sample is not None:
            return point.per_sample
        assert point.columns is not None
        return self._contributions(point.beta, slice(None), point.columns)

    def _contributions(self, beta: float, rows: slice, columns: Tensor) -> Tensor:
        logs = columns[0]
        return logs[-1] - self.depths[rows] * beta - logs[:-1].sum(0)

    def rounding(self, size: float) -> float:
        """Bound on the rounding error of a value of J; `size` is mean |C| + D.

        The relative errors of the m + 1 sums over classes become absolute errors
        of their logarithms. The logarithms themselves, the sum of the logits over
        the views and the sum over the rows of a chunk round relative to their sizes.
        """
        rows = self.row_terms + 16 + 2 * self.num_views
        return self.relative_error + UNIT_ROUNDOFF * rows * (1.0 + self.cap + size)

    def _exponential_sums(
        self, rows: slice, x: Tensor, beta: float, sums: Tensor
    ) -> None:
        """Fill power sums under exp(beta x), of the sum of all views weighted."""
        out = self.room(1, x.shape[1])
        product = self.labels is None and self.deepest * beta <= self.largest_exponent
        if product:
            # The exponential of a sum is a product, which does not underflow here.
            torch.mul(x[:-1], beta, out=out[:-1]).exp_()
            torch.mul(out[0], out[1], out=out[-1])
            for other in out[2:-1]:
                out[-1].mul_(other)
        else:
            torch.mul(x, beta, out=out).exp_()
        self.weigh(out[-1], rows)
        self.power_sums(x, out, sums)
        if product:
            sums[:, -1].mul_((self.depths[rows] * beta).exp_())

    def _totals(self, rows: slice, sums: Tensor) -> Tensor:
        """Turn power sums into columns; return sums of these, and of variances."""
        sums[1:].div_(sums[0])
        logs = sums[0].log_()
        if self.uniform:
            logs[-1].add_(self.cap)
        if self.active is not None:
            # Moments of a point mass: no spread, nothing to bound.
            sums *= self.active[rows]
        means, squares = sums[1:]
        variances = torch.addcmul(squares, means, means, value=-1.0)
        table = torch.cat((logs, means, variances))
        if self.counts is not None:
            table *= self.counts[rows]
        return add_up(table)

    def moments_of(self, point: Evaluation) -> Moments:
        """Moments of an evaluation, from those of each sample if it has none."""
        if point.moments is None:
            columns = point.columns
            assert columns is not None
            numbers = self.reduce_chunks(
                self.rows, lambda rows: self._spreads(rows, columns[..., rows]), MOMENTS
            )
            point.moments = self._moments(numbers)
        return point.moments

    def _spreads(self, rows: slice, columns: Tensor) -> Tensor:
        """The numbers of :class:`Moments` of one chunk."""
        (logs, _, squares), widest = columns, self.widest[:, rows]
        narrow = self.narrow[rows]
        mixed = squares.gather(0, widest)[0].sqrt_().add_(narrow)
        blend = narrow * -torch.expm1(-logs.gather(0, widest)[0])
        table = torch.stack((squares.sum(0), blend))
        if self.counts is not None:
            table *= self.counts[rows]
        return torch.cat([add_up(table), torch.stack([squares.max(), mixed.max()])])

    def _moments(self, numbers: Numbers) -> Moments:
        size, blend, square, mixed = numbers
        return Moments(size / self.num_samples, blend / self.num_samples, square, mixed)
