"""Gaussian noise: the shift that knows nothing of the model."""

from __future__ import annotations

import torch
from torch import Tensor

from robustbook._checks.arguments import check_positive
from robustbook._checks.models import Model
from robustbook.attacks._result import AttackResult
from robustbook.attacks.engine import DOCS, ArrayLike, Batch, Norm, Settings, run_attack


@DOCS.fill
def gaussian_noise(
    model: Model,
    images: ArrayLike,
    labels: ArrayLike | None = None,
    *,
    sigma: float,
    norm: Norm = "l2",
    batch_size: int = 256,
    seed: int = 0,
    progress: bool = True,
    device: str | torch.device | None = None,
) -> AttackResult:
    """Add independent Gaussian noise to every pixel, and clip to [0, 1].

    Every image gets noise, also where the model is wrong already; a success is a
    wrong prediction on the noisy image. One seed draws the same noise for all
    ``sigma``, only scaled.

    Parameters
    ----------
    {model} {images} {labels}
    sigma : float
        Standard deviation of the noise before it is clipped, in [0, 1] pixel units.
    norm : {"linf", "l2"}, default "l2"
        The norm to report.
    {batch_size}
    seed : int, default 0
        Seed of the noise.
    {progress} {device}

    Returns
    -------
    AttackResult
        The noisy images, and what the model makes of them.

    Raises
    ------
    {TypeError} {ValueError}

    References
    ----------
    PA thesis, section 4.1, Experiment 2. Chapter 9 of this book.

    Examples
    --------
    >>> from robustbook.models import load_model
    >>> images = torch.full((4, 1, 8, 8), 0.5)
    >>> noisy = gaussian_noise(load_model("digits-cnn"), images, sigma=0.1)
    >>> round(float((noisy.adversarial - images).std()), 1)
    0.1
    """
    check_positive("sigma", sigma)

    def perturb(batch: Batch) -> Tensor:
        return batch.images + sigma * batch.normal().reshape(batch.images.shape)

    settings = Settings(
        "gaussian_noise", norm, batch_size, seed, progress, device, skip_errors=False
    )
    return run_attack(perturb, model, images, labels, settings)
