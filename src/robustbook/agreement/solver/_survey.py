"""One pass in single precision: where the maximum of a large problem must lie.

The solution for some of the samples says where to look: at whole multiples of a step,
so that all exponentials are products of one. What a pass in single precision proves
has a large allowance for rounding, which is enough far from the maximum; near it, the
pass proves that J is concave, and one evaluation in double precision does the rest.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Final

import torch
from torch import Tensor

from robustbook.agreement.solver._bounds import spread_bounds
from robustbook.agreement.solver._intervals import SearchTrace
from robustbook.agreement.solver._kernel import Evaluation, Kernel

#: A survey evaluates at multiples of the likely maximizer over PEAK, with moments at
#: those NEAR it.
PEAK: Final = 16
NEAR: Final = 7
MARGIN: Final = 0.02
LARGEST_MULTIPLE: Final = 2000
#: Unit roundoff of float32.
ROUNDOFF: Final = 2.0**-24
#: Logits, in units of 1 / step, are cut off here: their squares must not overflow.
LOWEST: Final = -1e15
#: With fewer classes than this, a sample is a column.
FEW_CLASSES: Final = 64
#: Powers of one exponential that are kept while others are made of them.
POWERS: Final = (8, 4, 2, 1)
#: More products than this cost as much as an exponential, and round more.
MOST_PRODUCTS: Final = 8


def places(found: SearchTrace) -> tuple[float, list[int]]:
    """A step and its multiples, where the solution for some samples proves most."""
    step = found.beta / PEAK
    # All samples differ from some: what these barely prove is cut in two.
    barely = found.value - MARGIN * (found.value - found.value_at_zero)
    cuts = [cut.beta for cut in found.steps]
    cuts += [
        math.sqrt(left * right) if left else 0.25 * right
        for left, right, bound in found.intervals
        if bound > barely and right < math.inf
    ]
    multiples = {max(1, round(cut / step)) for cut in cuts}
    multiples = {place for place in multiples if abs(place - PEAK) > 1}
    multiples |= {PEAK - 1, PEAK, PEAK + 1}
    return step, sorted(place for place in multiples if place < LARGEST_MULTIPLE)


def concave_run(curvatures: Sequence[float], place: int) -> tuple[int, int]:
    """First and last evaluation of the neighbouring intervals with J'' < 0."""
    low, high = place, place + 1
    while curvatures[place] < 0.0 and low > 0 and curvatures[low - 1] < 0.0:
        low -= 1
    while curvatures[place] < 0.0 and curvatures[high] < 0.0:
        high += 1
    return low, high


def survey(
    kernel: Kernel, step: float, multiples: Sequence[int]
) -> tuple[list[Evaluation], list[float]]:
    """Evaluations at rising multiples of a step, and what bounds J'' between them.

    Between neighbours that are both near the peak, J'' is at most that number;
    elsewhere it is infinite.
    """
    near = [abs(place - PEAK) <= NEAR for place in multiples]
    first, gaps = near.index(True), sum(near) - 1
    close = slice(first, first + gaps + 1)

    def numbers_of(rows: slice, x: Tensor) -> Tensor:
        columns = _power_sums(kernel, step, multiples, near, rows, x)
        kernel.to_columns(rows, columns)
        logs, means, squares = columns
        table = torch.stack((logs, means, squares - means.square()), 1)
        ends = columns[:, close]
        bounds = torch.stack(spread_bounds(ends[:, :-1], ends[:, 1:]), 1)
        totals = (
            part.sum(-1, dtype=torch.float64).flatten() for part in (table, bounds)
        )
        return torch.cat(list(totals))

    how = kernel.how * len(multiples) + kernel.how[:2] * gaps
    numbers = kernel.reduce_chunks(kernel.stacks, numbers_of, how)
    kernel.passes += 1
    error = relative_error(kernel.num_views, kernel.num_classes, multiples[-1])
    points, width = [], len(kernel.how)
    for place, multiple in enumerate(multiples):
        point = kernel.evaluation(multiple * step, numbers[width * place :], step)
        if not near[place]:
            point.slope = point.curvature = math.nan
        # What is added up is of the size of |C| and D.
        size = 1.0 + kernel.cap + kernel.largest_log + point.beta * kernel.depth
        point.rounding = error + 16.0 * ROUNDOFF * (size + point.concave)
        point.slope_rounding *= error / kernel.relative_error
        point.rough = True
        points.append(point)
    curvatures = [math.inf] * (len(multiples) - 1)
    bounds = iter(numbers[width * len(multiples) :])
    for gap, (size, total) in enumerate(zip(bounds, bounds, strict=True)):
        most = (total + 8.0 * error * size) / kernel.num_samples / step / step
        curvatures[first + gap] = most
    return points, curvatures


def _power_sums(
    kernel: Kernel,
    step: float,
    multiples: Sequence[int],
    near: Sequence[bool],
    rows: slice,
    x: Tensor,
) -> Tensor:
    """Sums of z^k exp(multiple z), k = 0, 1, 2, with z = step x: (3, B, m + 1, n).

    Far from the maximum those of z for all views together are left out, and all of z^2.
    """
    # Sums over few classes are fast down the columns, over many along the rows.
    down = kernel.num_classes < FEW_CLASSES
    x = x.transpose(1, 2) if down else x
    samples = rows.stop - rows.start
    z, term = (
        kernel.room(place, samples, torch.float32).view(x.shape) for place in (3, 2)
    )
    torch.mul(x, step, out=z).clamp_min_(LOWEST)
    ones = z.new_ones(0 if down else kernel.num_classes)
    sums = z.new_zeros(3, len(multiples), len(z), samples)
    weights = _multiples(kernel, rows, z, multiples, down=down)
    for place, weight in enumerate(weights):
        views = slice(None if near[place] else -1)
        _add_up_classes(weight, sums[0, place], ones)
        torch.mul(weight[views], z[views], out=term[views])
        _add_up_classes(term[views], sums[1, place, views], ones)
        if near[place]:
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

    All are products of powers of exp(z): a product costs a tenth of an exponential. The
    classes are the rows of z if they run `down`.
    """
    samples = rows.stop - rows.start
    weight, *rooms = (
        kernel.room(place, samples, z.dtype).view_as(z) for place in (1, 4, 5, 6, 7)
    )
    powers, reached = {1: torch.exp(z, out=rooms[0])}, 0
    for power, room in zip((2, 4, 8), rooms[1:], strict=True):
        half = powers[power // 2]
        powers[power] = torch.mul(half, half, out=room)
    for multiple in multiples:
        factors, gap = list[int](), multiple - reached
        for power in POWERS:
            count, gap = divmod(gap, power)
            factors += [power] * count
        if reached and len(factors) <= MOST_PRODUCTS:
            for factor in factors:
                weight.mul_(powers[factor])
        else:
            if multiple in powers:
                weight.copy_(powers[multiple])
            else:
                torch.mul(z, multiple, out=weight).exp_()
            kernel.weigh(weight[-1].T if down else weight[-1], rows)
        reached = multiple
        yield weight


def relative_error(views: int, classes: int, largest: int) -> float:
    """Bound on the relative rounding error of a sum over classes, in float32.

    A term z^k exp(multiple z) that does not underflow has multiple |z| <= 104. The
    argument is rounded once, and z before: 208 u for all powers of one exponential
    together. An exponential errs by 2 u, and so often as it is multiplied; each product
    by u more: 3 u for each multiple. Adding K terms in any order costs K u. Sums of the
    views and of their product meet. Here u = 2^-24.
    """
    return ROUNDOFF * (views + 1) * (classes + 3.0 * largest + 230.0)
