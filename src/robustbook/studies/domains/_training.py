"""A training that the cache keeps: what defines it, and how it runs.

It leaves a checkpoint with its weights, so that a stopped one goes on, and an array
file with what it was for, so that none is repeated.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
from torch import nn

from robustbook._store.cache import Arrays, cache_directory, cached_arrays
from robustbook._store.provenance import fingerprint
from robustbook.datasets import Dataset
from robustbook.models import build_model
from robustbook.studies._run import Run, Setting
from robustbook.training import History, Learner, train_domains


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
    #: Of the training; evaluation is in float32.
    precision: str = "float32"
    #: How many times each digit is in a validation or test sample, and the most scenes.
    laps: int = 1
    validated: int | None = None
    tested: int | None = None


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
    test images. Where it is trained is not part of what is looked for in the cache.
    """

    run: Run[TrainingSetting]
    code: str
    setup: str
    name: str
    learner: Learner
    training_seed: int

    @property
    def configuration(self) -> dict[str, Any]:
        """All that defines the training beside the code, plain numbers and strings."""
        setting = asdict(self.run.setting)
        # Not part of it: how many other trainings there are, and networks.
        for name in ("seeds", "models"):
            del setting[name]
        return {
            "what": self.code, "setup": self.setup, "learner": self.name,
            "options": repr(self.learner), "training_seed": self.training_seed,
            "seed": self.run.seed, **setting,
        }  # fmt: skip

    @property
    def checkpoint(self) -> Path:
        """Where it is kept: a file for its name and everything that defines it."""
        text = json.dumps([self.configuration, fingerprint(self.code)], sort_keys=True)
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

        folder = self.checkpoint.parent
        arrays = cached_arrays(
            self.configuration, computed, code=self.code, directory=folder
        )
        return json.loads(str(arrays["epochs"])), arrays

    def train(
        self, domains: Sequence[Dataset], *, num_classes: int = 2, **options: Any
    ) -> tuple[nn.Module, History]:
        """Train, or go on where a training was stopped; options are what to measure."""
        setting = self.run.setting
        shape = {"width": setting.width, "norm": setting.norm}
        shape["num_classes"] = num_classes
        model = build_model("strided-cnn", seed=self.training_seed, options=shape)
        history = train_domains(
            model, self.learner, domains, epochs=setting.epochs, lr=setting.lr,
            batch_size=setting.batch_size, seed=self.training_seed,
            checkpoint=self.checkpoint, device=self.run.device,
            precision=setting.precision, progress=False, **options,
        )  # fmt: skip
        return model, history
