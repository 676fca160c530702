"""FMN: the smallest perturbation, by adapting the size of a ball; by foolbox."""

from __future__ import annotations

import torch
from torch import Tensor

from robustbook._checks.arguments import check_count, check_positive
from robustbook._checks.models import Model
from robustbook.attacks._result import AttackResult
from robustbook.attacks._targets import closest
from robustbook.attacks.engine import DOCS, ArrayLike, Batch, Norm, Settings, run_attack


@DOCS.fill
def fmn(
    model: Model,
    images: ArrayLike,
    labels: ArrayLike | None = None,
    *,
    steps: int = 100,
    step_size: float = 1.0,
    gamma: float = 0.05,
    targets: int | None = None,
    bisections: int = 0,
    norm: Norm = "linf",
    batch_size: int = 256,
    seed: int = 0,
    progress: bool = True,
    device: str | torch.device | None = None,
) -> AttackResult:
    """Look for the smallest perturbation by adapting the size of a ball: FMN.

    Parameters
    ----------
    {model} {images} {labels}
    steps : int, default 100
        Gradient steps.
    step_size : float, default 1.0
        First step size α, the L2 length of a step; it decreases to a hundredth.
        With 10 the attack gets closer on some networks.
    gamma : float, default 0.05
        First relative change of the size of the ball in a step.
    {targets} {bisections} {norm} {batch_size} {seed} {progress} {device}

    Returns
    -------
    AttackResult
        The closest images that fool the model; where there is none, the clean image
        with a norm of ``inf``.

    Raises
    ------
    {TypeError} {ValueError} {ModuleNotFoundError}

    Warns
    -----
    {UserWarning}

    See Also
    --------
    fab, smallest

    References
    ----------
    Pintor et al., "Fast minimum-norm adversarial attacks through adaptive norm
    constraints", NeurIPS 2021. Chapters 9 and 12 of this book.

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
    check_positive("gamma", gamma)

    def run(batch: Batch, target: Tensor | None) -> Tensor:
        from robustbook.attacks.foolbox_runs import run_fmn

        return run_fmn(
            batch, target, norm=norm, steps=steps, step_size=step_size, gamma=gamma
        )

    perturb = closest(run, targets, bisections, norm)
    settings = Settings("fmn", norm, batch_size, seed, progress, device, minimal=True)
    return run_attack(perturb, model, images, labels, settings)
