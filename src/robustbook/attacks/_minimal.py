"""Attacks that look for the smallest perturbation: FMN and FAB."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Unpack

from torch import Tensor

from robustbook._checks.arguments import ArrayLike, check_count, check_positive
from robustbook._checks.models import Model
from robustbook.attacks._result import AttackResult
from robustbook.attacks.engine import Batch, Norm, Options, SmallestSoFar, run_attack


def closest(
    run: Callable[[Batch, Tensor | None], Tensor],
    targets: int | None,
    bisections: int,
    norm: Norm,
) -> Callable[[Batch], Tensor]:
    """Attack toward each target, keep the closest image that fools, and bisect."""
    if targets is not None:
        check_count("targets", targets)
    check_count("bisections", bisections, minimum=0)

    def perturb(batch: Batch) -> Tensor:
        goals: Sequence[Tensor | None] = [None]
        if targets is not None:
            goals = batch.ranked_classes(targets)
        smallest, rows = SmallestSoFar(batch, norm), batch.rows()
        for goal in goals:
            smallest.keep(run(batch, goal), rows)
        return batch.bisect(smallest.images, steps=bisections)

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
    norm: Norm = "linf",
    **options: Unpack[Options],
) -> AttackResult:
    """Look for the smallest perturbation by adapting the size of a ball: FMN.

    Source: Pintor et al., "Fast minimum-norm adversarial attacks through adaptive norm
    constraints", NeurIPS 2021; Chapters 10 and 13.

    Parameters
    ----------
    model, images, labels, norm, **options
        As for :func:`pgd`.
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

    Returns
    -------
    AttackResult
        The closest images that fool the model; where there is none, the clean image
        with a norm of ``inf``.

    Raises
    ------
    TypeError, ValueError, ModuleNotFoundError
        As :func:`pgd`.

    Examples
    --------
    The exact margin of a linear model is its smallest gap over classes, divided by
    the 1-norm of the difference of their weights:

    >>> import torch
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
    return run_attack(
        perturb, model, images, labels, "fmn", norm, minimal=True, **options
    )


def fab(
    model: Model,
    images: ArrayLike,
    labels: ArrayLike | None = None,
    *,
    steps: int = 100,
    targets: int | None = None,
    bisections: int = 0,
    norm: Norm = "linf",
    **options: Unpack[Options],
) -> AttackResult:
    """Look for the smallest perturbation by projections on the boundary: FAB.

    The perturbation may have any size. FAB steps 5 % beyond its estimate of the
    boundary; `bisections` take that back. Source: Croce and Hein, "Minimally distorted
    adversarial examples with a fast adaptive boundary attack", ICML 2020; Chapters 10
    and 13.

    Parameters
    ----------
    model, images, labels, norm, **options
        As for :func:`pgd`.
    steps : int, default 100
        Projections.
    targets, bisections : optional
        As for :func:`fmn`.

    Returns
    -------
    AttackResult
        As of :func:`fmn`.

    Raises
    ------
    TypeError, ValueError, ModuleNotFoundError
        As :func:`pgd`.

    Examples
    --------
    >>> import torch
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
    return run_attack(
        perturb, model, images, labels, "fab", norm, minimal=True, **options
    )
