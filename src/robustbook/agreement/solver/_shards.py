"""What processes tell each other when each holds a part of the samples.

Every exchange is an all-gather, so that all processes add the same numbers in the same
order and go on with equal bits. An error of one is an error of all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeVar

import torch
import torch.distributed as dist

T = TypeVar("T")
Numbers = Sequence[float]
Reduction = Callable[[Iterable[float]], float]


class Shards:
    """One process, which has all samples; or, as a :class:`Group`, several."""

    size = 1
    rank = 0

    def gather(self, compute: Callable[[], T]) -> list[T]:
        """What `compute` returns on each rank: small objects."""
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
        told = self._tell((value, _message(error)))
        _raise_first([failure for _, failure in told], error)
        return [value for value, _ in told]

    def reduce(
        self, compute: Callable[[], Numbers], how: Sequence[Reduction] = (math.fsum,)
    ) -> Numbers:
        numbers, error = _attempt(compute)
        row = [float(error is not None), *(numbers or [0.0] * len(how))]
        own = torch.tensor(row, dtype=torch.float64, device=self.device)
        rows = [torch.empty_like(own) for _ in range(self.size)]
        self._together(dist.all_gather, rows, own)
        failed, *columns = zip(*(row.tolist() for row in rows), strict=True)
        if any(failed):
            _raise_first(self._tell(_message(error)), error)
        return [own(column) for own, column in zip(how, columns, strict=True)]

    def _tell(self, thing: Any) -> list[Any]:
        told = [None] * self.size
        self._together(dist.all_gather_object, told, thing)
        return told

    def _together(self, collective: Callable[..., Any], *tensors: Any) -> None:
        try:
            collective(*tensors, group=self.group)
        except RuntimeError as error:
            raise ConnectionError(
                f"group: expected all {self.size} ranks to answer, got none from one "
                f"or more of them; see why it ended (the group's timeout bounds the "
                f"waiting for one that hangs): {error}"
            ) from error


def shards_of(group: Any) -> Shards:
    """The group of a caller: None stands for this process alone."""
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
    told: Sequence[tuple[type[Exception], str] | None], own: Exception | None
) -> None:
    """Raise the error of the first rank that has one."""
    for rank, failure in enumerate(told):
        if failure is not None:
            kind, text = failure
            raise kind(f"rank {rank}: {text}") from own
