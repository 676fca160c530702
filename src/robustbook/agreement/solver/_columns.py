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


def exponentials(
    kernel: Kernel,
    rows: slice,
    x: Tensor,
    betas: Sequence[float],
    step: float | None = None,
) -> Iterator[Tensor]:
    """Yield exp(beta x), the sum of all views weighted, for each rising beta.

    Where the betas are whole multiples of a step, exp(k step x) is a product of powers
    of exp(step x): a product costs a tenth of an exponential.
    """
    samples = x.shape[1]
    if step is None:
        for beta in betas:
            yield _exponential(kernel, rows, x, beta, kernel.room(1, samples))
        return
    base = torch.mul(x, step, out=kernel.room(3, samples)).exp_()
    powers, weight, at = {1: base}, kernel.room(1, samples), 0
    for place, power in enumerate((2, 4, 8)):
        half = powers[power // 2]
        powers[power] = torch.mul(half, half, out=kernel.room(4 + place, samples))
    for beta in betas:
        multiple = round(beta / step)
        factors = _factors(multiple - at)
        if len(factors) > MOST_PRODUCTS:
            _exponential(kernel, rows, x, beta, weight)
        else:
            for factor in factors:
                if at:
                    weight.mul_(powers[factor])
                else:
                    kernel.weigh(weight.copy_(powers[factor])[-1], rows)
                at += factor
        at = multiple
        yield weight


def _exponential(
    kernel: Kernel, rows: slice, x: Tensor, beta: float, out: Tensor
) -> Tensor:
    """exp(beta x), the sum of all views weighted."""
    if kernel.kept is None and kernel.num_views > 1 and kernel.labels is None:
        deepest = kernel.deepest * beta
        if deepest <= kernel.largest_exponent:
            # The exponential of a sum is a product, which nothing underflows in.
            torch.mul(x[:-1], beta, out=out[:-1]).exp_()
            torch.mul(out[0], out[1], out=out[-1])
            for other in out[2:-1]:
                out[-1].mul_(other)
            out[-1].mul_((kernel.first.depth[rows] * beta).exp_()[:, None])
            kernel.weigh(out[-1], rows)
            return out
    torch.mul(x, beta, out=out).exp_()
    kernel.weigh(out[-1], rows)
    return out


def _factors(gap: int) -> list[int]:
    """Powers, the largest first, that add up to a gap between two multiples."""
    factors = []
    for power in POWERS:
        count, gap = divmod(gap, power)
        factors += [power] * count
    return factors


def power_sums(kernel: Kernel, x: Tensor, weight: Tensor, sums: Tensor) -> None:
    """Sums of x^k exp(beta x), k = 0, 1 and, if there is room, 2, of each view and all."""
    views, samples, classes = x.shape
    flat = weight.view(-1, classes)
    term = kernel.room(2, samples)
    shape = views, samples
    sums[0] = torch.mv(flat, kernel.ones).view(shape)
    torch.mul(weight, x, out=term)
    sums[1] = torch.mv(term.view(-1, classes), kernel.ones).view(shape)
    if len(sums) > 2:
        term.mul_(x)
        sums[2] = torch.mv(term.view(-1, classes), kernel.ones).view(shape)
    if kernel.uniform:
        sums[:, -1] *= kernel.weights[0]


def columns_of(
    kernel: Kernel, beta: float, rows: slice, sums: Tensor, per_sample: Tensor
) -> Tensor:
    """Turn power sums into logarithms and moments; return what they add up to."""
    sums[1:].div_(sums[0])
    logs, means, *squares = sums
    logs.log_()
    depth = kernel.first.depth[rows]
    lift = depth * beta
    if kernel.first.active is not None:
        # Moments of a point mass: no spread, nothing to bound.
        keep = kernel.first.active[rows]
        sums *= keep
        depth, lift = depth * keep, lift * keep
    table = kernel.new(SUMMED, sums.shape[2])
    torch.sub(logs[-1], lift, out=table[0])
    torch.sum(logs[:-1], 0, out=table[1])
    torch.sub(means[-1], depth, out=table[2])
    torch.sum(means[:-1], 0, out=table[3])
    if squares:
        spreads = torch.addcmul(squares[0], means, means, value=-1.0)
        torch.sub(spreads[-1], spreads[:-1].sum(0), out=table[4])
    else:
        table[4] = math.nan
    torch.sub(table[0], table[1], out=per_sample)
    if kernel.counts is not None:
        table *= kernel.counts[rows]
    return add_up(table)
