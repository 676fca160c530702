"""FGSM: one step along the gradient of the cross-entropy, by foolbox."""

from __future__ import annotations

import torch
from torch import Tensor

from robustbook._checks.arguments import check_positive
from robustbook._checks.models import Model
from robustbook.attacks._result import AttackResult
from robustbook.attacks.engine import DOCS, ArrayLike, Batch, Norm, Settings, run_attack


@DOCS.fill
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
    {model} {images} {labels} {eps} {norm} {skip_errors} {batch_size} {seed}
    {progress} {device}

    Returns
    -------
    AttackResult
        The images after the step, also where it failed.

    Raises
    ------
    {TypeError} {ValueError} {ModuleNotFoundError}

    Warns
    -----
    {UserWarning}

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
        from robustbook.attacks.foolbox_runs import run_pgd

        return run_pgd(batch, norm=norm, eps=eps, steps=1, step_size=eps)

    settings = Settings(
        "fgsm", norm, batch_size, seed, progress, device, skip_errors=skip_errors
    )
    return run_attack(perturb, model, images, labels, settings)
