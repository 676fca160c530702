"""One pass in single precision: where the maximum of a large problem must lie.

A subsample says where to look: at the fewest whole multiples of a step that prove its
maximum, so that all exponentials are products of one. Bounds from single precision
need a large allowance for rounding, which is small enough far from the maximum; near
it, the pass proves that J is concave, and one evaluation in double precision does the
rest.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Final

import torch
from scipy.interpolate import KroghInterpolator
from scipy.optimize import brentq
from torch import Tensor

from robustbook.agreement.solver._bounds import (
    chord_tangent_bound,
    largest_curvature,
    spread_bounds,
    tail_bound,
)
from robustbook.agreement.solver._intervals import SearchTrace
from robustbook.agreement.solver._kernel import Evaluation, Kernel

#: A survey evaluates at some of these multiples of the likely maximizer over PEAK.
PEAK: Final = 16
GRID: Final = (*range(2, PEAK + 10, 2), 28, 32, 40, 48, 64, 96)
LARGEST_MULTIPLE: Final = 2000
#: All samples differ a little from some: of the rise of J, this much is left.
MARGIN: Final = 0.02
#: Unit roundoff of float32.
ROUNDOFF: Final = 2.0**-24
#: Logits, in units of 1 / step, are cut off here: their squares must not overflow.
LOWEST: Final = -1e15
#: With fewer classes than this, a sample is a column.
FEW_CLASSES: Final = 64


def plan(kernel: Kernel, solution: SearchTrace) -> tuple[float, list[int], slice]:
    """A step, few of its multiples that prove a maximum, and those near the peak.

    They are chosen on a subsample, from left to right. From each, the next is the
    farthest up to which J is proven to stay well below the maximum, or to be concave.
    """
    step, value = solution.beta / PEAK, solution.value
    enough = value - MARGIN * (value - solution.value_at_zero)
    far = {round(cut.beta / step) for cut in solution.steps}
    grid = sorted({*GRID, *(k for k in far if GRID[-1] < k < LARGEST_MULTIPLE)})
    points = [kernel.start, *kernel.evaluate_all([k * step for k in grid])]
    peak, last = grid.index(PEAK) + 1, len(grid)
    bend = MARGIN * min(points[peak].curvature, 0.0)

    def low(here: int, there: int) -> bool:
        return chord_tangent_bound(points[here], points[there]) <= enough

    def concave(here: int, there: int) -> bool:
        ends = points[here], points[there]
        return here > 0 and largest_curvature(kernel, *ends) < bend

    chosen, near = [0], [peak]
    while chosen[-1] < last and tail_bound(kernel, points[chosen[-1]]) > enough:
        here = chosen[-1]
        reach = range(peak if here < peak else last, here, -1)
        there = next((place for place in reach if low(here, place)), 0)
        if not there:
            there = next((p for p in reach if concave(here, p)), here + 1)
            near += [max(here, 1), there]
        chosen.append(there)
    multiples = [grid[place - 1] for place in chosen[1:]]
    first, final = (multiples.index(grid[end(near) - 1]) for end in (min, max))
    return step, multiples, slice(first, final + 1)


def concave_run(curvatures: Sequence[float], place: int) -> tuple[int, int]:
    """First and last evaluation of the neighbouring intervals with J'' < 0."""
    low, high = place, place + 1
    while curvatures[place] < 0.0 and low > 0 and curvatures[low - 1] < 0.0:
        low -= 1
    while curvatures[place] < 0.0 and curvatures[high] < 0.0:
        high += 1
    return low, high


def summit(points: Sequence[Evaluation]) -> float:
    """The zero of dJ / d(log beta), interpolated between all `points`, in their order.

    In log beta a peak has the same shape at every scale.
    """
    places, data = list[float](), list[float]()
    for point in points:
        beta, slope = point.beta, point.beta * point.slope
        known = [slope, slope + beta * beta * point.curvature]
        known = known[: 1 + math.isfinite(known[1])]
        places += [math.log(beta)] * len(known)
        data += known
    low, high = next(
        (math.log(left.beta), math.log(right.beta))
        for left, right in itertools.pairwise(points)
        if left.slope > 0.0 >= right.slope
    )
    slope_at, edge = KroghInterpolator(places, data), 1e-9 * (high - low)
    top = 0.5 * (low + high)
    if slope_at(low) > 0.0 > slope_at(high):
        top = float(brentq(slope_at, low, high, xtol=1e-15))
    return math.exp(min(max(top, low + edge), high - edge))


def survey(
    kernel: Kernel, step: float, multiples: Sequence[int], near: slice
) -> tuple[list[Evaluation], list[float]]:
    """Evaluations at rising multiples of a step, and what bounds J'' between them.

    Between neighbours that are both `near` the peak, J'' is at most that number;
    elsewhere it is infinite.
    """
    gaps = near.stop - near.start - 1

    def numbers_of(rows: slice, x: Tensor) -> Tensor:
        sums = _power_sums(kernel, step, multiples, near, rows, x)
        counted = samples = rows.stop - rows.start
        if kernel.active is not None:
            # Moments of a point mass: no spread, nothing to bound.
            active = kernel.active[rows]
            sums *= active
            sums[0].add_(~active)
            counted = int(active.sum())
        sums[1:].div_(sums[0])
        # The logarithm of a product of eight costs as much as that of one.
        products, size = sums[0].double(), samples
        while size > 1 and size > samples // 8:
            half = size // 2
            products[..., :half].mul_(products[..., size - half : size])
            size -= half
        totals = products.new_zeros(sums.shape[:-1])
        torch.sum(products[..., :size].log_(), -1, out=totals[0])
        if kernel.uniform:
            totals[0, :, -1] += counted * kernel.cap
        torch.sum(sums[1].double(), -1, out=totals[1])
        ends = sums[:, near]
        variances = torch.addcmul(ends[2], ends[1], ends[1], value=-1.0)
        torch.sum(variances.double(), -1, out=totals[2, near])
        fall = ends[0, :-1] / ends[0, 1:]
        bends = spread_bounds(fall, ends[:, :-1], ends[:, 1:])
        parts = totals.transpose(0, 1), torch.stack(bends, 1).double().sum(-1)
        return torch.cat([part.flatten() for part in parts])

    how = kernel.how * len(multiples) + kernel.how[:2] * gaps
    numbers = kernel.reduce_chunks(kernel.stacks, numbers_of, how)
    kernel.passes += 1
    error = relative_error(kernel.num_views, kernel.num_classes, multiples[-1])
    points, width = [], len(kernel.how)
    for place, multiple in enumerate(multiples):
        point = kernel.evaluation(multiple * step, numbers[width * place :], step)
        if not near.start <= place < near.stop:
            point.slope = point.curvature = math.nan
        # What is added up is of the size of |C| and D. A logarithm rounds by 2 u of
        # it, the weight of all classes and the sum over the views less often than 16.
        size = 1.0 + kernel.cap + kernel.largest_log + point.beta * kernel.depth
        point.rounding = error + 16.0 * ROUNDOFF * (size + point.concave)
        point.slope_rounding *= error / kernel.relative_error
        point.slope_rounding += (kernel.num_views + 1) * ROUNDOFF / step
        point.rough = True
        points.append(point)
    curvatures = [math.inf] * (len(multiples) - 1)
    bounds = iter(numbers[width * len(multiples) :])
    for gap, (size, total) in enumerate(zip(bounds, bounds, strict=True)):
        most = (total + 8.0 * error * size) / kernel.num_samples
        most = (most + (kernel.num_views + 1) * ROUNDOFF) / step / step
        curvatures[near.start + gap] = most
    return points, curvatures


def _power_sums(
    kernel: Kernel,
    step: float,
    multiples: Sequence[int],
    near: slice,
    rows: slice,
    x: Tensor,
) -> Tensor:
    """Sums of z^k exp(multiple z), k = 0, 1, 2, with z = step x: (3, B, m + 1, n).

    Far from the maximum those of z for all views together are left out, and all of z^2.
    """
    # Sums over few classes are fast down the columns, over many along the rows.
    down = kernel.num_classes < FEW_CLASSES
    plain, x = x, x.transpose(1, 2) if down else x
    samples = rows.stop - rows.start
    z, term = (
        kernel.room(place, samples, torch.float32).view(x.shape) for place in (3, 2)
    )
    # To transpose numbers of four bytes is faster than to transpose those of eight.
    small = term.view(plain.shape).copy_(plain).mul_(step)
    z.copy_(small.transpose(1, 2) if down else small).clamp_min_(LOWEST)
    ones = z.new_ones(0 if down else kernel.num_classes)
    sums = z.new_zeros(3, len(multiples), len(z), samples)
    weights = _multiples(kernel, rows, z, multiples, down=down)
    for place, weight in enumerate(weights):
        full = near.start <= place < near.stop
        views = slice(None if full else -1)
        _add_up_classes(weight, sums[0, place], ones)
        torch.mul(weight[views], z[views], out=term[views])
        _add_up_classes(term[views], sums[1, place, views], ones)
        if full:
            _add_up_classes(term.mul_(z), sums[2, place], ones)
    return sums


def _add_up_classes(term: Tensor, out: Tensor, ones: Tensor) -> None:
    """Sums over the classes, which are the rows or, for vectors `ones`, the columns."""
    if len(ones):
        torch.mv(term.view(-1, len(ones)), ones, out=out.view(-1))
    else:
        torch.sum(term, 1, out=out)


def _multiples(
    kernel: Kernel, rows: slice, z: Tensor, multiples: Sequence[int], *, down: bool
) -> Iterator[Tensor]:
    """Yield exp(k z), the sum of all views weighted, for rising whole numbers k.

    All are products of exp(z), exp(2 z), exp(4 z) and so on: a product costs a tenth of
    an exponential. The classes are the rows of z if they run `down`.
    """
    samples = rows.stop - rows.start
    weight = kernel.room(1, samples, z.dtype).view_as(z).fill_(1.0)
    kernel.weigh(weight[-1].T if down else weight[-1], rows)
    powers, reached = list[Tensor](), 0
    for multiple in multiples:
        gap = multiple - reached
        for bit in range(gap.bit_length()):
            if bit == len(powers):
                room = kernel.room(4 + bit, samples, z.dtype).view_as(z)
                half = powers[-1] if powers else None
                torch.exp(z, out=room) if half is None else torch.square(half, out=room)
                powers.append(room)
            if gap >> bit & 1:
                weight.mul_(powers[bit])
        reached = multiple
        yield weight


def relative_error(views: int, classes: int, largest: int) -> float:
    """Bound on the error of the m + 1 logarithms of one sample, in float32.

    Let u = 2^-24 and z = step x <= 0. The claim is about sums S_n over the classes of
    w_j z_j^n exp(k z_j), n = 0, 1, 2, for whole numbers k up to `largest`, as
    :func:`_power_sums` computes them. All terms of a sum have one sign.

    1. *Argument.* z is rounded once, to z (1 + d) with |d| <= u: exp(k z) changes by
       the factor exp(k z d). For terms with k |z| <= 104 it costs at most 104 u.
    2. *Powers.* An exponential errs by 2 u (1 ulp). exp(k z) is a product of k
       of them, made by k - 1 multiplications of u each, however it is cut into powers:
       at most 3 k u.
    3. *Factors.* The weight and n factors z, rounded themselves, cost 5 u.
    4. *Sum.* Adding K terms of one sign, in any order, costs (K - 1) u.
    5. *Smaller terms.* Those with k |z| > 86 may underflow on the way. As w_j >= 1 and
       the sum of all weights is at most exp(60) (LARGEST_LOG_WEIGHT), together they are
       less than exp(60 - 86) < u/10^4 of S_0, and change S_n / S_0 by less than
       86^n exp(-26) < u: :func:`survey` adds u to slopes and curvatures.

    Together t = K + 3 k + 110 roundings, so S_n is exact up to t u / (1 - t u). The
    logarithm of S_0 then has this absolute error, and J has m + 1 of them. A quotient
    S_n / S_0 has twice the relative error, less than the m + 1 >= 3 that slopes get;
    and in :func:`~robustbook.agreement.solver._bounds.spread_bounds` a variance errs by
    at most six times that of a sum, of the mean square, and `fall` by twice: by no more
    than 8 (m + 1) times of the size that is returned.
    """
    terms = (classes + 3.0 * largest + 130.0) * ROUNDOFF
    return (views + 1) * terms / (1.0 - terms)
