"""The search for the closest image of another class, as all of Part V takes it."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor, nn

from robustbook._store.cache import Arrays
from robustbook.attacks import AttackResult, apgd, smallest
from robustbook.attacks.engine import Batch, run_attack
from robustbook.datasets import Dataset
from robustbook.margins import gradient_normalized_margin, input_margin
from robustbook.models import features_of, logits_of

#: Images whose bounds are tightened with one size of the ball.
_CHUNK: Final = 32
#: The first size of that ball, as a share of the bound; its root where that fails.
_SHARE: Final = 0.85


@dataclass(frozen=True)
class Recipe:
    """Effort of the search for the closest image of another class."""

    #: As :func:`robustbook.margins.input_margin` takes them.
    targets: int = 3
    steps: int = 20
    refine_steps: int = 50
    #: How often its bound is tightened, and APGD's steps.
    rounds: int = 5
    apgd_steps: int = 20


def measure_bounds(
    model: nn.Module, images: Tensor, recipe: Recipe, *, seed: int = 0
) -> tuple[Tensor, Tensor]:
    """Look for the closest images of another class: their distances, and they.

    The attacks of :func:`robustbook.margins.input_margin`, the first, look for size and
    direction at once. APGD, better in a ball of a given size, then gets one a little
    smaller than the bound: if it finds something the bound is tightened, if not the
    next ball is larger.
    """
    first = input_margin(
        model,
        images,
        targets=recipe.targets,
        steps=recipe.steps,
        refine_steps=recipe.refine_steps,
        seed=seed,
        progress=False,
    )
    labels = logits_of(model, images).argmax(dim=1)
    # No ball is larger than the one that holds all images.
    bounds, reached = first.margins.clamp(max=1.0), ~first.failed
    adversarial = first.adversarial.clone()
    shares = torch.full_like(bounds, _SHARE)
    for number in range(recipe.rounds):
        order = (bounds * shares).argsort(stable=True)
        for rows in torch.split(order, _CHUNK):
            eps = float((bounds[rows] * shares[rows]).median().clamp(min=1e-6))
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message=".*gradient of zero")
                closer = apgd(
                    model,
                    images[rows],
                    labels[rows],
                    eps=eps,
                    steps=recipe.apgd_steps,
                    seed=seed + number,
                    progress=False,
                )
            closer = _bisected(model, images[rows], labels[rows], closer)
            better = closer.success & (closer.norms < bounds[rows])
            chosen = rows[better]
            bounds[chosen] = closer.norms[better]
            adversarial[chosen] = closer.adversarial[better]
            reached[chosen] = True
            missed = rows[~better]
            shares[missed] = shares[missed].sqrt()
    return torch.where(reached, bounds, torch.inf), adversarial


def _bisected(
    model: nn.Module, images: Tensor, labels: Tensor, result: AttackResult
) -> AttackResult:
    """Shorten perturbations on the line between the clean and the attacked image."""

    def perturb(batch: Batch) -> Tensor:
        attacked = result.adversarial[batch.indices.to(result.adversarial.device)]
        return batch.bisect(attacked.to(batch.images), steps=6)

    shorter = run_attack(
        perturb,
        model,
        images,
        labels,
        "apgd",
        result.norm,
        minimal=True,
        progress=False,
    )
    return smallest(result, shorter)


def searched_arrays(
    model: nn.Module, data: Dataset, recipe: Recipe, seed: int
) -> Arrays:
    """Logits, bounds, and how far the features of the closest images are."""
    bounds, adversarial = measure_bounds(model, data.images, recipe, seed=seed)
    near = features_of(model, adversarial)
    shifts = (near - features_of(model, data.images)).double().norm(dim=1)
    logits = logits_of(model, data.images)
    arrays = {"logits": logits, "bounds": bounds, "feature_shifts": shifts}
    return {key: value.detach().cpu().numpy() for key, value in arrays.items()}


def first_order_arrays(model: nn.Module, data: Dataset) -> Arrays:
    """Logit margins over the 1-norms of their gradients."""
    nearest = {"gradient_margins": False, "first_order_margins": True}
    return {
        name: gradient_normalized_margin(model, data.images, nearest=kind).numpy()
        for name, kind in nearest.items()
    }
