"""Minimal perturbations over several targets, shared by FMN and FAB."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from robustbook._checks.arguments import check_count
from robustbook.attacks._bisection import bisect
from robustbook.attacks._engine import Batch
from robustbook.attacks._result import Norm, distances


def check_shared(targets: int | None, bisections: int) -> None:
    """Check the two options that both attacks have."""
    if targets is not None:
        check_count("targets", targets)
    check_count("bisections", bisections, minimum=0)


def closest(
    run: Callable[[Batch, int | None], Tensor],
    targets: int | None,
    bisections: int,
    norm: Norm,
) -> Callable[[Batch], Tensor]:
    """Run for each target, keep the closest image that fools, and bisect."""

    def perturb(batch: Batch) -> Tensor:
        ranks: list[int | None] = [None]
        if targets is not None:
            ranks = list(range(1, min(targets, batch.logits.shape[1] - 1) + 1))
        best = batch.images.clone()
        least = torch.full((len(batch),), torch.inf, device=best.device).double()
        for rank in ranks:
            found = run(batch, rank)
            size = distances(batch.images, found, norm)
            better = batch.fools(found) & (size < least)
            best[better], least[better] = found[better], size[better]
        return bisect(batch, best, steps=bisections)

    return perturb
