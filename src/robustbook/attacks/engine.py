"""The parts that attacks share: checks, batches, seeds and the verdict of the model.

They serve those who write an attack, or an ensemble as :mod:`robustbook.margins` does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from tqdm import tqdm

from robustbook._checks import models
from robustbook._checks.arguments import ArrayLike as ArrayLike
from robustbook._checks.arguments import (
    check_choice,
    check_count,
    check_labels,
    check_logits,
)
from robustbook._checks.images import check_images
from robustbook.attacks._result import NORMS, AttackResult
from robustbook.attacks._result import Norm as Norm  # for margins, as distances
from robustbook.attacks._result import distances as distances


class _Isolated(torch.autograd.Function):
    """Logits whose gradient reaches the images and nothing else.

    The libraries call ``backward()``, which would also write the gradients of all
    parameters that the model holds, or that a callable hides.
    """

    @staticmethod
    def forward(ctx: Any, images: Tensor, model: models.Model) -> Tensor:
        with torch.enable_grad():
            inner = images.detach().requires_grad_()
            logits = model(inner)
        models.check_differentiable(logits)
        ctx.inner, ctx.logits = inner, logits
        return logits.detach()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, None]:
        # FAB goes backward once for each class.
        (gradient,) = torch.autograd.grad(
            ctx.logits, ctx.inner, gradients[0], retain_graph=True
        )
        return gradient, None


class Classifier(nn.Module):
    """The model as the libraries expect it: float32 in, float32 out.

    The model itself is called with images of the caller's dtype. It is not registered
    as a submodule, so that nothing moves it or changes its mode.
    """

    def __init__(self, model: models.Model, dtype: torch.dtype) -> None:
        super().__init__()
        self.eval()
        self._hidden = (model, dtype)

    def forward(self, images: Tensor) -> Tensor:
        """Return logits (n, K), float32."""
        if images.requires_grad and torch.is_grad_enabled():
            logits: Tensor = _Isolated.apply(images, self._call)  # type: ignore[no-untyped-call]
            return logits
        with torch.no_grad():
            return self._call(images).detach()

    def _call(self, images: Tensor) -> Tensor:
        model, dtype = self._hidden
        return models.model_logits(model, images.to(dtype)).float()


@dataclass(frozen=True)
class Settings:
    """The options that every attack takes."""

    attack: str
    norm: Norm
    batch_size: int
    seed: int
    progress: bool
    device: str | torch.device | None
    #: The attack looks for the smallest perturbation and returns the clean image where
    #: it finds none.
    minimal: bool = False
    #: Inputs on which the model is wrong already are left as they are.
    skip_errors: bool = True


@dataclass(frozen=True, eq=False)
class Batch:
    """The samples that an attack works on at once: float32, in [0, 1], contiguous."""

    model: Classifier
    images: Tensor
    labels: Tensor
    logits: Tensor
    indices: Tensor
    seed: int

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, chosen: Tensor) -> Batch:
        return replace(
            self,
            images=self.images[chosen].contiguous(),
            labels=self.labels[chosen],
            logits=self.logits[chosen],
            indices=self.indices[chosen.to(self.indices.device)],
        )

    def fools(self, images: Tensor) -> Tensor:
        """Return whether the model is wrong on these images, one for each sample."""
        predicted: Tensor = self.model(images).argmax(dim=1)
        return predicted != self.labels

    def column(self, values: Tensor) -> Tensor:
        """Reshape one value per sample so that it broadcasts against the images."""
        return values.reshape(-1, *[1] * (self.images.ndim - 1))

    def inside(self, moved: Tensor) -> Tensor:
        """Clip moved images to [0, 1]; replace those that are not finite by clean ones.

        A step along a gradient that is not finite makes them so.
        """
        finite = self.column(torch.isfinite(moved).flatten(1).all(dim=1))
        return torch.where(finite, moved, self.images).clamp(0, 1)

    def bisect(self, attacked: Tensor, *, steps: int) -> Tensor:
        """Move attacked images toward the clean ones as long as they fool the model."""
        low = torch.zeros(len(self), device=attacked.device)
        high = torch.ones_like(low)
        closest = attacked
        for _ in range(steps):
            middle = (low + high) / 2
            tried = torch.lerp(self.images, attacked, self.column(middle))
            fooled = self.fools(tried)
            closest = torch.where(self.column(fooled), tried, closest)
            low = torch.where(fooled, low, middle)
            high = torch.where(fooled, middle, high)
        return closest

    def random_points(
        self, norm: Norm, run: int = 0, *, surface: bool = False
    ) -> Tensor:
        """Draw a point of the unit ball, or of its surface, for each image.

        The points of an image are the same in any batch.
        """
        size = self.images[0].numel()
        # The first n of n + 2 coordinates of a point on the sphere are uniform in the
        # ball.
        count = size if surface or norm == "linf" else size + 2
        drawn = []
        for index in self.indices.tolist():
            random = np.random.default_rng([self.seed, run, index])
            draw = random.random if norm == "linf" else random.standard_normal
            drawn.append(draw(count, np.float32))
        points = torch.from_numpy(np.stack(drawn)).to(self.images.device)
        if norm == "l2":
            points = nn.functional.normalize(points, dim=1)
        else:
            points = 2 * points - 1
            if surface:
                points = points / points.abs().amax(dim=1, keepdim=True)
        return points[:, :size].reshape(self.images.shape)

    def ranked_classes(self, targets: int) -> list[Tensor]:
        """Return the most likely other classes on the clean images, best first."""
        scores = self.logits.clone()
        scores[torch.arange(len(self)), self.labels] = -torch.inf
        order = scores.argsort(dim=1, descending=True, stable=True)
        return list(order[:, :targets].T.contiguous())


def run_attack(
    perturb: Callable[[Batch], Tensor],
    model: models.Model,
    images: ArrayLike,
    labels: ArrayLike | None,
    settings: Settings,
) -> AttackResult:
    """Attack batch by batch, and let the model judge the attacked images."""
    check_choice("norm", settings.norm, NORMS)
    check_count("batch_size", settings.batch_size)
    check_count("seed", settings.seed, minimum=0)
    clean = check_images(images, planes=False)
    truth = None
    if labels is not None:
        truth = check_labels("labels", labels, length=len(clean))
    models.warn_of_training(model)
    device = models.find_device(model, clean, settings.device)
    classifier = Classifier(model, clean.dtype)
    parts = []
    with (
        models.keeping_generators(),
        torch.inference_mode(False),
        torch.enable_grad(),
        tqdm(
            total=len(clean),
            desc=settings.attack,
            unit="image",
            leave=False,
            # With None, tqdm shows the bar on a terminal only.
            disable=None if settings.progress else True,
        ) as bar,
    ):
        # Libraries and random models draw from torch's generators.
        torch.manual_seed(settings.seed)
        for start in range(0, len(clean), settings.batch_size):
            rows = torch.arange(start, min(start + settings.batch_size, len(clean)))
            # The copy is an ordinary tensor also if the images are inference tensors.
            part = clean[rows].clone().to(device)
            known = None if truth is None else truth[rows].to(device)
            parts.append(
                _attack_batch(perturb, classifier, part, known, rows, settings)
            )
            bar.update(len(rows))
    adversarial, norms, success = (
        torch.cat(values).to(clean.device) for values in zip(*parts, strict=True)
    )
    return AttackResult(adversarial, norms, success, settings.norm, settings.attack)


def _attack_batch(
    perturb: Callable[[Batch], Tensor],
    model: Classifier,
    clean: Tensor,
    labels: Tensor | None,
    indices: Tensor,
    settings: Settings,
) -> tuple[Tensor, Tensor, Tensor]:
    images = clean.float()
    logits = check_logits("model's logits", model(images))
    predicted = logits.argmax(dim=1)
    if labels is None:
        labels = predicted
    check_labels("labels", labels, length=len(images), num_classes=logits.shape[1])
    everything = Batch(model, images, labels, logits, indices, settings.seed)
    success = predicted != labels
    attacked = ~success if settings.skip_errors else torch.ones_like(success)
    adversarial, norms = clean.clone(), torch.zeros(len(clean), dtype=torch.float64)
    norms = norms.to(clean.device)
    if bool(attacked.any()):
        batch = everything[attacked]
        moved = batch.inside(perturb(batch).detach()).to(clean.dtype)
        fooled = batch.fools(moved)
        if settings.minimal:
            moved = torch.where(batch.column(fooled), moved, clean[attacked])
        sizes = distances(clean[attacked], moved, settings.norm)
        adversarial[attacked], success[attacked] = moved, fooled
        norms[attacked] = torch.where(fooled, sizes, torch.inf)
    return adversarial, norms, success
