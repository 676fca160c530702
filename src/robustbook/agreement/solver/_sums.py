"""Sums over classes, samples, chunks and processes, and counts of predictions.

Inside a chunk sums are rounded, by a bounded amount; those of chunks and of processes
are added exactly. For one process a reduction is the identity. In a group it is an
all-gather, so that all processes add the same numbers in the same order and go on with
equal bits. An error on one process is raised on all.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

#: Unit roundoff of float64: every operation is exact up to this relative error.
UNIT_ROUNDOFF: Final = 2.0**-53
#: Samples that are added up in one go.
GROUP: Final = 128

T = TypeVar("T")
Numbers = Sequence[float]
Reduction = Callable[[Iterable[float]], float]
#: The class that each view of a sample predicts.
Votes = tuple[int, ...]


def add_up(table: Tensor) -> Tensor:
    """Sums of rows (c, n): in groups of 128, so that rounding does not grow with n."""
    size = table.shape[1]
    if size <= GROUP:
        return table.sum(1)
    whole = size - size % GROUP
    groups = table[:, :whole].reshape(len(table), -1, GROUP).sum(2)
    return add_up(torch.cat([groups, table[:, whole:]], 1))


def terms(size: int) -> int:
    """How often :func:`add_up` rounds a number of a row, at most."""
    return size if size <= GROUP else GROUP + terms(size // GROUP + GROUP - 1)


def together(parts: Sequence[Tensor], how: Sequence[Reduction]) -> list[float]:
    """Join the numbers of chunks exactly, so that only sums inside a chunk round."""
    if not parts:
        return [0.0 if add is math.fsum else -math.inf for add in how]
    rows = [part.tolist() for part in parts]
    if len(rows) == 1:
        return rows[0]
    columns = zip(*rows, strict=True)
    return [add(column) for add, column in zip(how, columns, strict=True)]


def relative_error(views: int, classes: int, row_terms: int) -> float:
    """Bound on the relative rounding error of a sum over classes and a chunk.

    All sums have terms of one sign. A term x^k exp(beta x) that does not underflow
    has beta |x| <= 745, so its argument, rounded twice, costs 1490 u, the
    exponential and the factors 10 u more; terms that underflow are below 1e-307 and
    are covered by the same figure. Adding K terms in any order costs K u. Samples
    are added in groups of 128, groups in groups and so on, one u a term; chunks are
    added exactly. Up to m + 1 sums over classes meet: one for each view and the
    joint one. Here u = 2^-53.
    """
    sums = (views + 1) * (classes + 1500)
    return UNIT_ROUNDOFF * (sums + row_terms + 100)


def sum_without(rows: Tensor, place: Tensor) -> Tensor:
    """Sums of columns (m, N) without one entry each: differences of sums may cancel."""
    return rows.scatter(0, place, 0.0).sum(0)


class Shards:
    """One process, which has all samples; or, as a :class:`Group`, several."""

    size = 1
    rank = 0

    def gather(self, compute: Callable[[], T]) -> list[T]:
        """Return what `compute` returns on each rank: small objects."""
        return [compute()]

    def reduce(
        self, compute: Callable[[], Numbers], how: Sequence[Reduction] = (math.fsum,)
    ) -> Numbers:
        """Sums (or maxima) over the ranks of the numbers that each computes."""
        return compute()


ALONE: Final = Shards()


#: Errors that keep their kind on the other ranks.
_KINDS: Final = (TypeError, ValueError, OSError, MemoryError, ArithmeticError)


class Group(Shards):
    """The ranks of a group of torch.distributed."""

    def __init__(self, group: dist.ProcessGroup) -> None:
        self.group = group
        self.rank = dist.get_rank(group)
        self.size = dist.get_world_size(group)

    def gather(self, compute: Callable[[], T]) -> list[T]:
        error: Exception | None = None
        sent: tuple[type[Exception] | None, Any]
        try:
            sent = None, compute()
        except Exception as raised:
            kinds = (kind for kind in _KINDS if isinstance(raised, kind))
            error, text = raised, str(raised) or type(raised).__name__
            sent = next(kinds, RuntimeError), text
        answers: list[Any] = [None] * self.size
        try:
            dist.all_gather_object(answers, sent, self.group)
        except RuntimeError as failure:
            raise ConnectionError(
                f"group: expected all {self.size} ranks to answer, got none from one "
                f"or more of them; see why it ended (the group's timeout bounds the "
                f"waiting for one that hangs): {failure}"
            ) from failure
        for rank, (kind, answer) in enumerate(answers):
            if kind is not None:
                raise kind(f"rank {rank}: {answer}") from error
        return [answer for _, answer in answers]

    def reduce(
        self, compute: Callable[[], Numbers], how: Sequence[Reduction] = (math.fsum,)
    ) -> Numbers:
        columns = zip(*self.gather(compute), strict=True)
        return [add(column) for add, column in zip(how, columns, strict=True)]


def shards_of(group: Any) -> Shards:
    """Return the shards of a caller's group: None stands for this process alone."""
    if group is None:
        return ALONE
    if not (dist.is_available() and isinstance(group, dist.ProcessGroup)):
        raise TypeError(
            f"group: expected a group of torch.distributed, such as "
            f"torch.distributed.group.WORLD, or None, got {group!r}"
        )
    if dist.get_rank(group) < 0:
        raise ValueError(
            "group: expected a group that this process is in; call the function on its "
            "members only"
        )
    return Group(group)


def count_votes(
    chunk: Sequence[Tensor], ties: Tensor, depth: Tensor, *, by_class: bool
) -> Counter[Votes]:
    """How often the views of a chunk vote (first argmax) for the same classes.

    `ties` (m, n) counts the best classes of each view; `depth` (n,) is 0 where the
    views have one in common. Without `by_class`, the classes of a sample are numbered
    as views first vote for them.
    """
    if len(chunk) == 2 and not by_class:
        # Without ties, predictions agree exactly if the joint maximum is 0.
        tied = (ties > 1.0).any(0)
        differ = depth > 0.0
        if bool(tied.any()):
            first, second = (view[tied].argmax(1) for view in chunk)
            differ[tied] = first != second
        many = int(differ.sum())
        return Counter({(0, 0): len(differ) - many, (0, 1): many})
    votes = torch.stack([view.argmax(1) for view in chunk], 1)
    if not by_class:
        # The first view that votes for the same class stands for it.
        votes = (votes[:, :, None] == votes[:, None]).int().argmax(2)
    rows, counts = torch.unique(votes, dim=0, return_counts=True)
    numbers = [row if by_class else _numbered(row) for row in rows.tolist()]
    return Counter(dict(zip(map(tuple, numbers), counts.tolist(), strict=True)))


def _numbered(row: list[int]) -> list[int]:
    present = sorted(set(row))
    return [present.index(view) for view in row]


def one_hot_views(
    votes: Counter[Votes], num_classes: int
) -> tuple[list[Tensor], Tensor]:
    """One sample for all that have the same votes, one-hot, and how often it occurs."""
    items = sorted(votes.items())
    classes = torch.tensor([row for row, _ in items]).T
    views = [torch.nn.functional.one_hot(view, num_classes) for view in classes]
    counts = torch.tensor([count for _, count in items], dtype=torch.float64)
    return [view.double() for view in views], counts
