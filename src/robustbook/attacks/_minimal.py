"""Attacks that look for the smallest perturbation: FMN and FAB."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from robustbook._checks.arguments import ArrayLike, check_count, check_positive
from robustbook._checks.models import Model
from robustbook.attacks import engine
from robustbook.attacks._result import AttackResult


def closest(
    run: Callable[[engine.Batch, Tensor | None], Tensor],
    targets: int | None,
    bisections: int,
    norm: engine.Norm,
) -> Callable[[engine.Batch], Tensor]:
    """Attack toward each target, keep the closest image that fools, and bisect."""
    if targets is not None:
        check_count("targets", targets)
    check_count("bisections", bisections, minimum=0)

    def perturb(batch: engine.Batch) -> Tensor:
        goals: list[Tensor | None] = [None]
        if targets is not None:
            others = batch.logits.shape[1] - 1
            goals = [*batch.ranked_classes(min(targets, others))]
        best = batch.images.clone()
        least = torch.full((len(batch),), torch.inf, device=best.device).double()
        for goal in goals:
            images = run(batch, goal)
            size = engine.distances(batch.images, images, norm)
            better = batch.fools(images) & (size < least)
            best[better], least[better] = images[better], size[better]
        return batch.bisect(best, steps=bisections)

    return perturb


def fmn(
    model: Model,
    images: ArrayLike,
    labels: ArrayLike | None = None,
    *,
    steps: int = 100,
    step_size: float = 1.0,
    targets: int | None = None,
    bisections: int = 0,
    norm: engine.Norm = "linf",
    batch_size: int = 256,
    seed: int = 0,
    progress: bool = True,
    device: str | torch.device | None = None,
) -> AttackResult:
    """Look for the smallest perturbation by adapting the size of a ball: FMN.

    Source: Pintor et al., "Fast minimum-norm adversarial attacks through adaptive norm
    constraints", NeurIPS 2021; Chapters 10 and 13.

    Parameters
    ----------
    model : callable
        Returns logits (n, K) of images (n, ...) in [0, 1].
    images : Tensor or array, shape (N, ...)
        Images in [0, 1], float32 or float64 as the model's parameters.
    labels : Tensor or array, shape (N,), optional
        True classes, integers from 0 to K - 1; the model's predictions by default.
    steps : int, default 100
        Gradient steps.
    step_size : float, default 1.0
        First step size α, the L2 length of a step; it decreases to a hundredth of it.
        With 10, the attack gets closer on some networks.
    targets : int, optional
        Go for this many of the likeliest other classes, one after the other, and keep
        the smallest perturbation. Untargeted by default.
    bisections : int, default 0
        Halvings of the way back to the clean image, after the attack.
    seed : int, default 0
        Seed for models that draw random numbers; the search itself draws none.
    norm, batch_size, progress, device : optional
        As for :func:`pgd`.

    Returns
    -------
    AttackResult
        The closest images that fool the model; where there is none, the clean image
        with a norm of ``inf``.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described, or a logit is NaN or infinite.
    ModuleNotFoundError
        If foolbox is not installed: ``robustbook[attacks]`` has it.

    Examples
    --------
    The exact margin of a linear model is its smallest gap over classes, divided by
    the 1-norm of the difference of their weights:

    >>> weights = torch.tensor([[1.0, 0.0], [0.0, 3.0]])
    >>> result = fmn(lambda x: x @ weights.T, torch.tensor([[0.9, 0.1]]))
    >>> round(float(result.norms[0]), 3)  # (0.9 - 0.3) / (1 + 3)
    0.15
    """
    check_count("steps", steps)
    check_positive("step_size", step_size)
    from robustbook.attacks.foolbox_runs import run_fmn

    run = partial(run_fmn, norm=norm, steps=steps, step_size=step_size)
    perturb = closest(run, targets, bisections, norm)
    settings = engine.Settings(
        "fmn", norm, batch_size, seed, progress, device, minimal=True
    )
    return engine.run_attack(perturb, model, images, labels, settings)


def fab(
    model: Model,
    images: ArrayLike,
    labels: ArrayLike | None = None,
    *,
    steps: int = 100,
    targets: int | None = None,
    bisections: int = 0,
    norm: engine.Norm = "linf",
    batch_size: int = 256,
    seed: int = 0,
    progress: bool = True,
    device: str | torch.device | None = None,
) -> AttackResult:
    """Look for the smallest perturbation by projections on the boundary: FAB.

    The perturbation may have any size. FAB steps 5 % beyond its estimate of the
    boundary; `bisections` take that back. Source: Croce and Hein, "Minimally distorted
    adversarial examples with a fast adaptive boundary attack", ICML 2020; Chapters 10
    and 13.

    Parameters
    ----------
    model, images, labels
        As for :func:`fmn`.
    steps : int, default 100
        Projections.
    targets, bisections, norm, batch_size, seed, progress, device : optional
        As for :func:`fmn`.

    Returns
    -------
    AttackResult
        The closest images that fool the model; where there is none, the clean image
        with a norm of ``inf``.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described, or a logit is NaN or infinite.
    ModuleNotFoundError
        If pyautoattack is not installed: ``robustbook[attacks]`` has it.

    Examples
    --------
    >>> weights = torch.tensor([[1.0, 0.0], [0.0, 3.0]])
    >>> image = torch.tensor([[0.9, 0.1]])
    >>> result = fab(lambda x: x @ weights.T, image, steps=10, bisections=20)
    >>> round(float(result.norms[0]), 3)  # (0.9 - 0.3) / (1 + 3)
    0.15
    """
    check_count("steps", steps)
    from robustbook.attacks.pyautoattack_runs import run_fab

    run = partial(run_fab, norm=norm, steps=steps)
    perturb = closest(run, targets, bisections, norm)
    settings = engine.Settings(
        "fab", norm, batch_size, seed, progress, device, minimal=True
    )
    return engine.run_attack(perturb, model, images, labels, settings)
