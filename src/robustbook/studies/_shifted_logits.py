"""Logits of a network on labeled images, and on pairs of images and shifted ones."""

from __future__ import annotations

from functools import partial
from typing import Any, Final, Literal

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
            attack = partial(
                attack_in_turn, model, images, arrays["clean"].argmax(1), eps=size,
                targets=_TARGETS, seed=seed,
                batch_size=min(_BATCH, max(1, _ATTACKED // images[0].numel())),
            )  # fmt: skip
            half = attack(steps=steps // 2)
            arrays[f"{name}{HALF}"] = logits(half)
            images = attack(before=half, steps=steps)
        elif kind == "noise":
            draws = torch.Generator().manual_seed(seed)
            noise = torch.randn(images.shape, generator=draws)
            images = (images + size * noise).clamp(0, 1)
        else:
            images = corrupt(images, kind, severity=int(size), seed=seed)
        arrays[name] = logits(images)
    return {name: values.numpy() for name, values in arrays.items()}


def attack_in_turn(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    *,
    before: Tensor | None = None,
    **options: Any,
) -> Tensor:
    """Attack by APGD on the cross-entropy, and then targeted what still has its label.

    Where an attack `before` has left images, those that it has moved stay as they are.
    Options are those of :func:`robustbook.attacks.apgd`.
    """
    attacked = (images if before is None else before).clone()
    losses: tuple[Literal["ce", "targeted"], ...] = ("ce", "targeted")
    for loss in losses:
        answers = logits_of(model, attacked, batch_size=_BATCH).argmax(1)
        (left,) = torch.nonzero(answers == labels, as_tuple=True)
        if len(left):
            result = apgd(
                model, images[left], labels[left], loss=loss, progress=False, **options
            )
            attacked[left] = result.adversarial.cpu()
    return attacked
