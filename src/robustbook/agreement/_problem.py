"""From what callers pass, each on its process, to one kernel."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from robustbook._checks.arguments import check_prior
from robustbook.agreement._kernel import Kernel, check_weights
from robustbook.agreement._shards import Shards, shards_of
from robustbook.agreement._streams import InMemory, Source, open_views


def open_kernel(
    *views: Any,
    prior: Any = None,
    group: Any = None,
    settings: Callable[[], Any] = lambda: None,
) -> Kernel:
    """The kernel of two or more arrays, or of their shards on the ranks of a group.

    `settings` checks and returns what else has to be the same on all ranks. Whatever is
    wrong on one of them is an error on all.
    """
    shards = shards_of(group)
    sources: list[Source] = []

    def look() -> tuple[tuple[int, int] | None, Any]:
        own = settings()
        source = open_views(*views, empty=shards.size > 1)
        sources.append(source)
        # A rank without samples need not know the number of classes, nor of views.
        some = source.num_samples != 0 and source.num_classes
        return (source.num_views, source.num_classes) if some else None, own

    shapes, others = zip(*shards.gather(look), strict=True)
    _check_same("settings", "the same tol, betas or other settings", others)
    shape = next((shape for shape in shapes if shape), None)
    if shape is None:
        raise ValueError("logits: expected at least one sample, got none on any rank")
    for part, name, what in ((0, "views", "views"), (1, "logits", "classes")):
        told = [(own or shape)[part] for own in shapes]
        _check_same(name, f"the same number of {what}", told)
    (source,) = sources
    if shapes[shards.rank] is None:
        nothing = torch.empty((0, shape[1]), device=source.device)
        source = InMemory((nothing,) * shape[0])
    weights = _common_prior(prior, source, shards)
    return Kernel(source=source, prior=weights, shards=shards)


def _common_prior(prior: Any, source: Source, shards: Shards) -> Tensor | None:
    checked: list[Tensor | None] = []

    def look() -> list[float] | None:
        weights = check_prior(prior, source.num_classes, source.device)
        check_weights(source.num_views, source.num_classes, weights)
        checked.append(weights)
        return None if weights is None else weights.tolist()

    _check_same("prior", "the same prior", shards.gather(look))
    return checked[0]


def _check_same(name: str, expected: str, told: Sequence[Any]) -> None:
    """Refuse ranks that differ, by the first one that does."""
    for rank, value in enumerate(told):
        if value != told[0]:
            raise ValueError(
                f"{name}: expected {expected} on every rank, got {told[0]} on rank 0 "
                f"and {value} on rank {rank}"
            )
