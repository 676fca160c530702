"""A training that the cache keeps: what defines it, and how it runs.

It leaves a checkpoint with its weights, so that a stopped one goes on, and an array
file with what it was for, so that none is repeated.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from torch import nn

from robustbook._store.cache import Arrays, cache_directory, cached_arrays
from robustbook.datasets import Dataset
from robustbook.models import build_model
from robustbook.training import History, Learner, train_domains

__all__ = ["Plan", "Training"]


@dataclass(frozen=True)
class Plan:
    """How much is trained.

    Attributes
    ----------
    source : str
        Where the digits come from.
    size, width : int
        Side of the images in pixels, and width of the network.
    count : int
        Images an epoch from each domain.
    laps : int
        How many times each digit is in a validation or test sample.
    epochs, batch_size : int
        Passes, and images of each domain in a step.
    lr : float
        Adam's learning rate.
    seeds : int
        Trainings of each learner.
    norm : str
        Normalization in the network.
    precision : str
        Of the training; evaluation is in float32.
    validated, tested : int, optional
        At most so many scenes in a validation or test sample.
    """

    source: str
    size: int
    width: int
    count: int
    laps: int
    epochs: int
    batch_size: int
    lr: float
    seeds: int
    norm: str = "group"
    precision: str = "float32"
    validated: int | None = None
    tested: int | None = None


@dataclass(frozen=True)
class Training:
    """One training on two domains.

    Attributes
    ----------
    what : str
        Which kind; with `version` it names the program.
    version : int
        Raised with every change of what is trained, or of how it is measured.
    setup, learner : str
        What a person calls the domains and the learner.
    loss : Learner
        The learner.
    plan : Plan
        How much.
    training_seed : int
        Of the training images, the initial weights and the training.
    seed : int
        Of validation and test images.
    device : str
        Where to train; not part of what is looked for in the cache.
    prefix : str
        In front of the checkpoint's name.
    more : mapping
        What else defines it.
    """

    what: str
    version: int
    setup: str
    learner: str
    loss: Learner
    plan: Plan
    training_seed: int
    seed: int
    device: str = "auto"
    prefix: str = ""
    more: Mapping[str, int] = field(default_factory=dict)

    @property
    def configuration(self) -> dict[str, Any]:
        """All that defines the training, in plain numbers and strings."""
        found = {
            "what": self.what,
            "version": self.version,
            "setup": self.setup,
            "learner": self.learner,
            "options": repr(self.loss),
            "training_seed": self.training_seed,
            "seed": self.seed,
            **self.more,
            **asdict(self.plan),
        }
        # Not part of it: how many other trainings there are.
        del found["seeds"]
        return found

    @property
    def checkpoint(self) -> Path:
        """Where it is kept: a file for its name and everything that defines it."""
        text = json.dumps(self.configuration, sort_keys=True)
        digest = hashlib.sha256(text.encode()).hexdigest()[:16]
        setup = self.setup.replace(" ", "-")
        name = f"{self.prefix}{setup}-{self.learner}-s{self.training_seed}"
        return cache_directory() / "domains" / f"{name}-{digest}.pt"

    def stored(self, compute: Callable[[], Arrays]) -> Arrays:
        """Return what the training was for, from the cache if it is there.

        Parameters
        ----------
        compute : callable
            Trains, and returns arrays by name.

        Returns
        -------
        dict of str to ndarray
            The arrays.
        """
        return cached_arrays(
            self.configuration, compute, directory=self.checkpoint.parent
        )

    def run(
        self, domains: Sequence[Dataset], *, num_classes: int = 2, **options: Any
    ) -> tuple[nn.Module, History]:
        """Train, or go on where a training was stopped.

        Parameters
        ----------
        domains : sequence of Dataset
            To train on.
        num_classes : int, default 2
            K.
        **options
            What to measure, as :func:`robustbook.training.train_domains` takes it.

        Returns
        -------
        torch.nn.Module
            The network, with the weights of the last epoch.
        History
            Scores, and what was kept or watched.
        """
        plan = self.plan
        shape = {"width": plan.width, "num_classes": num_classes, "norm": plan.norm}
        model = build_model("strided-cnn", seed=self.training_seed, options=shape)
        history = train_domains(
            model,
            self.loss,
            domains,
            epochs=plan.epochs,
            lr=plan.lr,
            batch_size=plan.batch_size,
            seed=self.training_seed,
            checkpoint=self.checkpoint,
            device=self.device,
            precision=plan.precision,
            progress=False,
            **options,
        )
        return model, history
