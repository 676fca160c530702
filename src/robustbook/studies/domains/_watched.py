"""Trainings whose features are recorded after every epoch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import numpy as np
import torch

from robustbook._store.cache import Arrays
from robustbook.models import features_of
from robustbook.selection import pair_scores
from robustbook.studies._run import Run
from robustbook.studies._statistics import Values
from robustbook.studies.domains._pictures import (
    SETUPS,
    held_out_scenes,
    pictures,
    training_pictures,
)
from robustbook.studies.domains._training import Training, TrainingSetting
from robustbook.training import ERM, IRM, History, Learner

#: The two learners of the experiment with the options of the published configuration,
#: and a third whose penalty weighs as much as its authors let it.
WATCHED_LEARNERS: Final[Mapping[str, Learner]] = MappingProxyType(
    {"ERM": ERM(), "IRM": IRM(), "IRM-100": IRM(weight=100.0, warmup_epochs=2)}
)
#: Pairs whose features are recorded.
PAIRS: Final = 128


@dataclass(frozen=True)
class Watched:
    """What a training left, of n validation pairs; pair i is one digit."""

    #: Scores of each epoch, as :class:`robustbook.training.History` has them.
    epochs: list[dict[str, float]]
    #: After each epoch, the features of the two samples: (T, 2, n, D).
    features: Values
    #: The class of each pair, 0 or 1: (n,).
    labels: Values


def watch_training(
    run: Run[TrainingSetting], setup: str, learner: str, training_seed: int
) -> Watched:
    """Train and watch, or read what that gave."""
    training = Training(
        run, __name__, setup, learner, WATCHED_LEARNERS[learner], training_seed
    )
    chosen, setting = SETUPS[setup], run.setting

    def compute() -> tuple[History, Arrays]:
        # The pairs of Experiment 5a: the same digits in both environments.
        environments = chosen.validation["ID"]
        first, second = pictures(
            held_out_scenes(chosen, environments, "validation", setting, run.seed),
            setting,
        )
        few = [part.subset(slice(PAIRS)) for part in (first, second)]
        _, history = training.train(
            training_pictures(chosen, setting, training_seed),
            pairs={"same": (first, second)},
            measure=pair_scores,
            watch={
                "features": lambda model: torch.stack(
                    [features_of(model, part.images / 255) for part in few]
                )
            },
        )
        return history, {
            "features": torch.stack(history.watched["features"]).numpy(),
            "labels": few[0].labels.numpy(),
        }

    epochs, arrays = training.stored(compute)
    return Watched(epochs, arrays["features"].astype(np.float64), arrays["labels"])
