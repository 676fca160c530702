"""FGSM and PGD: steps along the gradient of the cross-entropy, by foolbox."""

from typing import Unpack

import torch
from torch import Tensor

from robustbook import _defaults as defaults
from robustbook._checks.arguments import ArrayLike, check_bound, check_count
from robustbook._checks.models import Model
from robustbook.attacks._result import AttackResult
from robustbook.attacks.engine import Batch, Norm, Options, run_attack


def fgsm(
    model: Model,
    images: ArrayLike,
    labels: ArrayLike | None = None,
    *,
    eps: float,
    norm: Norm = "linf",
    skip_errors: bool = True,
    **options: Unpack[Options],
) -> AttackResult:
    """Attack with one step along the gradient: FGSM.

    Source: Goodfellow, Shlens and Szegedy, "Explaining and harnessing adversarial
    examples", ICLR 2015; Chapter 10.

    Parameters
    ----------
    model, images, labels, eps, norm, skip_errors, **options
        As for :func:`pgd`.

    Returns
    -------
    AttackResult
        The images after the step, also where it failed.

    Raises
    ------
    TypeError, ValueError, ModuleNotFoundError
        As :func:`pgd`.

    Examples
    --------
    >>> from robustbook.models import load_model
    >>> images = torch.full((1, 1, 8, 8), 0.5)
    >>> result = fgsm(load_model("digits-linear"), images, eps=0.5)
    >>> result.success.tolist(), result.norms.tolist()
    ([True], [0.5])
    """
    check_bound("eps", eps, norm=norm)
    from robustbook.attacks.foolbox_runs import run_pgd

    def perturb(batch: Batch) -> Tensor:
        start = torch.zeros_like(batch.images)
        return run_pgd(batch, start, norm=norm, eps=eps, steps=1, step_size=eps)

    return run_attack(
        perturb, model, images, labels, "fgsm", norm, skip_errors=skip_errors, **options
    )


def pgd(
    model: Model,
    images: ArrayLike,
    labels: ArrayLike | None = None,
    *,
    eps: float,
    steps: int = defaults.ATTACK_STEPS,
    step_size: float | None = None,
    norm: Norm = "linf",
    skip_errors: bool = True,
    **options: Unpack[Options],
) -> AttackResult:
    """Attack with projected gradient steps on the cross-entropy: PGD.

    The last image counts, as in the paper. The cross-entropy of very confident models
    has a gradient of zero in float32, and PGD then reports robustness that is not
    there; compare with ``apgd(loss="dlr")``. For several random starts, join the
    results of several seeds by :func:`smallest`. Source: Madry et al., "Towards deep
    learning models resistant to adversarial attacks", ICLR 2018; Chapter 10.

    Parameters
    ----------
    model : callable
        Returns logits (n, K) of images (n, ...) in [0, 1]; usually a module in
        evaluation mode. Its parameters and their gradients are left alone.
    images : Tensor or array, shape (N, ...)
        Images in [0, 1], float32 or float64 as the model's parameters.
    labels : Tensor or array, shape (N,), optional
        True classes, integers from 0 to K - 1; the model's predictions by default.
    eps : float
        Largest size of the perturbation, in [0, 1] pixel units, such as 8/255.
    steps : int, default 40
        Gradient steps.
    step_size : float, optional
        Size of a step, in [0, 1] pixel units; 2.5 eps / steps by default.
        Steps that are too short for their number find less.
    norm : {"linf", "l2"}, default "linf"
        The largest change of a pixel, or the root of the sum of squared changes.
    skip_errors : bool, default True
        Leave an input as it is if the model is wrong on it already.
    **options
        ``batch_size`` (256): images in a batch; apart from rounding, the result does
        not depend on it. ``seed`` (0): of the random starts, of which each image has
        its own, and of models that draw random numbers. ``progress`` (True): show a
        progress bar, on a terminal. ``device`` (None): where to run, "auto" for a CUDA
        device if there is one; by default where the model is. The result is where the
        images are.

    Returns
    -------
    AttackResult
        The last images, also where the attack failed.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described, model and images differ in dtype, or a logit
        is NaN, infinite or beyond float32 on a clean or attacked image.
    ModuleNotFoundError
        If the library of the attack is not installed: ``robustbook[attacks]`` has it.

    Examples
    --------
    >>> from robustbook.models import load_model
    >>> images = torch.full((1, 1, 8, 8), 0.5)
    >>> result = pgd(load_model("digits-linear"), images, eps=0.5, steps=5)
    >>> result.success.tolist()
    [True]
    """
    check_bound("eps", eps, norm=norm)
    check_count("steps", steps)
    if step_size is not None:
        check_bound("step_size", step_size, norm=norm)
    from robustbook.attacks.foolbox_runs import run_pgd

    size = 2.5 * eps / steps if step_size is None else step_size

    def perturb(batch: Batch) -> Tensor:
        start = batch.random_points(norm)
        return run_pgd(batch, start, norm=norm, eps=eps, steps=steps, step_size=size)

    return run_attack(
        perturb, model, images, labels, "pgd", norm, skip_errors=skip_errors, **options
    )
