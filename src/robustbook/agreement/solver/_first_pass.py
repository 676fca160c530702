"""The first pass over the data: maxima, ties, votes, and what J is at beta = 0."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from robustbook.agreement.solver._columns import power_sums
from robustbook.agreement.solver._streams import EvenRows
from robustbook.agreement.solver._votes import Pattern, count_votes

if TYPE_CHECKING:
    from robustbook.agreement.solver._kernel import Kernel


@dataclass(eq=False)
class FirstPass:
    """What the samples of one process say before any inverse temperature.

    ``tops`` (m, N) are the largest logits; ``depth`` (N,) is how far the largest sum of
    all shifted logits is below 0; ``limit`` and ``concave_limit`` are J and D at
    infinity. ``sums``, shape (3, m + 1, N), has the sums over classes of 1, x and x^2
    for each view and for all together. ``active`` says which samples are not idle, and
    is None if none is.
    """

    slices: list[slice]
    votes: Counter[Pattern]
    tops: Tensor
    depth: Tensor
    limit: Tensor
    concave_limit: Tensor
    sums: Tensor
    active: Tensor | None
    #: Rows that are spread evenly over all samples, of each view.
    some: list[Tensor]

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
    shapes = (views,), (views,), (), (), (3, views + 1)
    size = kernel.source.num_samples
    whole = [kernel.new(*shape, size or 0) for shape in shapes]
    parts = [whole]
    kept = EvenRows([kernel.new(0, kernel.num_classes)] * views, some)
    for rows, chunk in kernel.chunks():
        slices.append(rows)
        if size is None:
            parts.append([kernel.new(*one, rows.stop - rows.start) for one in shapes])
            part = parts[-1]
        else:
            part = [column[..., rows] for column in whole]
        votes += _look(kernel, rows, chunk, part)
        kept.add(rows.start, chunk)
    if size is None:
        whole = [torch.cat(columns, -1) for columns in zip(*parts, strict=True)]
    tops, ties, depth, limit, sums = whole
    # A sample with constant logits in all views but one contributes exactly 0 at every
    # beta when the prior is uniform: its convex parts are equal. Leave it out.
    idle = (ties == kernel.num_classes).sum(0) >= views - 1
    active = ~idle if kernel.uniform and bool(idle.any()) else None
    concave_limit = ties.prod(0).log_()
    if active is not None:
        concave_limit *= active
    limit = limit.log() - concave_limit
    return FirstPass(
        slices=slices,
        votes=votes,
        tops=tops,
        depth=depth,
        limit=limit if active is None else torch.where(active, limit, 0.0),
        concave_limit=concave_limit,
        sums=sums,
        active=active,
        some=kept.rows,
    )


def _look(
    kernel: Kernel, rows: slice, chunk: Sequence[Tensor], part: Sequence[Tensor]
) -> Counter[Pattern]:
    """Columns of one chunk: tops, ranges, ties, depth, limit, sums at beta = 0."""
    views, samples = kernel.num_views, rows.stop - rows.start
    tops, ties, depth, limit, sums = part
    for top, view in zip(tops, chunk, strict=True):
        top.copy_(view.amax(1))
    x = kernel.room(0, samples) if kernel.kept is None else kernel.kept[:, rows]
    kernel.shift(chunk, tops, x)
    # Only entries that equal the maximum exactly are 0 after the shift, and the sum of
    # all views where all are.
    tied = torch.eq(x, 0.0, out=kernel.room(1, samples))
    joint = x[-1]
    if kernel.labels is not None:
        joint[kernel.labels[rows] == 0.0] = -torch.inf
    depth.copy_(joint.amax(1).neg_())
    kernel.lift(joint, depth)
    kernel.weigh(tied[-1], rows)
    counted = tied @ kernel.ones
    ties.copy_(counted[:-1])
    limit.copy_(counted[-1])
    power_sums(kernel, x, _weights_at_zero(kernel, rows, tied), sums)
    if kernel.uniform:
        limit.mul_(kernel.weights[0])
    if views == 1:
        return Counter()
    return count_votes(chunk, ties, depth, by_class=kernel.prior is not None)


def _weights_at_zero(kernel: Kernel, rows: slice, room: Tensor) -> Tensor | None:
    """Weights of the classes at beta = 0; None where all are 1."""
    if kernel.uniform:
        return None
    kernel.weigh(room.fill_(1.0)[-1], rows)
    return room
