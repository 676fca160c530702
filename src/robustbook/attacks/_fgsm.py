"""FGSM: one step along the gradient of the cross-entropy, by foolbox."""

from __future__ import annotations

import torch
from torch import Tensor

from robustbook._checks.arguments import check_positive
from robustbook._checks.models import Model
from robustbook.attacks._engine import ArrayLike, Batch, Settings, run_attack
from robustbook.attacks._result import AttackResult, Norm


def fgsm(
    model: Model,
    images: ArrayLike,
    labels: ArrayLike | None = None,
    *,
    eps: float,
    norm: Norm = "linf",
    skip_errors: bool = True,
    batch_size: int = 256,
    seed: int = 0,
    progress: bool = True,
    device: str | torch.device | None = None,
) -> AttackResult:
    """Attack with one step along the gradient: FGSM.

    Parameters
    ----------
    model : callable
        Returns logits (n, K) of images (n, ...) in [0, 1]; usually a module in
        evaluation mode. Its parameters and their gradients are left alone.
    images : Tensor or ndarray, shape (N, ...)
        Images in [0, 1], float32 or float64.
    labels : Tensor or ndarray, shape (N,), optional
        True classes, integers from 0 to K - 1; the model's predictions by default.
    eps : float
        Largest size of the perturbation, in [0, 1] pixel units.
    norm : {"linf", "l2"}, default "linf"
        What size means: the largest change of a pixel, or the root of the sum of
        squares.
    skip_errors : bool, default True
        Leave inputs as they are on which the model is wrong already.
    batch_size : int, default 256
        Images at once; the result does not depend on it, rounding apart.
    seed : int, default 0
        Seed for models that draw random numbers; the attack itself draws none.
    progress : bool, default True
        Show a progress bar, on a terminal.
    device : str or torch.device, optional
        Where to run, "auto" for a CUDA device if there is one; where the model is
        by default. The result is where the images are.

    Returns
    -------
    AttackResult
        The images after the step, also where it failed.

    Raises
    ------
    TypeError
        If the images are not floating-point numbers or the labels not integers.
    ValueError
        If shapes do not match, a label is no class, or an option is out of range.
    ModuleNotFoundError
        If foolbox is not installed.

    Warns
    -----
    UserWarning
        If the model is in training mode, or pixels are outside [0, 1].

    See Also
    --------
    pgd : Many small steps instead of one.

    References
    ----------
    Goodfellow, Shlens and Szegedy, "Explaining and harnessing adversarial examples",
    ICLR 2015. Chapter 9 of this book.

    Examples
    --------
    >>> from robustbook.models import load_model
    >>> images = torch.full((1, 1, 8, 8), 0.5)
    >>> result = fgsm(load_model("digits-linear"), images, eps=0.5)
    >>> result.success.tolist(), result.norms.tolist()
    ([True], [0.5])
    """
    check_positive("eps", eps)

    def perturb(batch: Batch) -> Tensor:
        from robustbook.attacks import _foolbox

        return _foolbox.run_pgd(
            batch.model,
            batch.images,
            batch.labels,
            norm=norm,
            eps=eps,
            steps=1,
            step_size=eps,
            start=None,
        )

    settings = Settings(
        "fgsm", norm, batch_size, seed, progress, device, skip_errors=skip_errors
    )
    return run_attack(perturb, model, images, labels, settings)
