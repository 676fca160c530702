"""APGD with three losses, by pyautoattack."""

import warnings
from collections.abc import Sequence
from functools import partial
from types import SimpleNamespace
from typing import Final, Literal, Unpack

import torch
from torch import Tensor

from robustbook._checks.arguments import (
    ArrayLike,
    check_bound,
    check_choice,
    check_count,
)
from robustbook._checks.models import Model
from robustbook.attacks._result import AttackResult
from robustbook.attacks.engine import Batch, Norm, Options, run_attack

#: Each loss, with the number of classes that it needs.
LOSSES: Final = {"ce": 2, "dlr": 3, "targeted": 4}


def apgd(
    model: Model,
    images: ArrayLike,
    labels: ArrayLike | None = None,
    *,
    eps: float,
    loss: Literal["ce", "dlr", "targeted"] = "ce",
    steps: int = 100,
    targets: int = 9,
    norm: Norm = "linf",
    **options: Unpack[Options],
) -> AttackResult:
    """Attack with gradient steps that choose their own size: APGD.

    The cross-entropy ("ce") of very confident models has a gradient of zero in float32:
    it then reports robustness that is not there. The difference of logits ratio ("dlr")
    does not depend on the scale of the logits, so always look at both. "targeted" tries
    one class after the other; it is the slowest and the strongest. Source: Croce and
    Hein, "Reliable evaluation of adversarial robustness with an ensemble of diverse
    parameter-free attacks", ICML 2020; Chapters 10 and 13.

    Parameters
    ----------
    model, images, labels, eps, norm, **options
        As for :func:`pgd`.
    loss : {"ce", "dlr", "targeted"}, default "ce"
        What to maximize. "dlr" needs three classes, "targeted" four.
    steps : int, default 100
        Gradient steps in a run.
    targets : int, default 9
        Number of the likeliest other classes that "targeted" tries; all of them if
        there are fewer.

    Returns
    -------
    AttackResult
        Images within `eps`: where the attack failed, those of the highest loss; where
        the model is wrong already, the clean ones.

    Raises
    ------
    TypeError, ValueError, ModuleNotFoundError
        As :func:`pgd`.

    Warns
    -----
    UserWarning
        If gradients of zero stop the DLR loss.

    Examples
    --------
    >>> from robustbook.models import load_model
    >>> images = torch.full((1, 1, 8, 8), 0.5)
    >>> model = load_model("digits-linear")
    >>> apgd(model, images, eps=0.5, loss="dlr", steps=5).success.tolist()
    [True]
    """
    check_bound("eps", eps, norm=norm)
    check_count("steps", steps)
    check_count("targets", targets)
    check_choice("loss", loss, LOSSES)
    from robustbook.attacks.pyautoattack_runs import run_apgd

    remarks: list[str] = []
    # The library writes to a logger that gradients are zero.
    log = SimpleNamespace(warning=remarks.append)
    run = partial(run_apgd, loss=loss, norm=norm, eps=eps, steps=steps, log=log)

    def perturb(batch: Batch) -> Tensor:
        num_classes = batch.logits.shape[1]
        if num_classes < LOSSES[loss]:
            raise ValueError(
                f"loss: expected at least {LOSSES[loss]} classes for {loss!r}, got "
                f"{num_classes}; use loss='ce'"
            )
        goals: Sequence[Tensor | None] = [None]
        if loss == "targeted":
            goals = batch.ranked_classes(targets)
        best = batch.images.clone()
        highest = torch.full((len(batch),), -torch.inf, device=best.device)
        # Each target is tried on the images that no target before it succeeded on.
        left = batch.rows()
        for number, goal in enumerate(goals):
            part = batch[left]
            target = None if goal is None else goal[left]
            start = part.images + eps * part.random_points(norm, number, surface=True)
            images, fooled, value = run(part, target, start=start)
            better = fooled | (value > highest[left])
            best[left[better]] = images[better]
            highest[left] = torch.maximum(highest[left], value)
            left = left[~fooled]
            if len(left) == 0:
                break
        return best

    result = run_attack(perturb, model, images, labels, f"apgd-{loss}", norm, **options)
    if remarks:
        warnings.warn(
            "model: some images have a gradient of zero, so the attack does not move "
            "them; compare with fmn, fab and loss='ce'",
            UserWarning,
            stacklevel=2,
        )
    return result
