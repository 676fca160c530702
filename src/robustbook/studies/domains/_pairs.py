"""Trainings on two domains: scores of every epoch, logits of every test environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final

import torch
from torch import Tensor, nn

from robustbook._store.cache import Arrays
from robustbook.datasets import Dataset
from robustbook.datasets.diagvib import Scenes
from robustbook.models import features_of, logits_of, resolve_device
from robustbook.selection import pair_scores
from robustbook.studies._run import Run
from robustbook.studies.domains._pictures import (
    SETUPS,
    held_out_scenes,
    pictures,
    training_pictures,
)
from robustbook.studies.domains._training import Training, TrainingSetting
from robustbook.training import ERM, IRM, LISA, History, Learner

#: Learners with the options of the published configuration.
LEARNERS: Final[Mapping[str, Learner]] = MappingProxyType(
    {"ERM": ERM(), "IRM": IRM(), "LISA": LISA()}
)
#: Whether the two samples of a pair show the same digits (Experiment 5a) or share
#: none (5b).
DIGITS: Final = ("same", "other")
#: The criterion that selects the weights with which the tests are evaluated.
SELECTED_BY: Final = "same/accuracy"


@dataclass(frozen=True)
class TrainedPair:
    """What a training left, each test sample by whether it shows the same digits.

    F second samples of N scenes have 0, 1, ... F - 1 factors shifted; scene i is the
    same digit in all of them.
    """

    #: Scores of each epoch, as :class:`robustbook.training.History` has them.
    epochs: list[dict[str, float]]
    #: Logits of the first sample, unshifted, (N, K), and of the second ones, (F, N, K).
    first: dict[str, Tensor]
    second: dict[str, Tensor]
    #: Cosine similarity of the features of the first and the second sample: (F, N).
    cosine: dict[str, Tensor]
    #: Classes, and a number for the digit in the first sample: (N,).
    labels: dict[str, Tensor]
    clusters: dict[str, Tensor]


def train_pair(
    run: Run[TrainingSetting], setup: str, learner: str, training_seed: int
) -> TrainedPair:
    """Train and evaluate, or read what that gave.

    Logits are those at the best epoch by :data:`SELECTED_BY`, the first of several.
    """
    training = Training(run, __name__, setup, learner, LEARNERS[learner], training_seed)
    setting = run.setting

    def compute() -> tuple[History, Arrays]:
        held = _held_out(setup, setting, run.seed)
        model, history = training.train(
            training_pictures(SETUPS[setup], setting, training_seed),
            pairs={"same": held.validation},
            measure=pair_scores,
            keep=(SELECTED_BY,),
        )
        model.load_state_dict(history.weights[SELECTED_BY])
        model.to(resolve_device(run.device)).eval()
        return history, {
            f"{digits}/{name}": value.numpy()
            for digits in DIGITS
            for name, value in _evaluated(model, held, digits).items()
        }

    epochs, arrays = training.stored(compute)
    by_digits = {
        name: {key: torch.from_numpy(arrays[f"{key}/{name}"]) for key in DIGITS}
        for name in ("first", "second", "cosine", "labels", "clusters")
    }
    return TrainedPair(epochs, **by_digits)


@dataclass(frozen=True, eq=False)
class _HeldOut:
    """A validation pair; test samples, the first one and the second ones."""

    validation: tuple[Dataset, Dataset]
    tests: dict[str, list[Dataset]]
    clusters: dict[str, Tensor]


@lru_cache(maxsize=1)
def _held_out(setup: str, setting: TrainingSetting, seed: int) -> _HeldOut:
    first, second = pictures(
        _drawn(setup, "validation", "same", setting, seed), setting
    )
    tests, clusters = {}, {}
    for digits in DIGITS:
        scenes = _drawn(setup, "test", digits, setting, seed)
        tests[digits] = pictures(scenes, setting)
        base = int(scenes[0].instances.max()) + 1
        clusters[digits] = scenes[0].labels * base + scenes[0].instances
    return _HeldOut((first, second), tests, clusters)


def _drawn(
    setup: str, split: str, digits: str, setting: TrainingSetting, seed: int
) -> tuple[Scenes, ...]:
    """A first sample, and second ones of the same digits or of other ones."""
    chosen = SETUPS[setup]
    # The second sample without a shift is the first one if digits are the same.
    tests = (chosen.tests[0], *chosen.tests)
    environments = tests if split == "test" else chosen.validation["ID"]
    other = digits == "other"
    most = setting.tested if split == "test" else setting.validated
    return held_out_scenes(
        chosen, environments, split, setting, seed, other_digits=other, most=most
    )


def _evaluated(model: nn.Module, held: _HeldOut, digits: str) -> dict[str, Tensor]:
    first, *others = held.tests[digits]
    logits = [_in_parts(logits_of, model, one) for one in (first, *others)]
    features = [_in_parts(features_of, model, one) for one in (first, *others)]
    cosine = [
        torch.cosine_similarity(features[0].double(), one.double()).float()
        for one in features[1:]
    ]
    return {
        "first": logits[0], "second": torch.stack(logits[1:]),
        "cosine": torch.stack(cosine), "labels": first.labels,
        "clusters": held.clusters[digits],
    }  # fmt: skip


def _in_parts(function: Any, model: nn.Module, data: Dataset) -> Tensor:
    parts = torch.split(data.images, 128)
    scale = 255 if data.images.dtype == torch.uint8 else 1
    return torch.cat([function(model, part / scale) for part in parts])
