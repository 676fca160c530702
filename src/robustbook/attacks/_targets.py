"""Minimal perturbations over several targets, shared by FMN and FAB."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from robustbook._checks.arguments import check_count
from robustbook.attacks.engine import Batch, Norm, distances


def closest(
    run: Callable[[Batch, Tensor | None], Tensor],
    targets: int | None,
    bisections: int,
    norm: Norm,
) -> Callable[[Batch], Tensor]:
    """Run for each target, keep the closest image that fools, and bisect."""
    if targets is not None:
        check_count("targets", targets)
    check_count("bisections", bisections, minimum=0)

    def perturb(batch: Batch) -> Tensor:
        goals: list[Tensor | None] = [None]
        if targets is not None:
            others = batch.logits.shape[1] - 1
            goals = [*batch.ranked_classes(min(targets, others))]
        best = batch.images.clone()
        least = torch.full((len(batch),), torch.inf, device=best.device).double()
        for goal in goals:
            images = run(batch, goal)
            size = distances(batch.images, images, norm)
            better = batch.fools(images) & (size < least)
            best[better], least[better] = images[better], size[better]
        return batch.bisect(best, steps=bisections)

    return perturb
