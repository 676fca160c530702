"""pyautoattack 0.2.0: single runs, without the seeding and filters around them."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor

from robustbook.attacks._classifier import Classifier
from robustbook.attacks._result import Norm

try:
    from pyautoattack.autopgd_base import APGDAttack, APGDAttack_targeted
    from pyautoattack.fab_pt import FABAttack_PT
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"this attack needs pyautoattack, and {error.name} is not installed; "
        'run pip install "robustbook[attacks]".',
        name=error.name,
    ) from error

_NAMES = {"linf": "Linf", "l2": "L2"}


class ZeroGradients:
    """Takes the library's remarks on zero gradients, of which one is enough."""

    def __init__(self) -> None:
        self.seen = False

    def warning(self, message: str) -> None:
        """Note that there was one."""
        self.seen = True

    def report(self) -> None:
        """Warn once, if there was any."""
        if self.seen:
            warnings.warn(
                "model: some images have a gradient of zero, so the attack does not "
                "move them; compare with fmn, fab and loss='ce'.",
                UserWarning,
                stacklevel=3,
            )


def run_apgd(
    model: Classifier,
    images: Tensor,
    labels: Tensor,
    *,
    target: Tensor | None,
    loss: str,
    norm: Norm,
    eps: float,
    steps: int,
    start: Tensor,
    log: ZeroGradients,
) -> tuple[Tensor, Tensor, Tensor]:
    """One run of APGD: images, whether they fool the model, and their loss.

    Where the run fails, the images are those of the highest loss.
    """
    options: dict[str, Any] = {"n_iter": steps, "norm": _NAMES[norm], "eps": eps}
    if target is None:
        attack = APGDAttack(model, loss=loss, logger=log, **options)
    else:
        attack = APGDAttack_targeted(model, logger=log, **options)
        attack.y_target = target
    attack.init_hyperparam(images)
    best, robust, value, adversarial = attack.attack_single_run(
        images, labels, x_init=start
    )
    fooled = ~robust.bool()
    column = fooled.reshape(-1, *[1] * (images.ndim - 1))
    return torch.where(column, adversarial, best).detach(), fooled, value.detach()


def run_fab(
    model: Classifier,
    images: Tensor,
    labels: Tensor,
    *,
    rank: int | None,
    norm: Norm,
    steps: int,
) -> Tensor:
    """FAB's best images of any size, the clean ones where it found none.

    ``rank`` 1 goes for the most likely other class, 2 for the next; None for the
    class whose boundary is nearest.
    """
    attack = FABAttack_PT(model, norm=_NAMES[norm], n_iter=steps)
    if rank is not None:
        attack.target_class = rank + 1
    # `perturb` would throw away what is larger than eps.
    found: Tensor = attack.attack_single_run(
        images, labels, is_targeted=rank is not None
    )
    return found
