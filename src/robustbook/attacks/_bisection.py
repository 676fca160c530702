"""Shorten perturbations: a bisection between the clean and the attacked image."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from robustbook._checks.arguments import check_count
from robustbook._checks.models import Model
from robustbook.attacks._result import AttackResult, smallest
from robustbook.attacks.engine import DOCS, ArrayLike, Batch, Settings, run_attack


@DOCS.fill
def bisect_result(
    model: Model,
    images: ArrayLike,
    result: AttackResult,
    labels: ArrayLike | None = None,
    *,
    steps: int = 20,
    batch_size: int = 256,
    seed: int = 0,
    progress: bool = True,
    device: str | torch.device | None = None,
) -> AttackResult:
    """Shorten perturbations on the line between the clean and the attacked image.

    Halves, ``steps`` times, the part of the line on which the prediction changes.
    No perturbation gets longer. Attacks overshoot the boundary (FAB on purpose, by
    5 % of a step), and this takes most of it back. The images end so close to the
    boundary that rounding in another batch size can undo the change.

    Parameters
    ----------
    {model} {images}
    result : AttackResult
        What an attack found on these images.
    labels : Tensor or ndarray, shape (N,), optional
        The labels that the attack was given, if any.
    steps : int, default 20
        Halvings.
    {batch_size} {seed} {progress} {device}

    Returns
    -------
    AttackResult
        On the same images, with norms that are at most those of `result`.

    Raises
    ------
    {TypeError}
    ValueError
        If `result` is of other images, a logit is NaN or infinite, or an option is
        out of range.

    References
    ----------
    Chapter 9 of this book.

    Examples
    --------
    >>> from robustbook.models import load_model
    >>> from robustbook.attacks import fgsm
    >>> model, images = load_model("digits-linear"), torch.full((1, 1, 8, 8), 0.5)
    >>> far = fgsm(model, images, eps=0.5)
    >>> near = bisect_result(model, images, far)
    >>> bool(near.norms[0] < far.norms[0])
    True
    """
    check_count("steps", steps)
    if tuple(images.shape) != tuple(result.adversarial.shape):
        raise ValueError(
            f"result: expected one of these images, of shape {tuple(images.shape)}, "
            f"got shape {tuple(result.adversarial.shape)}"
        )

    def perturb(batch: Batch) -> Tensor:
        attacked = result.adversarial[batch.indices.to(result.adversarial.device)]
        return batch.bisect(attacked.to(batch.images), steps=steps)

    settings = Settings(
        result.attack, result.norm, batch_size, seed, progress, device, minimal=True
    )
    shorter = run_attack(perturb, model, images, labels, settings)
    return replace(smallest(result, shorter), attack=result.attack)
