"""Networks that the study of defenses trains, and more plain ones to start from."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from robustbook.datasets import Dataset, load_dataset
from robustbook.models import build_model, load_model
from robustbook.studies.run import Run
from robustbook.training import (
    RECIPES,
    AttackedView,
    Learner,
    Loss,
    cross_entropy_loss,
    defense,
    train_classifier,
)


class StandardizedImages(nn.Module):
    """Every image with mean 0 and standard deviation 1 over all of its pixels."""

    def forward(self, images: Tensor) -> Tensor:
        """Shift and scale images (n, C, H, W); a constant one is only shifted."""
        std, mean = torch.std_mean(images, dim=(1, 2, 3), keepdim=True)
        return (images - mean) / std.clamp(min=1e-3)


@dataclass(frozen=True)
class Method:
    """One way to train: a defense, its ball and its options."""

    defense: str
    eps: float
    steps: int
    #: Whether every image is standardized.
    standardized: bool = False
    #: Number of the first classes that are defended; 0 for all.
    classes: int = 0
    #: Weight of the penalty, if it is not the usual one.
    weight: float | None = None

    @property
    def loss(self) -> Loss | Learner:
        """The objective that training minimizes."""
        if self.classes:
            return _some_classes(self.classes, eps=self.eps, steps=self.steps)
        weight = {} if self.weight is None else {"weight": self.weight}
        return defense(self.defense, eps=self.eps, steps=self.steps, **weight)


def _some_classes(classes: int, *, eps: float, steps: int) -> Loss:
    """Cross-entropy on images of which those of the first classes are attacked."""
    attack = AttackedView(eps=eps, steps=steps)

    def loss(
        model: nn.Module, images: Tensor, labels: Tensor, generator: torch.Generator
    ) -> Tensor:
        attacked = attack(model, images[None], labels[None], generator)[0]
        defended = (labels < classes).reshape(-1, 1, 1, 1)
        seen = torch.where(defended, attacked, images)
        return cross_entropy_loss(model, seen, labels, generator)

    return loss


@dataclass(frozen=True)
class Budget:
    """Images, epochs, batch size and learning rate of every training."""

    images: int
    epochs: int
    batch_size: int = 128
    lr: float = 0.002


def trained(
    run: Run[Any],
    start: str,
    method: Method | None,
    data: Dataset,
    budget: Budget,
    *,
    number: int,
) -> nn.Module:
    """Train a plain network further by a method, or read it from the cache.

    Without a method it is the plain network.
    """
    model: nn.Module = load_model(start)
    if method is None:
        return model
    if method.standardized:
        model = nn.Sequential(StandardizedImages(), model)
    data = data.subset(slice(budget.images))
    train = partial(
        train_classifier,
        model.requires_grad_(True),
        data,
        loss=method.loss,
        epochs=budget.epochs,
        lr=budget.lr,
        batch_size=budget.batch_size,
        seed=run.seed + number,
        device=run.device,
        progress=False,
    )
    return run.trained(
        "defended network",
        model,
        train,
        data=data,
        method=method,
        budget=budget,
        number=number,
        code=__name__,
    )


def plain(dataset: str, seed: int) -> nn.Module:
    """Train the plain convolutional network of a data set, or read it from the cache.

    Seeds 0 and 1 give the networks that are stored as "DATASET-cnn-s0" and "-s1".
    """
    (recipe,) = (known for known in RECIPES[dataset] if known.model == f"{dataset}-cnn")
    model = build_model(recipe.arch, seed=seed, options=dict(recipe.options))
    data = load_dataset(dataset, "train")
    train = partial(
        train_classifier, model, data, loss=recipe.loss, epochs=recipe.epochs,
        lr=recipe.lr, batch_size=recipe.batch_size, seed=seed, progress=False,
    )  # fmt: skip
    # On the CPU, wherever a study is: who loads a network says nothing of a device.
    run = Run[Any](dataset, "full", seed, "cpu", ())
    return run.trained(
        "plain network", model, train, data=data, recipe=recipe, code=__name__
    )


#: For :func:`robustbook.models.load_model`, which takes them by import path.
mnist_s2, mnist_s3, mnist_s4 = (partial(plain, "mnist", seed) for seed in (2, 3, 4))
