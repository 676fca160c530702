"""The first pass over the data: maxima, ties, votes, and what J is at beta = 0."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from robustbook.agreement.solver._columns import power_sums
from robustbook.agreement.solver._streams import EvenRows
from robustbook.agreement.solver._sums import place_of_largest, sum_without
from robustbook.agreement.solver._votes import Pattern, count_votes

if TYPE_CHECKING:
    from robustbook.agreement.solver._kernel import Kernel


@dataclass(eq=False)
class FirstPass:
    """What the samples of one process say before any inverse temperature.

    ``tops`` and ``ranges`` (m, N) are the largest logit and the distance of the
    smallest from it; ``depth`` (N,) is how far the largest sum of all shifted logits is
    below 0; ``limit`` and ``concave_limit`` are J and D at infinity. ``sums``, shape
    (3, m + 1, N), has the sums over classes of 1, x and x^2 for each view and for all
    together. ``active`` says which samples are not idle, and is None if none is.
    """

    slices: list[slice]
    votes: Counter[Pattern]
    tops: Tensor
    ranges: Tensor
    depth: Tensor
    limit: Tensor
    concave_limit: Tensor
    sums: Tensor
    active: Tensor | None
    #: Rows that are spread evenly over all samples, of each view.
    some: list[Tensor]

    @cached_property
    def widest(self) -> Tensor:
        """Of each sample the place of the view with the largest range, (1, N)."""
        return place_of_largest(self.ranges)

    @cached_property
    def narrow(self) -> Tensor:
        """Of each sample the sum of the ranges of all views but the widest."""
        return sum_without(self.ranges, self.widest)

    @property
    def everything_idle(self) -> bool:
        """Whether no sample says anything."""
        active = self.active
        return not len(self.depth) or (active is not None and not bool(active.any()))

    @property
    def longest(self) -> int:
        """Samples of the largest chunk."""
        return max((rows.stop - rows.start for rows in self.slices), default=1)

    @property
    def distances(self) -> Tensor:
        """Sums of all distances from the largest logit, where they are not 0."""
        sums = -self.sums[1, :-1].sum(0)
        return sums[sums > 0.0]


def first_pass(kernel: Kernel, some: int) -> FirstPass:
    """Look at all samples once, and keep about `some` of them."""
    views, slices, votes = kernel.num_views, [], Counter[Pattern]()
    height = 3 * views + 2 + 3 * (views + 1)
    parts = [kernel.new(height, 0)]
    kept = EvenRows([kernel.new(0, kernel.num_classes)] * views, some)
    for rows, chunk in kernel.chunks():
        slices.append(rows)
        part = kernel.new(height, rows.stop - rows.start)
        votes += _look(kernel, rows, chunk, part)
        parts.append(part)
        kept.add(rows.start, chunk)
    tops, ranges, ties, others = torch.split(
        torch.cat(parts, 1), [views, views, views, height - 3 * views]
    )
    # A sample with constant logits in all views but one contributes exactly 0 at every
    # beta when the prior is uniform: its convex parts are equal. Leave it out.
    idle = (ties == kernel.num_classes).sum(0) >= views - 1
    active = ~idle if kernel.uniform and bool(idle.any()) else None
    concave_limit, ranges = ties.prod(0).log_(), ranges.clone()
    if active is not None:
        ranges *= active
        concave_limit *= active
    limit = others[1].log() - concave_limit
    return FirstPass(
        slices=slices,
        votes=votes,
        tops=tops.clone(),
        ranges=ranges,
        depth=others[0].clone(),
        limit=limit if active is None else torch.where(active, limit, 0.0),
        concave_limit=concave_limit,
        sums=others[2:].reshape(3, views + 1, -1).clone(),
        active=active,
        some=kept.rows,
    )


def _look(
    kernel: Kernel, rows: slice, chunk: Sequence[Tensor], part: Tensor
) -> Counter[Pattern]:
    """Columns of one chunk: tops, ranges, ties, depth, limit, sums at beta = 0."""
    views, samples = kernel.num_views, rows.stop - rows.start
    tops, ranges, ties = part[: 3 * views].view(3, views, -1)
    depth, limit = part[3 * views : 3 * views + 2]
    sums = part[3 * views + 2 :].view(3, views + 1, -1)
    torch.stack([view.amax(1).double() for view in chunk], out=tops)
    x = kernel.room(0, samples) if kernel.kept is None else kernel.kept[:, rows]
    kernel.shift(chunk, tops, x)
    torch.neg(x[:-1].amin(2), out=ranges)
    # Only entries that equal the maximum exactly are 0 after the shift.
    tied = torch.eq(x, 0.0, out=kernel.room(1, samples))
    torch.prod(tied[:-1], 0, out=tied[-1])
    joint = x[-1]
    if kernel.labels is not None:
        joint[kernel.labels[rows] == 0.0] = -torch.inf
    torch.neg(joint.amax(1), out=depth)
    kernel.lift(joint, depth)
    kernel.weigh(tied[-1], rows)
    counted = tied @ kernel.ones
    ties.copy_(counted[:-1])
    weight = tied.fill_(1.0)
    kernel.weigh(weight[-1], rows)
    power_sums(kernel, x, weight, sums)
    limit.copy_(counted[-1])
    if kernel.uniform:
        limit.mul_(kernel.weights[0])
    if views == 1:
        return Counter()
    return count_votes(chunk, ties, depth, by_class=kernel.prior is not None)
