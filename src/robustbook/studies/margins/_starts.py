"""More plain networks to start from: other seeds of the recipe of a stored one."""

from __future__ import annotations

from functools import partial
from typing import Any

from torch import nn

from robustbook.datasets import load_dataset
from robustbook.models import build_model
from robustbook.studies.run import Run
from robustbook.training import RECIPES, train_classifier


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
