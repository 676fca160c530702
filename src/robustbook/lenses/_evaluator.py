"""One model and its images, and its logits on shifted ones."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from robustbook._checks.arguments import as_tensor, check_logits
from robustbook._checks.models import Model, check_model_logits
from robustbook.attacks import pgd
from robustbook.corruptions import corrupt
from robustbook.lenses._result import ADVERSARIAL, NOISE, Passes, Settings
from robustbook.margins import logit_margin

Measured = TypeVar("Measured")


class CountedModel(nn.Module):
    """Any callable that returns logits (n, K), with a count of the passes through it.

    Examples
    --------
    >>> counted = CountedModel(nn.Linear(3, 2))
    >>> image = torch.zeros(5, 3, requires_grad=True)
    >>> result, passes = counted.count(lambda: counted(image).sum().backward(), per=5)
    >>> passes
    Passes(forward=1.0, backward=1.0)
    """

    def __init__(self, model: Model) -> None:
        super().__init__()
        # A child module, so that its device and mode are found from outside.
        self.model = model
        self.training = isinstance(model, nn.Module) and model.training
        self._forward = 0
        self._backward = 0

    def forward(self, images: Tensor) -> Tensor:
        """Return the model's logits, shape (n, K)."""
        self._forward += len(images)
        logits = self.model(images)
        if isinstance(logits, Tensor) and logits.requires_grad:
            logits.register_hook(self._count_backward)  # type: ignore[no-untyped-call]
        return logits

    def _count_backward(self, gradient: Tensor) -> None:
        self._backward += len(gradient)

    def count(
        self, measure: Callable[[], Measured], *, per: int
    ) -> tuple[Measured, Passes]:
        """Run `measure`; return its result and its passes, divided by `per`."""
        forward, backward = self._forward, self._backward
        result = measure()
        return result, Passes(
            (self._forward - forward) / per, (self._backward - backward) / per
        )


#: PGD follows the gradient of the cross-entropy, which underflows where one logit
#: exceeds the others by more than about 80. Beyond this lead the attack sees all logits
#: divided by a constant.
LARGEST_LEAD: Final = 50.0


@dataclass(frozen=True, eq=False)
class Evaluator:
    """A model in evaluation mode, images in its dtype, and its logits on them."""

    model: CountedModel
    images: Tensor
    logits: Tensor
    settings: Settings
    #: The seed, batch_size, progress and device of attacks.
    options: dict[str, Any]

    def shifted_logits(self, shift: str) -> Tensor:
        """Return the logits of the images under a shift, on the CPU."""
        settings = self.settings
        if shift == ADVERSARIAL:
            images = pgd(
                self._attacked_model,
                self.images,
                eps=settings.eps,
                steps=settings.attack_steps,
                **self.options,
            ).adversarial
        elif shift == NOISE:
            random = np.random.default_rng([settings.seed, 0])
            noise = as_tensor("noise", random.standard_normal(self.images.shape))
            images = self.images + settings.sigma * noise.to(self.images)
        else:
            images = corrupt(
                self.images, shift, severity=settings.severity, seed=settings.seed
            )
        batch_size, device = self.options["batch_size"], self.options["device"]
        logits = compute_logits(self.model, images, batch_size, device)
        check_shifted_logits(shift, logits, self.logits.shape[1])
        return logits

    @property
    def _attacked_model(self) -> Model:
        lead = float(logit_margin(self.logits).max())
        if lead <= LARGEST_LEAD:
            return self.model
        return lambda images: self.model(images) / (lead / LARGEST_LEAD)


@torch.no_grad()
def compute_logits(
    model: Model, images: Tensor, batch_size: int, device: torch.device
) -> Tensor:
    """Return the model's logits on the CPU, computed batch by batch."""
    logits = []
    for batch in torch.split(images, batch_size):
        output = model(batch.to(device, copy=True))  # it may work in place
        logits.append(check_model_logits(output, len(batch)).cpu())
    return torch.cat(logits)


def check_shifted_logits(shift: str, logits: Tensor, num_classes: int) -> None:
    """Refuse logits before the next measurement begins."""
    name = f"model's logits, {shift}"
    check_logits(name, logits)
    if logits.shape[1] != num_classes:
        raise ValueError(
            f"{name}: expected the {num_classes} classes of the clean images, got "
            f"{logits.shape[1]}"
        )
