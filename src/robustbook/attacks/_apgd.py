"""APGD with three losses, by pyautoattack."""

from functools import partial
from typing import Final, Literal

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
from robustbook.attacks.engine import Batch, Norm, Settings, run_attack

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
    batch_size: int = 256,
    seed: int = 0,
    progress: bool = True,
    device: str | torch.device | None = None,
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
    model : callable
        Returns logits (n, K) of images (n, ...) in [0, 1].
    images : Tensor or array, shape (N, ...)
        Images in [0, 1], float32 or float64 as the model's parameters.
    labels : Tensor or array, shape (N,), optional
        True classes, integers from 0 to K - 1; the model's predictions by default.
    eps : float
        Largest size of the perturbation, in [0, 1] pixel units, such as 8/255.
    loss : {"ce", "dlr", "targeted"}, default "ce"
        What to maximize. "dlr" needs three classes, "targeted" four.
    steps : int, default 100
        Gradient steps in a run.
    targets : int, default 9
        Number of the likeliest other classes that "targeted" tries; all of them if
        there are fewer.
    seed : int, default 0
        Seed of the random starts; each image has its own.
    norm, batch_size, progress, device : optional
        As for :func:`pgd`.

    Returns
    -------
    AttackResult
        Images within `eps`: where the attack failed, those of the highest loss; where
        the model is wrong already, the clean ones.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described, or a logit is NaN or infinite.
    ModuleNotFoundError
        If pyautoattack is not installed: ``robustbook[attacks]`` has it.

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
    from robustbook.attacks.pyautoattack_runs import ZeroGradients, run_apgd

    log = ZeroGradients()
    run = partial(run_apgd, loss=loss, norm=norm, eps=eps, steps=steps, log=log)

    def perturb(batch: Batch) -> Tensor:
        num_classes = batch.logits.shape[1]
        if num_classes < LOSSES[loss]:
            raise ValueError(
                f"loss: expected at least {LOSSES[loss]} classes for {loss!r}, got "
                f"{num_classes}; use loss='ce'"
            )
        goals: list[Tensor | None] = [None]
        if loss == "targeted":
            goals = [*batch.ranked_classes(min(targets, num_classes - 1))]
        best = batch.images.clone()
        highest = torch.full((len(batch),), -torch.inf, device=best.device)
        # Each target is tried on the images that no target before it succeeded on.
        left = torch.arange(len(batch), device=best.device)
        for number, goal in enumerate(goals):
            part = batch[left]
            target = None if goal is None else goal[left]
            direction = part.random_points(norm, number, surface=True)
            images, fooled, value = run(
                part, target, start=part.images + eps * direction
            )
            better = fooled | (value > highest[left])
            best[left[better]] = images[better]
            highest[left] = torch.maximum(highest[left], value)
            left = left[~fooled]
            if len(left) == 0:
                break
        return best

    settings = Settings(f"apgd-{loss}", norm, batch_size, seed, progress, device)
    result = run_attack(perturb, model, images, labels, settings)
    log.report()
    return result
