"""FAB: the smallest perturbation, by projections; by pyautoattack."""

from __future__ import annotations

import torch
from torch import Tensor

from robustbook._checks.arguments import check_count
from robustbook._checks.models import Model
from robustbook.attacks._engine import ArrayLike, Batch, Settings, run_attack
from robustbook.attacks._result import AttackResult, Norm
from robustbook.attacks._targets import check_shared, closest


def fab(
    model: Model,
    images: ArrayLike,
    labels: ArrayLike | None = None,
    *,
    steps: int = 100,
    targets: int | None = None,
    bisections: int = 0,
    norm: Norm = "linf",
    batch_size: int = 256,
    seed: int = 0,
    progress: bool = True,
    device: str | torch.device | None = None,
) -> AttackResult:
    """Look for the smallest perturbation by projections on the boundary: FAB.

    What it finds is not limited in size. It steps 5 % beyond the boundary as it
    sees it; `bisections` take that back.

    Parameters
    ----------
    model : callable
        Returns logits (n, K) of images (n, ...) in [0, 1]; usually a module in
        evaluation mode. Its parameters and their gradients are left alone.
    images : Tensor or ndarray, shape (N, ...)
        Images in [0, 1], float32 or float64.
    labels : Tensor or ndarray, shape (N,), optional
        True classes, integers from 0 to K - 1; the model's predictions by default.
    steps : int, default 100
        Projections.
    targets : int, optional
        Go for this many of the likeliest other classes, one after the other, and
        keep the smallest perturbation; all of them if there are fewer. By default,
        the attack is untargeted, which takes
        the gradients of all K logits in each step.
    bisections : int, default 0
        Halvings of the way back to the clean image in the end, as by
        :func:`bisect_result`.
    norm : {"linf", "l2"}, default "linf"
        What size means: the largest change of a pixel, or the root of the sum of
        squares.
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
        The closest images found. Where none was found, the clean image, with a norm
        of ``inf``.

    Raises
    ------
    TypeError
        If the images are not floating-point numbers or the labels not integers.
    ValueError
        If shapes do not match, a label is no class, or an option is out of range.
    ModuleNotFoundError
        If pyautoattack is not installed.

    Warns
    -----
    UserWarning
        If the model is in training mode, or pixels are outside [0, 1].

    See Also
    --------
    fmn, smallest

    References
    ----------
    Croce and Hein, "Minimally distorted adversarial examples with a fast adaptive
    boundary attack", ICML 2020. Chapters 9 and 12 of this book.

    Examples
    --------
    >>> weights = torch.tensor([[1.0, 0.0], [0.0, 3.0]])
    >>> image = torch.tensor([[0.9, 0.1]])
    >>> result = fab(lambda x: x @ weights.T, image, steps=10, bisections=20)
    >>> round(float(result.norms[0]), 3)  # (0.9 - 0.3) / (1 + 3)
    0.15
    """
    check_count("steps", steps)
    check_shared(targets, bisections)

    def run(batch: Batch, rank: int | None) -> Tensor:
        from robustbook.attacks._pyautoattack import run_fab

        return run_fab(
            batch.model, batch.images, batch.labels, rank=rank, norm=norm, steps=steps
        )

    perturb = closest(run, targets, bisections, norm)
    settings = Settings("fab", norm, batch_size, seed, progress, device, minimal=True)
    return run_attack(perturb, model, images, labels, settings)
