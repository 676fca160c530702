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
from functools import partial
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
#: Predictions of several views. With a prior, a pattern lists the class that each view
#: predicts. Without, classes and views are interchangeable, and a pattern says for each
#: view how many views predict its class.
Pattern = tuple[int, ...]


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


def place_of_largest(rows: Tensor) -> Tensor:
    """Places (1, N) of the largest entries of columns (m, N), where argmax is slow."""
    place = torch.zeros_like(rows[:1], dtype=torch.int64)
    top = rows[0]
    for row in range(1, len(rows)):
        place[0, rows[row] > top] = row
        top = torch.maximum(top, rows[row])
    return place


def sum_without(rows: Tensor, place: Tensor) -> Tensor:
    """Sums of columns (m, N) without one entry each: differences of sums may cancel."""
    return rows.scatter(0, place, 0.0).sum(0)


def _below(values: Tensor, cuts: Sequence[int]) -> list[float]:
    return [float((values < cut).sum()) for cut in cuts]


def median(values: Tensor, shards: Shards) -> float:
    """Upper median of positive numbers over all shards, 0 of none.

    Their bits, as integers, are in the same order: three of them an exchange.
    """
    if shards is ALONE:
        place = len(values) // 2 + 1
        return float(values.kthvalue(place).values) if len(values) else 0.0
    bits, how = values.view(torch.int64), [math.fsum] * 7
    (count,) = shards.reduce(lambda: [float(len(bits))])
    low = 0
    for place in range(60, -1, -3):
        cuts = [low + (digit << place) for digit in range(1, 8)]
        numbers = shards.reduce(partial(_below, bits, cuts), how)
        low += sum(number <= count // 2 for number in numbers) << place
    return float(torch.tensor(low).view(torch.float64)) if count else 0.0


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


class Group(Shards):
    """The ranks of a group of torch.distributed."""

    def __init__(self, group: dist.ProcessGroup) -> None:
        self.group = group
        self.rank = dist.get_rank(group)
        self.size = dist.get_world_size(group)
        # NCCL takes tensors of a GPU only.
        on_cpu = "cpu" in dist.get_backend_config(group)
        self.device = "cpu" if on_cpu else f"cuda:{torch.cuda.current_device()}"

    def gather(self, compute: Callable[[], T]) -> list[T]:
        value, error = _attempt(compute)
        answers = self._exchange((value, _message(error)))
        _raise_first([failure for _, failure in answers], error)
        return [value for value, _ in answers]

    def reduce(
        self, compute: Callable[[], Numbers], how: Sequence[Reduction] = (math.fsum,)
    ) -> Numbers:
        numbers, error = _attempt(compute)
        row = [float(error is not None), *(numbers or [0.0] * len(how))]
        sent = torch.tensor(row, dtype=torch.float64, device=self.device)
        rows = [torch.empty_like(sent) for _ in range(self.size)]
        self._collect(dist.all_gather, rows, sent)
        failed, *columns = zip(*(row.tolist() for row in rows), strict=True)
        if any(failed):
            _raise_first(self._exchange(_message(error)), error)
        return [add(column) for add, column in zip(how, columns, strict=True)]

    def _exchange(self, thing: Any) -> list[Any]:
        answers = [None] * self.size
        self._collect(dist.all_gather_object, answers, thing)
        return answers

    def _collect(self, collective: Callable[..., Any], *tensors: Any) -> None:
        try:
            collective(*tensors, group=self.group)
        except RuntimeError as error:
            raise ConnectionError(
                f"group: expected all {self.size} ranks to answer, got none from one "
                f"or more of them; see why it ended (the group's timeout bounds the "
                f"waiting for one that hangs): {error}"
            ) from error


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


def _attempt(compute: Callable[[], T]) -> tuple[T | None, Exception | None]:
    try:
        return compute(), None
    except Exception as error:
        return None, error


#: Errors that keep their kind on the other ranks.
_KINDS: Final = (TypeError, ValueError, OSError, MemoryError, ArithmeticError)


def _message(error: Exception | None) -> tuple[type[Exception], str] | None:
    if error is None:
        return None
    kind = next((kind for kind in _KINDS if isinstance(error, kind)), RuntimeError)
    return kind, str(error) or type(error).__name__


def _raise_first(
    failures: Sequence[tuple[type[Exception], str] | None], raised: Exception | None
) -> None:
    """Raise the error of the first rank that has one."""
    for rank, failure in enumerate(failures):
        if failure is not None:
            kind, text = failure
            raise kind(f"rank {rank}: {text}") from raised


def count_votes(
    chunk: Sequence[Tensor], ties: Tensor, depth: Tensor, *, by_class: bool
) -> Counter[Pattern]:
    """How often the predictions (first argmax) of a chunk form each pattern.

    `ties` (m, n) counts the best classes of each view; `depth` (n,) is 0 where the
    views have one in common.
    """
    if len(chunk) == 2 and not by_class:
        # Without ties, predictions agree exactly if the joint maximum is 0.
        tied = (ties > 1.0).any(0)
        differ = depth > 0.0
        if bool(tied.any()):
            first, second = (view[tied].argmax(1) for view in chunk)
            differ[tied] = first != second
        many = int(differ.sum())
        return Counter({(2, 2): len(differ) - many, (1, 1): many})
    patterns = torch.stack([view.argmax(1) for view in chunk], 1)
    if not by_class:
        shared = (patterns[:, :, None] == patterns[:, None]).sum(2)
        patterns = shared.sort(1, descending=True).values
    patterns, counts = torch.unique(patterns, dim=0, return_counts=True)
    rows = map(tuple, patterns.tolist())
    return Counter(dict(zip(rows, counts.tolist(), strict=True)))


def share_of_split(votes: Counter[Pattern], *, by_class: bool) -> float:
    """Share of the samples on which not all predictions coincide."""
    united = sum(
        count
        for pattern, count in votes.items()
        if len(set(pattern)) == 1 and (by_class or pattern[0] > 1)
    )
    return (votes.total() - united) / votes.total()


def one_hot_views(
    votes: Counter[Pattern], num_classes: int, *, by_class: bool
) -> tuple[list[Tensor], Tensor]:
    """One sample a pattern, one-hot in every view, and how often it occurs."""
    items = sorted(votes.items())
    counts = torch.tensor([count for _, count in items], dtype=torch.float64)
    patterns = [list(pattern) for pattern, _ in items]
    if not by_class:
        patterns = [_classes(pattern) for pattern in patterns]
    classes = torch.tensor(patterns).T
    views = [torch.nn.functional.one_hot(view, num_classes) for view in classes]
    return [view.double() for view in views], counts


def _classes(shared: Sequence[int]) -> list[int]:
    """Classes of views, of which view v shares its own with shared[v]; these fall."""
    classes: list[int] = []
    while len(classes) < len(shared):
        classes += [max(classes, default=-1) + 1] * shared[len(classes)]
    return classes
