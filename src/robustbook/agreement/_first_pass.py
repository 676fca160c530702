"""The first pass over the data: maxima, ties, votes, scales; no exponentials."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from robustbook.agreement._votes import Pattern, count_votes


@dataclass(eq=False)
class FirstPass:
    """What the samples of one process tell before any inverse temperature."""

    slices: list[slice]
    votes: Counter[Pattern]
    #: Largest logit and distance of the smallest from it (m, N), 0 for idle samples.
    tops: Tensor
    ranges: Tensor
    #: How far the largest sum of all shifted logits is below 0, a sample.
    depth: Tensor
    #: Sums of all shifted logits, where they are not 0, with the other sign.
    distances: Tensor
    #: J and D at infinity, a sample.
    limit: Tensor
    concave_limit: Tensor
    #: Samples that are not idle; None if none is.
    active: Tensor | None
    #: Some of the samples, spread evenly over all of them.
    some: list[Tensor]

    @property
    def size(self) -> int:
        return len(self.depth)

    @property
    def all_idle(self) -> bool:
        return not self.size or (self.active is not None and not self.active.any())


def first_pass(
    chunks: Iterable[tuple[slice, Sequence[Tensor]]],
    buffers: Tensor,
    weights: Tensor,
    *,
    views: int,
    shifted: bool,
    uniform: bool,
    by_class: bool,
    some: int,
) -> FirstPass:
    """Look at all samples once, and keep about `some` of them."""
    ones, classes = torch.ones_like(weights), len(weights)
    empty = weights.new_empty(views, 0)
    slices, tops, ranges, ties = [], [empty], [empty], [empty]
    columns = [weights.new_empty(3, 0)]
    votes: Counter[Pattern] = Counter()
    kept = EvenRows([weights.new_empty(0, classes)] * views, some)
    for rows, chunk in chunks:
        slices.append(rows)
        size = rows.stop - rows.start
        joint, x, tied, all_tied, _ = buffers[:, :size]
        top, reach, own_ties = weights.new_empty(3, views, size)
        column = weights.new_empty(3, size)
        for place, view in enumerate(chunk):
            first = view
            if not shifted:
                top[place] = view.amax(1)
                first = x if place else joint
                first.copy_(view).sub_(top[place, :, None])
            if place == 0:
                start = first
            else:
                torch.add(start if place == 1 else joint, first, out=joint)
            torch.neg(first.amin(1), out=reach[place])
            # Only entries that equal the maximum exactly are 0 after the shift.
            torch.eq(first, 0.0, out=tied if place else all_tied)
            torch.mv(tied if place else all_tied, ones, out=own_ties[place])
            if place:
                all_tied.mul_(tied)
        depth, joint_limit, spread = column
        torch.neg(joint.amax(1), out=depth)
        torch.mv(all_tied, weights, out=joint_limit)
        torch.mv(joint, ones, out=spread)
        votes += count_votes(chunk, own_ties, depth, by_class=by_class)
        for parts, part in (
            (tops, top), (ranges, reach), (ties, own_ties), (columns, column)
        ):  # fmt: skip
            parts.append(part)
        kept.add(rows.start, chunk)
    depth, joint_limit, spread = torch.cat(columns, 1)
    all_ties, reaches = torch.cat(ties, 1), torch.cat(ranges, 1)
    # A sample with constant logits in all views but one contributes exactly 0 at every
    # beta when the prior is uniform: its convex parts are equal. Leave it out.
    idle = (all_ties == classes).sum(0) >= views - 1
    active = ~idle if uniform and bool(idle.any()) else None
    concave_limit = all_ties.prod(0).log_()
    if active is not None:
        reaches *= active
        concave_limit *= active
    limit = joint_limit.log_() - concave_limit
    if active is not None:
        limit = torch.where(active, limit, 0.0)
    return FirstPass(
        slices=slices,
        votes=votes,
        tops=torch.cat(tops, 1),
        ranges=reaches,
        depth=depth.clone(),
        distances=spread[spread < 0.0].neg_(),
        limit=limit,
        concave_limit=concave_limit,
        active=active,
        some=kept.rows,
    )


class EvenRows:
    """Every s-th row of chunks that come one by one, where s grows with their number.

    At most twice as many rows are kept as asked for.
    """

    def __init__(self, empty: list[Tensor], most: int) -> None:
        self._parts = [empty]
        self._most = most
        self._count, self._step = 0, 1

    @property
    def rows(self) -> list[Tensor]:
        """The rows so far, one tensor for each view."""
        return [torch.cat(views) for views in zip(*self._parts, strict=True)]

    def add(self, start: int, chunk: Sequence[Tensor]) -> None:
        """Look at the next rows, of which the first has the number `start`."""
        new = slice(-start % self._step, None, self._step)
        if not self._most or new.start >= len(chunk[0]):
            return
        self._parts.append([view[new].double() for view in chunk])
        self._count += len(self._parts[-1][0])
        while self._count > 2 * self._most:
            self._step *= 2
            self._parts = [[view[::2].clone() for view in self.rows]]
            self._count = len(self._parts[0][0])
