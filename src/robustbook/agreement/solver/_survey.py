"""One pass in single precision: where the maximum of a large problem must lie.

The solution for some of the samples says where to look: at whole multiples of a step,
so that all exponentials are products of one. What a pass in single precision proves
has a large allowance for rounding, which is enough far from the maximum; near it, the
pass proves that J is concave, and one evaluation in double precision does the rest.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import torch
from torch import Tensor

from robustbook.agreement.solver._columns import SUMMED, multiples_of
from robustbook.agreement.solver._evaluation import Evaluation
from robustbook.agreement.solver._kernel import Kernel
from robustbook.agreement.solver._sums import spread_bounds

#: Unit roundoff of float32.
ROUNDOFF: Final = 2.0**-24
#: Logits, in units of 1 / step, are cut off here: their squares must not overflow.
LOWEST: Final = -1e15
#: With fewer classes than this, a sample is a column.
FEW_CLASSES: Final = 64


def survey(
    kernel: Kernel, step: float, multiples: Sequence[int], near: Sequence[bool]
) -> tuple[list[Evaluation], list[float]]:
    """Evaluations at rising multiples of a step, and what bounds J'' between them.

    Between neighbours that are both `near`, J'' is at most that number; elsewhere it is
    infinite.
    """
    close = near.index(True)
    gaps = sum(near) - 1
    numbers = kernel.shards.reduce(
        lambda: _sums(kernel, step, multiples, near),
        [math.fsum] * (SUMMED * len(multiples) + 2 * gaps),
    )
    error = relative_error(kernel.num_views, kernel.num_classes, multiples[-1])
    points = [
        _evaluation(
            kernel, step, multiple, error, numbers[SUMMED * place :], near=near[place]
        )
        for place, multiple in enumerate(multiples)
    ]
    curvatures = [math.inf] * (len(multiples) - 1)
    bounds = numbers[SUMMED * len(multiples) :]
    for gap in range(gaps):
        size, total = bounds[2 * gap : 2 * gap + 2]
        most = (total + 8.0 * error * size) / kernel.num_samples / step / step
        curvatures[close + gap] = most
    return points, curvatures


def _sums(
    kernel: Kernel, step: float, multiples: Sequence[int], near: Sequence[bool]
) -> list[float]:
    """Of the samples of this process: sums for each evaluation, and between them."""
    at = torch.tensor(multiples, dtype=torch.float64, device=kernel.device)
    close = slice(near.index(True), len(near) - near[::-1].index(True))
    totals = torch.zeros(SUMMED, len(multiples), dtype=torch.float64)
    bends = torch.zeros(2, close.stop - close.start - 1, dtype=torch.float64)
    for rows, x in kernel.stacks():
        powers = _power_sums(kernel, step, multiples, near, rows, x)
        powers[1:].div_(powers[0])
        logs, means, squares = powers
        logs.log_()
        if kernel.uniform:
            logs[:, -1] += kernel.cap
        depth = kernel.first.depth[rows] * step
        if kernel.first.active is not None:
            powers *= kernel.first.active[rows]
            depth = depth * kernel.first.active[rows]
        spread = squares[close] - means[close].square()
        depths = depth.sum()
        totals[0] += _total(logs[:, -1:]) - at * depths
        totals[1] += _total(logs[:, :-1])
        totals[2] += _total(means[:, -1:]) - depths
        totals[3] += _total(means[:, :-1])
        totals[4, close] += _total(spread[:, -1:]) - _total(spread[:, :-1])
        near_powers = powers[:, close]
        bounds = spread_bounds(near_powers[:, :-1], near_powers[:, 1:])
        bends += torch.stack([bound.sum(-1, dtype=torch.float64) for bound in bounds])
    kernel.passes += 1
    return [*totals.T.flatten().tolist(), *bends.T.flatten().tolist()]


def _total(numbers: Tensor) -> Tensor:
    """Sums over views and samples for each evaluation, in double precision."""
    return numbers.sum((1, 2), dtype=torch.float64)


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
        kernel.room(place, samples, torch.float32).view(x.shape) for place in (8, 2)
    )
    torch.mul(x, step, out=z).clamp_min_(LOWEST)
    ones = z.new_ones(0 if down else kernel.num_classes)
    sums = z.new_zeros(3, len(multiples), len(z), samples)
    weights = multiples_of(kernel, rows, z, multiples, down=down)
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


def _evaluation(
    kernel: Kernel,
    step: float,
    multiple: int,
    error: float,
    numbers: Sequence[float],
    *,
    near: bool,
) -> Evaluation:
    """J in double precision from sums of numbers in single precision."""
    c, d, rise, fall, bend = (total / kernel.num_samples for total in numbers[:SUMMED])
    # What is added up is of the size of |C| and D; each number rounded a few times.
    size = 1.0 + kernel.cap + kernel.largest_log + multiple * step * kernel.depth + d
    rise, fall = rise / step if near else math.nan, fall / step
    return Evaluation(
        beta=multiple * step,
        value=c - d,
        slope=rise - fall,
        curvature=bend / step / step if near else math.nan,
        convex=c,
        concave=d,
        concave_slope=fall,
        rounding=error + 16.0 * ROUNDOFF * size,
        slope_rounding=error * (abs(rise) + abs(fall) if near else abs(fall)),
        moments=None,
        per_sample=None,
        columns=None,
        rough=True,
    )


def relative_error(views: int, classes: int, largest: int) -> float:
    """Bound on the relative rounding error of a sum over classes, in float32.

    A term z^k exp(multiple z) that does not underflow has multiple |z| <= 104. The
    argument is rounded once, and z before: 208 u for all powers of one exponential
    together. An exponential errs by 2 u, and so often as it is multiplied; each product
    by u more: 3 u for each multiple. Adding K terms in any order costs K u. Sums of the
    views and of their product meet. Here u = 2^-24.
    """
    return ROUNDOFF * (views + 1) * (classes + 3.0 * largest + 230.0)
