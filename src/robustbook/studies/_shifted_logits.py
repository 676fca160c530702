"""Logits of a network on labeled images, and on pairs of images and shifted ones."""

from __future__ import annotations

from functools import partial
from typing import Final

import torch
from torch import Tensor, nn

from robustbook._store.cache import Arrays
from robustbook.attacks import pgd
from robustbook.corruptions import CORRUPTIONS, corrupt
from robustbook.datasets import Dataset
from robustbook.models import logits_of

#: Gaussian noise and PGD by their sizes; corruptions by severity.
Shift = tuple[str, float]
_BATCH: Final = 100


def shifts_of(
    noise: tuple[float, ...], severities: tuple[int, ...], eps: tuple[float, ...]
) -> tuple[Shift, ...]:
    """All shifts of these sizes."""
    corruptions = ((kind, level) for level in severities for kind in CORRUPTIONS)
    return (
        *(("noise", sigma) for sigma in noise),
        *corruptions,
        *(("PGD", bound) for bound in eps),
    )


def shifted_logits(
    model: nn.Module,
    source: Dataset,
    judged: Dataset,
    shifts: tuple[Shift, ...],
    steps: int,
    seed: int,
) -> Arrays:
    """Return logits of "source", "clean" and each shift ("noise 0.2").

    PGD takes `steps` steps away from the clean answers, and knows no labels.
    """
    logits = partial(logits_of, model, batch_size=_BATCH)
    arrays = {"source": logits(source.images), "clean": logits(judged.images)}
    for kind, size in shifts:
        images = _shifted(model, judged.images, kind, size, steps, seed)
        arrays[f"{kind} {size:.3g}"] = logits(images)
    return {name: values.numpy() for name, values in arrays.items()}


def _shifted(
    model: nn.Module, images: Tensor, kind: str, size: float, steps: int, seed: int
) -> Tensor:
    if kind == "PGD":
        attacked = pgd(
            model,
            images,
            eps=size,
            steps=steps,
            seed=seed,
            batch_size=_BATCH,
            progress=False,
        )
        return attacked.adversarial.cpu()
    if kind == "noise":
        draws = torch.Generator().manual_seed(seed)
        return (images + size * torch.randn(images.shape, generator=draws)).clamp(0, 1)
    return corrupt(images, kind, severity=int(size), seed=seed)
