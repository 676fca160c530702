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
    place_of_largest,
    sum_without,
)

#: How the numbers of a pass go together: C, D, their slopes and the curvature of J;
#: and those of :class:`Moments`.
SUMS: Final[tuple[Reduction, ...]] = (math.fsum,) * 5
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
    moments: Moments | None = None
    per_sample: Tensor | None = None
    columns: Tensor | None = None
    rough: bool = False

    @property
    def complete(self) -> bool:
        """Whether moments are known that bounds by interpolation need."""
        return self.columns is not None or self.moments is not None


class Kernel(Problem):
    """J of a problem at inverse temperatures: :meth:`evaluate`."""

    def __init__(self, *views: Tensor, **options: Any) -> None:
        super().__init__(*views, **options)
        per_sample, sums = self.new(len(self.depths)), self.sums
        del self.sums

        def numbers_at(rows: slice) -> Tensor:
            return self._columns(0.0, rows, sums[..., rows], per_sample[rows])

        #: The evaluation at beta = 0, which needs no other pass.
        self.start = self._evaluation(
            0.0, self.reduce_chunks(self.rows, numbers_at, SUMS)
        )
        self.start.per_sample, self.start.columns = per_sample, sums

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
        return place_of_largest(self.ranges)

    @cached_property
    def narrow(self) -> Tensor:
        """Of each sample the sum of the ranges of all views but the widest."""
        return sum_without(self.ranges, self.widest)

    def of_some(self) -> Kernel:
        """The kernel of some of the samples, in memory, which is not surveyed again."""
        kernel = Kernel(*self.some, prior=self.prior, shards=self.shards)
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
    ) -> list[Evaluation]:
        """The same at several inverse temperatures in one pass.

        With `moments` of all samples, with `columns` those of each; without `samples`
        no contributions.
        """
        if not betas:
            return []
        size = len(self.depths)
        height, width = self.num_views + 1, size if columns else self.chunk
        # Rows of columns that are not kept are overwritten by the next ones.
        kept = [self.new(3, height, width) for _ in (betas if columns else betas[:1])]
        sums = kept if columns else kept * len(betas)
        per_sample = [self.new(size) if samples else None for _ in betas]
        how = SUMS + MOMENTS if moments else SUMS
        if moments:
            _ = self.narrow  # a pass of its own, before this one

        def numbers_at(rows: slice, x: Tensor) -> Tensor:
            numbers, kept_rows = [], rows if columns else slice(rows.stop - rows.start)
            for beta, table, values in zip(betas, sums, per_sample, strict=True):
                part = table[..., kept_rows]
                self.power_sums(x, self._exponential(rows, x, beta), part)
                value = None if values is None else values[rows]
                numbers.append(self._columns(beta, rows, part, value))
                if moments:
                    numbers.append(self._spreads(rows, part))
            return torch.cat(numbers)

        numbers = self.reduce_chunks(self.stacks, numbers_at, how * len(betas))
        self.passes += 1
        points = []
        for place, beta in enumerate(betas):
            step = len(how)
            point = self._evaluation(beta, numbers[step * place : step * (place + 1)])
            point.per_sample = per_sample[place]
            point.columns = sums[place] if columns else None
            points.append(point)
        return points

    def _evaluation(self, beta: float, numbers: Numbers) -> Evaluation:
        """What the sums over all samples say."""
        c, d, slope_of_c, slope_of_d, curvature = (
            total / self.num_samples for total in numbers[: len(SUMS)]
        )
        if math.isnan(c) or math.isnan(d):
            raise ValueError(
                "logits: expected the same finite numbers in every pass, got NaN "
                "in a later one; measure again when nobody changes them"
            )
        moments = numbers[len(SUMS) :]
        # |C| of a sample is at most this, on average.
        size = self.largest_log + beta * self.depth
        return Evaluation(
            beta=beta,
            value=c - d,
            slope=slope_of_c - slope_of_d,
            curvature=curvature,
            convex=c,
            concave=d,
            concave_slope=slope_of_d,
            rounding=self.rounding(size + d),
            slope_rounding=self.relative_error * (abs(slope_of_c) + abs(slope_of_d)),
            moments=self._moments(moments) if moments else None,
        )

    def rounding(self, size: float) -> float:
        """Bound on the rounding error of a value of J; `size` is mean |C| + D.

        The relative errors of the m + 1 sums over classes become absolute errors
        of their logarithms. The logarithms themselves, the sum of the logits over
        the views and the sum over the rows of a chunk round relative to their sizes.
        """
        rows = self.row_terms + 16 + 2 * self.num_views
        return self.relative_error + UNIT_ROUNDOFF * rows * (1.0 + self.cap + size)

    def _exponential(self, rows: slice, x: Tensor, beta: float) -> Tensor:
        """exp(beta x) of each view and, weighted, of the sum of all."""
        out = self.room(1, x.shape[1])
        shallow = self.deepest * beta <= self.largest_exponent
        if self.kept is None and self.labels is None and shallow:
            # The exponential of a sum is a product, which does not underflow here.
            torch.mul(x[:-1], beta, out=out[:-1]).exp_()
            torch.mul(out[0], out[1], out=out[-1])
            for other in out[2:-1]:
                out[-1].mul_(other)
            out[-1].mul_((self.depths[rows] * beta).exp_()[:, None])
        else:
            torch.mul(x, beta, out=out).exp_()
        self.weigh(out[-1], rows)
        return out

    def _columns(
        self, beta: float, rows: slice, sums: Tensor, per_sample: Tensor | None
    ) -> Tensor:
        """Turn power sums into logarithms and moments; return what they add up to."""
        sums[1:].div_(sums[0])
        logs, means, squares = sums
        logs.log_()
        if self.uniform:
            logs[-1] += self.cap
        depths = self.depths[rows]
        lift = depths * beta
        if self.active is not None:
            # Moments of a point mass: no spread, nothing to bound.
            keep = self.active[rows]
            sums *= keep
            depths, lift = depths * keep, lift * keep
        table = sums.new_empty(len(SUMS), sums.shape[2])
        torch.sub(logs[-1], lift, out=table[0])
        torch.sum(logs[:-1], 0, out=table[1])
        torch.sub(means[-1], depths, out=table[2])
        torch.sum(means[:-1], 0, out=table[3])
        spreads = torch.addcmul(squares, means, means, value=-1.0)
        torch.sub(spreads[-1], spreads[:-1].sum(0), out=table[4])
        if per_sample is not None:
            torch.sub(table[0], table[1], out=per_sample)
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
        """The numbers of :class:`Moments` of one chunk, before they go together."""
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
