"""Trainings whose features are recorded after every epoch."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import numpy as np
import torch
from torch import Tensor, nn

from robustbook._store.cache import Arrays
from robustbook.datasets import Dataset
from robustbook.datasets.diagvib import draw_all
from robustbook.models import features_of
from robustbook.selection import pair_scores
from robustbook.studies._run import Run
from robustbook.studies._statistics import Values
from robustbook.studies.domains._pictures import (
    SETUPS,
    fewest_digits,
    pictures,
    training_pictures,
)
from robustbook.studies.domains._training import Training, TrainingSetting
from robustbook.training import ERM, IRM, Learner

__all__ = ["WATCHED_LEARNERS", "Watched", "watch_training"]

#: The two learners of the experiment with the options of the published configuration,
#: and a third whose penalty weighs as much as its authors let it.
WATCHED_LEARNERS: Final[Mapping[str, Learner]] = MappingProxyType(
    {"ERM": ERM(), "IRM": IRM(), "IRM-100": IRM(weight=100.0, warmup_epochs=2)}
)
#: Pairs whose features are recorded.
PAIRS: Final = 128


@dataclass(frozen=True)
class Watched:
    """What a training left.

    Attributes
    ----------
    epochs : list of dict
        Scores of each epoch, as :class:`robustbook.training.History` has them.
    features : ndarray, shape (T, 2, n, D)
        After each epoch, the features of the two samples: pair i is one digit.
    heads : ndarray, shape (T, D + 1)
        Weights and bias of class 1 less those of class 0 in the last layer.
    labels : ndarray, shape (n,)
        The class of each pair, 0 or 1.
    """

    epochs: list[dict[str, float]]
    features: Values
    heads: Values
    labels: Values


def watch_training(
    run: Run[TrainingSetting], setup: str, learner: str, training_seed: int
) -> Watched:
    """Train and watch, or read what that gave."""
    training = Training(
        run, __name__, setup, learner, WATCHED_LEARNERS[learner], training_seed
    )
    setting = run.setting

    def compute() -> Arrays:
        pair = _validation_pair(setup, setting, run.seed)
        few = [part.subset(slice(PAIRS)) for part in pair]
        _, history = training.train(
            training_pictures(setup, setting, training_seed),
            pairs={"same": pair},
            measure=pair_scores,
            watch={
                "features": lambda model: torch.stack(
                    [features_of(model, part.images / 255) for part in few]
                ),
                "head": _head,
            },
        )
        return {
            "epochs": np.array(json.dumps(history.rows)),
            "features": torch.stack(history.watched["features"]).numpy(),
            "heads": torch.stack(history.watched["head"]).numpy(),
            "labels": few[0].labels.numpy(),
        }

    arrays = training.stored(compute)
    return Watched(
        epochs=json.loads(str(arrays["epochs"])),
        features=arrays["features"].astype(np.float64),
        heads=arrays["heads"].astype(np.float64),
        labels=arrays["labels"],
    )


def _validation_pair(
    setup: str, setting: TrainingSetting, seed: int
) -> tuple[Dataset, Dataset]:
    """The pairs of Experiment 5a: the same digits in both environments."""
    chosen = SETUPS[setup]
    fewest = fewest_digits(setting, "validation", chosen.shapes)
    scenes = draw_all(
        chosen.validation["ID"],
        shapes=chosen.shapes,
        source=setting.dataset,
        count=len(chosen.shapes) * setting.laps * fewest,
        split="validation",
        paired=True,
        seed=seed,
    )
    first, second = pictures(scenes, setting)
    return first, second


def _head(model: nn.Module) -> Tensor:
    last = [module for module in model.modules() if isinstance(module, nn.Linear)][-1]
    both = torch.cat([last.weight, last.bias[:, None]], 1)
    return both[1] - both[0]
