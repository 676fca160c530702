"""A training that the cache keeps: what defines it, and how it runs.

It leaves a checkpoint with its weights, so that a stopped one goes on, and an array
file with what it was for, so that none is repeated.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from torch import nn

from robustbook._store.cache import Arrays, cache_directory
from robustbook._store.provenance import fingerprint
from robustbook.datasets import Dataset
from robustbook.models import build_model, load_model
from robustbook.studies._run import Run, Setting
from robustbook.training import History, Learner, train_domains

#: The network of Chapter 15.
SMALL: Final = "strided-cnn"


@dataclass(frozen=True, kw_only=True)
class TrainingSetting(Setting):
    """How much is trained, on pictures of the digits of a data set."""

    #: Side of the images in pixels, and width of the network.
    size: int
    width: int
    #: Images an epoch from each domain, and of each in a step.
    count: int
    batch_size: int
    epochs: int
    lr: float
    #: Trainings of each learner.
    seeds: int
    norm: str = "group"
    #: `SMALL`, or one that can be loaded; whether its weights begin as they are loaded.
    network: str = SMALL
    borrowed: bool = False
    #: Whether the pictures of each environment are standardized by its own statistics.
    own: bool = False
    #: Of the training; evaluation is in float32.
    precision: str = "float32"
    #: How many times each digit is in a validation or test sample, and the most scenes.
    laps: int = 1
    validated: int | None = None
    tested: int | None = None

    def checkpoints(self) -> list[str]:
        """Those that this project or others publish; packages have their own sums."""
        return [name for name in self.loaded if not name.startswith("imagenet:")]

    @property
    def loaded(self) -> list[str]:
        """The network that is loaded, if it is."""
        return [] if self.network == SMALL else [self.network]

    @property
    def depends(self) -> dict[str, Any]:
        """All that one training depends on, for its key in the cache."""
        # Not on how many other trainings there are, and on no name.
        one = replace(self, seeds=0, network=SMALL)
        return {"networks": self.loaded, "data": self.dataset, "setting": one}


#: What all full and all quick settings share.
FULL: Final = partial(
    TrainingSetting, dataset="mnist", size=64, width=16, seeds=5, precision="bfloat16"
)
QUICK: Final = partial(
    TrainingSetting, dataset="digits", size=24, width=8, batch_size=32, seeds=2
)


@dataclass(frozen=True)
class Training:
    """One training on two domains, of a run's settings.

    The module `code`, with what it imports, is part of the key; `setup` and `name` are
    what a person calls the domains and the learner. `training_seed` is of the training
    images, the initial weights and the training; the seed of the run, of validation and
    test images.
    """

    run: Run[TrainingSetting]
    code: str
    setup: str
    name: str
    learner: Learner
    training_seed: int

    @property
    def _depends(self) -> dict[str, Any]:
        return {
            **self.run.setting.depends, "setup": self.setup, "learner": self.learner,
            "training_seed": self.training_seed,
        }  # fmt: skip

    @property
    def checkpoint(self) -> Path:
        """Where it is kept: a file for its name and everything that defines it."""
        key = self.run.key(self.code, **self._depends)
        text = json.dumps([key, fingerprint(self.code)], sort_keys=True)
        digest = hashlib.sha256(text.encode()).hexdigest()[:16]
        setup = self.setup.replace(" ", "-")
        name = f"{setup}-{self.name}-s{self.training_seed}-{digest}.pt"
        return cache_directory() / "domains" / name

    def stored(
        self, compute: Callable[[], tuple[History, Arrays]]
    ) -> tuple[list[dict[str, float]], Arrays]:
        """Scores of each epoch and what else is wanted, from the cache if there."""

        def computed() -> Arrays:
            history, arrays = compute()
            return {"epochs": np.array(json.dumps(history.rows)), **arrays}

        arrays = self.run.arrays(self.code, computed, code=self.code, **self._depends)
        return json.loads(str(arrays["epochs"])), arrays

    def train(
        self, domains: Sequence[Dataset], *, num_classes: int = 2, **options: Any
    ) -> tuple[nn.Module, History]:
        """Train, or go on where a training was stopped; options are what to measure."""
        setting = self.run.setting
        model = new_network(setting, num_classes, self.training_seed)
        history = train_domains(
            model, self.learner, domains, epochs=setting.epochs, lr=setting.lr,
            batch_size=setting.batch_size, seed=self.training_seed,
            checkpoint=self.checkpoint, device=self.run.device,
            precision=setting.precision, progress=False, **options,
        )  # fmt: skip
        return model, history


def new_network(setting: TrainingSetting, num_classes: int, seed: int) -> nn.Module:
    """A network with a new last layer; its other weights are borrowed, or new."""
    if setting.network == SMALL:
        shape = {"width": setting.width, "norm": setting.norm}
        shape["num_classes"] = num_classes
        return build_model(SMALL, seed=seed, options=shape)
    model = load_model(setting.network).requires_grad_(True)
    layers = dict(model.named_modules())
    name = [one for one, layer in layers.items() if isinstance(layer, nn.Linear)][-1]
    parent, _, place = name.rpartition(".")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if not setting.borrowed:
            for layer in layers.values():
                if hasattr(layer, "reset_parameters"):
                    layer.reset_parameters()
        last = nn.Linear(layers[name].in_features, num_classes)
    setattr(layers[parent], place, last)
    for layer in layers.values():
        if isinstance(layer, nn.BatchNorm2d):
            # torch's own: statistics that follow within an epoch.
            layer.momentum = 0.1
    return model
