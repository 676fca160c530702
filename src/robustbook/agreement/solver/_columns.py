"""Of one chunk of samples: exponentials, their sums over the classes, and J's parts."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

import torch
from torch import Tensor

from robustbook.agreement.solver._sums import add_up

if TYPE_CHECKING:
    from robustbook.agreement.solver._kernel import Kernel

#: Numbers that a pass adds up: C, D, their slopes, and the curvature of J.
SUMMED: Final = 5
#: Powers of one exponential that are kept while others are made of them.
POWERS: Final = (8, 4, 2, 1)
#: More products than this cost as much as an exponential, and round more.
MOST_PRODUCTS: Final = 8


def exponential(kernel: Kernel, rows: slice, x: Tensor, beta: float) -> Tensor:
    """exp(beta x) of each view and, weighted, of the sum of all."""
    out = kernel.room(1, x.shape[1])
    shallow = kernel.deepest * beta <= kernel.largest_exponent
    if kernel.kept is None and kernel.labels is None and shallow:
        # The exponential of a sum is a product, which does not underflow here.
        torch.mul(x[:-1], beta, out=out[:-1]).exp_()
        torch.mul(out[0], out[1], out=out[-1])
        for other in out[2:-1]:
            out[-1].mul_(other)
        out[-1].mul_((kernel.first.depth[rows] * beta).exp_()[:, None])
    else:
        torch.mul(x, beta, out=out).exp_()
    kernel.weigh(out[-1], rows)
    return out


def multiples_of(
    kernel: Kernel, rows: slice, z: Tensor, multiples: Sequence[int], *, down: bool
) -> Iterator[Tensor]:
    """Yield exp(k z), the sum of all views weighted, for rising whole numbers k.

    All are products of powers of exp(z): a product costs a tenth of an exponential. The
    classes are the rows of z if they run `down`.
    """
    samples = rows.stop - rows.start
    rooms = [
        kernel.room(place, samples, z.dtype).view_as(z) for place in (1, 3, 4, 5, 6)
    ]
    weight, reached = rooms[0], 0
    powers = {1: torch.exp(z, out=rooms[1])}
    for power, room in zip((2, 4, 8), rooms[2:], strict=True):
        half = powers[power // 2]
        powers[power] = torch.mul(half, half, out=room)
    for multiple in multiples:
        factors = _factors(multiple - reached)
        if not reached or len(factors) > MOST_PRODUCTS:
            if multiple in powers:
                weight.copy_(powers[multiple])
            else:
                torch.mul(z, multiple, out=weight).exp_()
            kernel.weigh(weight[-1].T if down else weight[-1], rows)
        else:
            for factor in factors:
                weight.mul_(powers[factor])
        reached = multiple
        yield weight


def _factors(gap: int) -> list[int]:
    """Powers, the largest first, that add up to a gap between two multiples."""
    factors = []
    for power in POWERS:
        count, gap = divmod(gap, power)
        factors += [power] * count
    return factors


def power_sums(kernel: Kernel, x: Tensor, weight: Tensor | None, sums: Tensor) -> None:
    """Sums of x^k times the weights, k = 0, 1 and, where there is room, 2.

    Without weights, all are 1.
    """
    views, samples, classes = x.shape
    ones = kernel.ones.to(x.dtype)
    term = weight
    for order, out in enumerate(sums):
        if term is None:
            out.copy_((x @ ones) if order else ones.sum().expand_as(out))
            term = x if order else None
            continue
        if order:
            term = torch.mul(term, x, out=kernel.room(2, samples, x.dtype))
        out.copy_(torch.mv(term.view(-1, classes), ones).view(views, samples))


def columns_of(
    kernel: Kernel,
    beta: float,
    rows: slice,
    sums: Tensor,
    depth: Tensor,
    per_sample: Tensor | None = None,
) -> Tensor:
    """Turn power sums into logarithms and moments; return what they add up to."""
    sums[1:].div_(sums[0])
    logs, means, *squares = sums
    logs.log_()
    if kernel.uniform:
        logs[-1] += kernel.cap
    lift = depth * beta
    if kernel.first.active is not None:
        # Moments of a point mass: no spread, nothing to bound.
        keep = kernel.first.active[rows]
        sums *= keep
        depth, lift = depth * keep, lift * keep
    table = sums.new_empty(SUMMED, sums.shape[2])
    torch.sub(logs[-1], lift, out=table[0])
    torch.sum(logs[:-1], 0, out=table[1])
    torch.sub(means[-1], depth, out=table[2])
    torch.sum(means[:-1], 0, out=table[3])
    if squares:
        spreads = torch.addcmul(squares[0], means, means, value=-1.0)
        torch.sub(spreads[-1], spreads[:-1].sum(0), out=table[4])
    else:
        table[4] = math.nan
    if per_sample is not None:
        torch.sub(table[0], table[1], out=per_sample)
    table = table.double()
    if kernel.counts is not None:
        table *= kernel.counts[rows]
    return add_up(table)
