"""Of one chunk of samples: sums over the classes, and what J is made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import torch
from torch import Tensor

from robustbook.agreement.solver._sums import add_powers, add_up

if TYPE_CHECKING:
    from robustbook.agreement.solver._kernel import Kernel

#: Numbers that a pass adds up: C, D, their slopes, and the curvature of J.
SUMMED: Final = 5


def power_sums(
    kernel: Kernel,
    beta: float,
    rows: slice,
    shifted: Sequence[Tensor],
    joint: Tensor,
    sums: Tensor,
) -> Tensor | None:
    """Sums of x^k exp(beta x), k = 0, 1, 2, of each view and of all together.

    Returns of which samples the joint weights were taken anew, without underflow.
    """
    _, product, weight, term = kernel.buffers[:4, : len(joint)]
    for v, x in enumerate(shifted):
        own = weight if v else product
        torch.mul(x, beta, out=own).exp_()
        add_powers(x, own, kernel.ones, term, sums[:, v])
        if v:
            product.mul_(own)
    lost = None
    if kernel.deepest * beta > kernel.largest_exponent:
        # The joint weights peak at exp(-beta depth); there, they peak at 1.
        lost = kernel.first.depth[rows] * beta > kernel.largest_exponent
        product[lost] = (joint[lost] * beta).exp()
    product = kernel.weighted(rows, product)
    add_powers(joint, product, kernel.weights, term, sums[:, -1])
    return lost


def columns_of(
    kernel: Kernel,
    beta: float,
    rows: slice,
    sums: Tensor,
    per_sample: Tensor,
    lost: Tensor | None,
) -> Tensor:
    """Turn power sums into logarithms and moments; return what they add up to."""
    sums[1:].div_(sums[0])
    logs, means, squares = sums
    logs.log_()
    depth = kernel.first.depth[rows]
    lift = depth * beta
    # The logarithm of the joint sum is that of weights that peak at 1.
    logs[-1] += lift if lost is None else torch.where(lost, 0.0, lift)
    if kernel.first.active is not None:
        # Moments of a point mass: no spread, nothing to bound.
        keep = kernel.first.active[rows]
        sums *= keep
        depth, lift = depth * keep, lift * keep
    table = kernel.new(SUMMED, sums.shape[2])
    spreads = torch.addcmul(squares, means, means, value=-1.0)
    torch.sub(logs[-1], lift, out=table[0])
    torch.sub(means[-1], depth, out=table[2])
    if kernel.num_views == 2:
        torch.add(logs[0], logs[1], out=table[1])
        torch.add(means[0], means[1], out=table[3])
        torch.sub(spreads[2], spreads[0], out=table[4]).sub_(spreads[1])
    else:
        torch.sum(logs[:-1], 0, out=table[1])
        torch.sum(means[:-1], 0, out=table[3])
        torch.sub(spreads[-1], spreads[:-1].sum(0), out=table[4])
    torch.sub(table[0], table[1], out=per_sample)
    if kernel.counts is not None:
        table *= kernel.counts[rows]
    return add_up(table)
