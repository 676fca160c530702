"""The parts that attacks share: checks, batches, seeds and the verdict of the model.

They serve those who write an attack, or an ensemble as :mod:`robustbook.margins` does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypedDict

import numpy as np
import torch
from torch import Tensor, nn
from tqdm import tqdm

from robustbook._checks import models
from robustbook._checks.arguments import (
    ArrayLike,
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
        logits = models.model_logits(model, images.to(dtype))
        narrow = logits.float()
        if bool((narrow.isinf() & logits.isfinite()).any()):
            raise ValueError(
                "model: expected logits that fit into float32, in which attacks "
                f"compute, got {float(logits.detach().abs().max()):g}; divide them by "
                "a constant"
            )
        return narrow


class Options(TypedDict, total=False):
    """The options of every attack; :func:`robustbook.attacks.pgd` describes them."""

    batch_size: int
    seed: int
    progress: bool
    device: str | torch.device | None


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

    def rows(self) -> Tensor:
        """Return the numbers of the samples in the batch, on its device."""
        return torch.arange(len(self), device=self.images.device)

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
        if norm == "linf":
            points = 2 * points - 1
        if surface or norm == "l2":
            order = torch.inf if norm == "linf" else 2
            points = nn.functional.normalize(points, order, dim=1)
        return points[:, :size].reshape(self.images.shape)

    def ranked_classes(self, targets: int) -> list[Tensor]:
        """Return the most likely other classes on the clean images, best first."""
        scores = self.logits.clone()
        scores[self.rows(), self.labels] = -torch.inf
        order = scores.argsort(dim=1, descending=True, stable=True)[:, :-1]
        return list(order[:, :targets].T.contiguous())


class SmallestSoFar:
    """The smallest perturbations of a batch that fooled the model so far."""

    def __init__(self, batch: Batch, norm: Norm) -> None:
        self.batch, self.norm = batch, norm
        self.images = batch.images.clone()
        self.sizes = torch.full_like(batch.logits[:, 0], torch.inf).double()

    def keep(self, images: Tensor, rows: Tensor, *, bisections: int = 0) -> Tensor:
        """Keep images that are closer; return all sizes, ``inf`` where one failed."""
        part = self.batch[rows]
        images = part.bisect(part.inside(images), steps=bisections)
        sizes = distances(part.images, images, self.norm)
        sizes = torch.where(part.fools(images), sizes, torch.inf)
        better = sizes < self.sizes[rows]
        chosen = rows[better]
        self.images[chosen], self.sizes[chosen] = images[better], sizes[better]
        return sizes


def run_attack(
    perturb: Callable[[Batch], Tensor],
    model: models.Model,
    images: ArrayLike,
    labels: ArrayLike | None,
    attack: str,
    norm: Norm = "linf",
    *,
    minimal: bool = False,
    skip_errors: bool = True,
    batch_size: int = 256,
    seed: int = 0,
    progress: bool = True,
    device: str | torch.device | None = None,
    **unknown: Any,
) -> AttackResult:
    """Attack batch by batch, and let the model judge the attacked images.

    An attack that is `minimal` looks for the smallest perturbation, and returns the
    clean image where it finds none. :func:`robustbook.attacks.pgd` describes the other
    options.
    """
    if unknown:
        raise TypeError(
            f"{attack}: expected its own arguments and batch_size, seed, progress or "
            f"device; got {', '.join(unknown)}"
        )
    check_choice("norm", norm, NORMS)
    check_count("batch_size", batch_size)
    check_count("seed", seed, minimum=0)
    clean = check_images(images, planes=False)
    truth = None
    if labels is not None:
        truth = check_labels("labels", labels, length=len(clean))
    models.warn_of_training(model)
    place = models.find_device(model, clean, device)
    classifier = Classifier(model, clean.dtype)
    batches = torch.split(torch.arange(len(clean)), batch_size)
    # With None, tqdm shows the bar on a terminal only.
    hidden = None if progress else True
    with models.keeping_generators(), torch.inference_mode(False), torch.enable_grad():
        # Libraries and random models draw from torch's generators.
        torch.manual_seed(seed)
        adversarial = clean.clone()
        norms = torch.zeros(len(clean), dtype=torch.float64, device=clean.device)
        success = torch.zeros_like(norms, dtype=torch.bool)
        for rows in tqdm(batches, attack, unit="batch", leave=False, disable=hidden):
            part = clean[rows].to(place)
            logits = check_logits("model's logits", classifier(part.float()))
            predicted = logits.argmax(dim=1)
            known = predicted if truth is None else truth[rows].to(place)
            check_labels("labels", known, length=len(rows), num_classes=logits.shape[1])
            wrong = predicted != known
            success[rows] = wrong.to(clean.device)
            attacked = ~wrong if skip_errors else torch.ones_like(wrong)
            if bool(attacked.any()):
                batch = Batch(classifier, part.float(), known, logits, rows, seed)
                batch, part = batch[attacked], part[attacked]
                moved = batch.inside(perturb(batch).detach()).to(clean.dtype)
                fooled = batch.fools(moved)
                if minimal:
                    moved = torch.where(batch.column(fooled), moved, part)
                sizes = torch.where(fooled, distances(part, moved, norm), torch.inf)
                adversarial[batch.indices] = moved.to(clean.device)
                success[batch.indices] = fooled.to(clean.device)
                norms[batch.indices] = sizes.to(clean.device)
    return AttackResult(adversarial, norms, success, norm, attack)
