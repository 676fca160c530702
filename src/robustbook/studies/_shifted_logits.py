"""Logits of a network on labeled images, and on pairs of images and shifted ones."""

from __future__ import annotations

from functools import partial
from typing import Final, Literal

import torch
from torch import Tensor, nn

from robustbook._store.cache import Arrays
from robustbook.attacks import apgd
from robustbook.corruptions import CORRUPTIONS, corrupt
from robustbook.datasets import Dataset
from robustbook.models import logits_of

#: Gaussian noise and attacks by their sizes; corruptions by severity.
Shift = tuple[str, float]
_BATCH: Final = 100
#: The most numbers that are attacked at once: the gradients of EfficientNet at a
#: hundred pictures of ImageNet would take 18 GB.
_ATTACKED: Final = 25 * 224 * 224 * 3
#: The likeliest other classes that the targeted part of an attack tries.
_TARGETS: Final = 3
#: Ends the names of logits after half of the steps of an attack.
HALF: Final = ", half"


def shifts_of(
    noise: tuple[float, ...], severities: tuple[int, ...], eps: tuple[float, ...]
) -> tuple[Shift, ...]:
    """All shifts of these sizes."""
    corruptions = ((kind, level) for level in severities for kind in CORRUPTIONS)
    return (
        *(("noise", sigma) for sigma in noise),
        *corruptions,
        *(("APGD", bound) for bound in eps),
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

    An attack moves answers away from the clean ones, and knows no labels: APGD on the
    cross-entropy, then toward one class after the other, with half of the `steps`, and
    then with all of them on the images that keep their answer. "APGD 0.1, half" are the
    logits after the half.
    """
    logits = partial(logits_of, model, batch_size=_BATCH)
    arrays = {"source": logits(source.images), "clean": logits(judged.images)}
    for kind, size in shifts:
        name = f"{kind} {size:.3g}"
        images = judged.images
        if kind == "APGD":
            images = _attacked(model, images, images, size, steps // 2, seed)
            arrays[f"{name}{HALF}"] = logits(images)
            images = _attacked(model, judged.images, images, size, steps, seed)
        elif kind == "noise":
            draws = torch.Generator().manual_seed(seed)
            noise = torch.randn(images.shape, generator=draws)
            images = (images + size * noise).clamp(0, 1)
        else:
            images = corrupt(images, kind, severity=int(size), seed=seed)
        arrays[name] = logits(images)
    return {name: values.numpy() for name, values in arrays.items()}


def _attacked(
    model: nn.Module, clean: Tensor, before: Tensor, eps: float, steps: int, seed: int
) -> Tensor:
    """Attack the clean images that have kept their answer in an attack `before`."""
    images = before.clone()
    answers = logits_of(model, clean, batch_size=_BATCH).argmax(1)
    losses: tuple[Literal["ce", "targeted"], ...] = ("ce", "targeted")
    for loss in losses:
        moved = logits_of(model, images, batch_size=_BATCH).argmax(1)
        (left,) = torch.nonzero(moved == answers, as_tuple=True)
        if len(left):
            attack = apgd(
                model,
                clean[left],
                answers[left],
                eps=eps,
                loss=loss,
                steps=steps,
                targets=_TARGETS,
                seed=seed,
                batch_size=min(_BATCH, max(1, _ATTACKED // clean[0].numel())),
                progress=False,
            )
            images[left] = attack.adversarial.cpu()
    return images
