"""More plain networks to start from: other seeds of the recipe of a stored one."""

from __future__ import annotations

from functools import partial

import torch
from torch import nn

from robustbook._store.cache import Arrays, cached_arrays
from robustbook.datasets import Dataset, load_dataset
from robustbook.models import build_model
from robustbook.studies._run import data_sum
from robustbook.training import RECIPES, Recipe, train_classifier


def plain(dataset: str, seed: int) -> nn.Module:
    """Train the plain convolutional network of a data set, or read it from the cache.

    Seeds 0 and 1 give the networks that are stored as "DATASET-cnn-s0" and "-s1".
    """
    (recipe,) = (one for one in RECIPES[dataset] if one.model == f"{dataset}-cnn")
    model = build_model(recipe.arch, seed=seed, options=dict(recipe.options))
    data = load_dataset(dataset, "train")
    stored = cached_arrays(
        {"recipe": repr(recipe), "data": data_sum(data), "seed": seed},
        partial(_weights, model, recipe, data, seed),
        code=__name__,
    )
    model.load_state_dict({k: torch.from_numpy(v) for k, v in stored.items()})
    return model


def _weights(model: nn.Module, recipe: Recipe, data: Dataset, seed: int) -> Arrays:
    train_classifier(
        model, data, loss=recipe.loss, epochs=recipe.epochs, lr=recipe.lr,
        batch_size=recipe.batch_size, seed=seed, progress=False,
    )  # fmt: skip
    return {k: v.detach().numpy() for k, v in model.state_dict().items()}


#: For :func:`robustbook.models.load_model`, which takes them by import path.
mnist_s2, mnist_s3, mnist_s4 = (partial(plain, "mnist", seed) for seed in (2, 3, 4))
