"""FAB: the smallest perturbation, by projections; by pyautoattack."""

from __future__ import annotations

import torch
from torch import Tensor

from robustbook._checks.arguments import check_count
from robustbook._checks.models import Model
from robustbook.attacks._result import AttackResult
from robustbook.attacks._targets import closest
from robustbook.attacks.engine import DOCS, ArrayLike, Batch, Norm, Settings, run_attack


@DOCS.fill
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
    {model} {images} {labels}
    steps : int, default 100
        Projections.
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

    def run(batch: Batch, target: Tensor | None) -> Tensor:
        from robustbook.attacks.pyautoattack_runs import run_fab

        return run_fab(batch, target, norm=norm, steps=steps)

    perturb = closest(run, targets, bisections, norm)
    settings = Settings("fab", norm, batch_size, seed, progress, device, minimal=True)
    return run_attack(perturb, model, images, labels, settings)
