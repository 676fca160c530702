"""Predictions of several views, as patterns of votes.

With a prior a pattern is the classes predicted by each view. Without, classes are alike
and so are views: then it says for each view how many predict what it does.
"""

from collections import Counter
from collections.abc import Sequence

import torch
from torch import Tensor

Pattern = tuple[int, ...]


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
    views = [torch.nn.functional.one_hot(own, num_classes) for own in classes]
    return [view.double() for view in views], counts


def _classes(shared: Sequence[int]) -> list[int]:
    """Classes of views, of which view v shares its own with shared[v]; these fall."""
    classes: list[int] = []
    while len(classes) < len(shared):
        classes += [max(classes, default=-1) + 1] * shared[len(classes)]
    return classes
