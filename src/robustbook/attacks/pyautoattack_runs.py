"""Single runs of pyautoattack 0.2.0, without the seeding and filters around them."""

from functools import partial
from typing import Any, Final

import torch
from torch import Tensor

from robustbook._checks.extras import extra
from robustbook.attacks.engine import Batch, Norm

with extra("attacks"):
    from pyautoattack.autopgd_base import APGDAttack, APGDAttack_targeted
    from pyautoattack.fab_pt import FABAttack_PT
    from pyautoattack.square import SquareAttack

_NAMES: Final = {"linf": "Linf", "l2": "L2"}
#: Stands for a margin of 0, with the sign of the answer.
_TIE: Final = 1e-30


def run_apgd(
    batch: Batch,
    target: Tensor | None,
    *,
    loss: str,
    norm: Norm,
    eps: float,
    steps: int,
    start: Tensor,
    log: Any,
) -> tuple[Tensor, Tensor, Tensor]:
    """Run APGD once; return images, whether they fool the model, and their loss.

    Where the run fails, the images are those of the highest loss.
    """
    kind = APGDAttack if target is None else APGDAttack_targeted
    attack = kind(batch.model, steps, _NAMES[norm], eps=eps, logger=log)
    if target is None:
        attack.loss = loss
    attack.y_target = target
    attack.init_hyperparam(batch.images)
    best, robust, value, adversarial = attack.attack_single_run(
        batch.images, batch.labels, x_init=start
    )
    fooled = ~robust.bool()
    images = torch.where(batch.column(fooled), adversarial, best)
    return images.detach(), fooled, value.detach()


def run_fab(batch: Batch, target: Tensor | None, *, norm: Norm, steps: int) -> Tensor:
    """Return FAB's closest images of any size, the clean ones where it found none.

    It goes toward a class for each image or, with None, to the nearest boundary.
    """
    kind = FABAttack_PT if target is None else partial(_TargetedFAB, batch, target)
    attack = kind(batch.model, _NAMES[norm], n_iter=steps)
    # `perturb` would discard perturbations larger than eps.
    images: Tensor = attack.attack_single_run(
        batch.images, batch.labels, is_targeted=target is not None
    )
    return images


def run_square(batch: Batch, *, norm: Norm, eps: float, steps: int) -> Tensor:
    """Return the images of the smallest margin that Square Attack came across."""
    attack = _Square(batch.model, _NAMES[norm], n_queries=steps, eps=eps)
    attack.init_hyperparam(batch.images)
    images: Tensor = attack.attack_single_run(batch.images, batch.labels)[1]
    return images


class _Square(SquareAttack):  # type: ignore[misc]
    """Square Attack that a tie does not stop, and that leaves the logits as they are.

    The library writes into them, and takes a margin of 0 as a success, which it is only
    where the model answers with the other class.
    """

    def margin_and_loss(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        logits, label = self.predict(x), y[:, None]
        rivals = logits.scatter(1, label, -torch.inf).amax(1)
        lead = logits.gather(1, label)[:, 0] - rivals
        tied = torch.where(logits.argmax(1) == y, _TIE, -_TIE)
        lead = torch.where(lead == 0, tied, lead)
        return lead, lead


class _TargetedFAB(FABAttack_PT):  # type: ignore[misc]
    """FAB toward one class for each image; the library only takes ranks of classes."""

    def __init__(
        self, batch: Batch, target: Tensor, *args: Any, **options: Any
    ) -> None:
        super().__init__(*args, **options)
        self.target_class = 2  # The library wants a rank, but does not use it here.
        self._labels: Tensor | None = batch.labels
        self._target = target

    def _get_predicted_label(self, x: Tensor) -> Any:
        # The library first drops misclassified images. All are right here, but another
        # batch may round differently, so its first question gets the labels.
        labels, self._labels = self._labels, None
        return super()._get_predicted_label(x) if labels is None else labels

    def get_diff_logits_grads_batch_targeted(
        self, imgs: Tensor, la: Tensor, la_target: Tensor
    ) -> Any:
        return super().get_diff_logits_grads_batch_targeted(imgs, la, self._target)
