"""One model and its images, and the steps by which the lenses measure it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import torch
from torch import Tensor, nn

from robustbook._checks.arguments import as_tensor, check_logits
from robustbook._checks.models import Model, ask_model, model_dtype
from robustbook.attacks import pgd
from robustbook.average_case import monte_carlo
from robustbook.corruptions import corrupt
from robustbook.lenses._passes import CountedModel
from robustbook.lenses._result import ADVERSARIAL, NOISE, Settings
from robustbook.margins import input_margin, logit_margin

#: PGD climbs the cross-entropy, whose gradient underflows where a logit leads by more
#: than about 80. Beyond this lead the attack sees all logits divided by a constant.
LARGEST_LEAD: Final = 50.0

#: What the steps measure of each image, by name.
LOGITS: Final = "logits"
SURVIVAL: Final = ("probability", "standard_error", "labels", "calls", "trials")
MARGINS: Final = ("margins", "adversarial", "found_by")

Tensors = dict[str, Tensor]


@dataclass(frozen=True, eq=False)
class Subject:
    """A model in evaluation mode, images in its dtype, and its logits on them."""

    model: CountedModel
    images: Tensor
    logits: Tensor
    settings: Settings
    batch_size: int
    device: torch.device

    def under(self, shift: str, rows: Tensor) -> Tensors:
        """Logits of some images, shifted; refused at once if they are of no use."""
        images: Tensor
        if shift == ADVERSARIAL:
            images = pgd(
                self._attackable, self.images[rows], eps=self.settings.eps,
                steps=self.settings.attack_steps, seed=self.settings.seed,
                first=int(rows[0]), batch_size=self.batch_size, progress=False,
                device=self.device,
            ).adversarial  # fmt: skip
        elif shift == NOISE:
            images = self._noisy[rows]
        else:
            severity = self.settings.severity
            images = corrupt(self.images[rows], shift, severity=severity)
        logits = logits_of(self.model, images, self.batch_size, self.device)
        check_shift(shift, logits, self.logits[rows])
        return {LOGITS: logits}

    def survival(self, rows: Tensor) -> Tensors:
        """How often the predictions on some images survive the noise."""
        robustness = monte_carlo(
            self.model, self.images[rows], self.settings.sigma,
            samples=self.settings.noise_samples, seed=self.settings.seed,
            first=int(rows[0]), device=self.device,
        )  # fmt: skip
        return {name: getattr(robustness, name) for name in SURVIVAL}

    def margins(self, rows: Tensor) -> Tensors:
        """Input margins of some images."""
        margins = input_margin(
            self.model, self.images[rows], seed=self.settings.seed,
            batch_size=self.batch_size, progress=False, device=self.device,
        )  # fmt: skip
        return {name: getattr(margins, name) for name in MARGINS}

    @cached_property
    def _attackable(self) -> nn.Module:
        """The model, or one with its predictions whose cross-entropy has a gradient."""
        lead = float(logit_margin(self.logits).max())
        if lead <= LARGEST_LEAD:
            return self.model
        return _Divided(self.model, lead / LARGEST_LEAD)

    @cached_property
    def _noisy(self) -> Tensor:
        random = np.random.default_rng([self.settings.seed, 0])
        noise = as_tensor("noise", random.standard_normal(self.images.shape))
        return self.images + self.settings.sigma * noise.to(self.images)


class _Divided(nn.Module):
    def __init__(self, model: nn.Module, by: float) -> None:
        super().__init__()
        self.model, self.by = model, by
        self.eval()

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.model(images)
        return logits / self.by


@torch.no_grad()
def logits_of(
    model: Model, images: Tensor, batch_size: int, device: torch.device
) -> Tensor:
    """The model's logits on the CPU, batch by batch."""
    parts = torch.split(images, batch_size)
    return torch.cat([ask_model(model, part.to(device)).cpu() for part in parts])


def check_shift(name: str, logits: Tensor, clean: Tensor) -> None:
    """Refuse logits as soon as they are there, not when all is measured."""
    what = f"model's logits, {name}"
    check_logits(what, logits)
    if logits.shape != clean.shape:
        raise ValueError(
            f"{what}: expected the {clean.shape[1]} classes of the clean images, got "
            f"{logits.shape[1]}"
        )


@contextmanager
def evaluated(model: nn.Module) -> Iterator[None]:
    """Evaluation mode for a while; each module gets back the mode that it had."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


def as_the_model_wants(model: nn.Module, images: Tensor) -> Tensor:
    """Images in the type of the parameters; of a function, in their own."""
    kind = model_dtype(model)
    if kind is None and images.dtype not in (torch.float32, torch.float64):
        return images.float()
    return images if kind is None else images.to(kind)
