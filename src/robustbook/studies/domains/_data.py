"""Trainings on two domains: scores of every epoch, logits of every test environment."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor, nn

from robustbook._store.cache import Arrays
from robustbook.datasets import Dataset, load_dataset
from robustbook.datasets.diagvib import (
    CONFIGURED,
    DISCRIMINABILITY,
    Scenes,
    Setup,
    draw_all,
)
from robustbook.models import features_of, logits_of, resolve_device
from robustbook.selection import pair_scores
from robustbook.studies.domains._training import Plan, Training
from robustbook.studies.adversarial.attacked import data_sha256

__all__ = [
    "DIGITS",
    "LEARNERS",
    "PLANS",
    "SELECTED_BY",
    "SETUPS",
    "TrainedPair",
    "domain_sums",
    "fewest_digits",
    "pictures",
    "train_learner",
    "training_data",
]

#: Raise it with every change of what is trained, or of how it is measured.
VERSION: Final = 2
#: Environments as the papers print them, and as their published configuration has
#: them.
SETUPS: Final[Mapping[str, Setup]] = MappingProxyType(
    {"printed": DISCRIMINABILITY, "configured": CONFIGURED["discriminability"]}
)
#: Learners with the options of the published configuration.
LEARNERS: Final[Mapping[str, Learner]] = MappingProxyType(
    {"ERM": ERM(), "IRM": IRM(), "LISA": LISA()}
)
#: Whether the two samples of a pair show the same digits (Experiment 5a) or share
#: none (5b).
DIGITS: Final = ("same", "other")
#: The criterion that selects the weights with which the tests are evaluated.
SELECTED_BY: Final = "same/accuracy"
_KEPT: Final = (SELECTED_BY, "same/afr_pred", "same/pa")


PLANS: Final = {
    "full": Plan("mnist", 64, 16, 5000, 1, 15, 64, 1e-3, 5, precision="bfloat16"),
    "quick": Plan("digits", 32, 8, 400, 2, 8, 32, 5e-3, 2),
}


@dataclass(frozen=True)
class TrainedPair:
    """What a training left, each test sample by whether it shows the same digits.

    Attributes
    ----------
    epochs : list of dict
        Scores of each epoch, as :class:`robustbook.training.History` has them.
    first : dict of str to Tensor, shape (N, K)
        Logits of the first sample, unshifted.
    second : dict of str to Tensor, shape (F, N, K)
        Logits of the second sample with 0, 1, ... F - 1 factors shifted; scene i is
        the same digit in all of them.
    cosine : dict of str to Tensor, shape (F, N)
        Cosine similarity of the features of the first and the second sample.
    labels, clusters : dict of str to Tensor, shape (N,)
        Classes, and a number for the digit in the first sample.
    """

    epochs: list[dict[str, float]]
    first: dict[str, Tensor]
    second: dict[str, Tensor]
    cosine: dict[str, Tensor]
    labels: dict[str, Tensor]
    clusters: dict[str, Tensor]


def train_learner(
    setup: str,
    learner: str,
    plan: Plan,
    *,
    training_seed: int,
    seed: int = 0,
    device: str = "auto",
) -> TrainedPair:
    """Train and evaluate, or read what that gave.

    Parameters
    ----------
    setup, learner : str
        Keys of :data:`SETUPS` and :data:`LEARNERS`.
    plan : Plan
        How much.
    training_seed : int
        Of the training images, the initial weights and the training.
    seed : int
        Of the validation and test images.
    device : str
        Where to train; not part of what is looked for in the cache.

    Returns
    -------
    TrainedPair
        Scores of the epochs; logits at the best epoch by :data:`SELECTED_BY`, the
        first of several.
    """
    training = Training(
        "train_learner", VERSION, setup, learner, LEARNERS[learner], plan,
        training_seed=training_seed, seed=seed, device=device,
    )  # fmt: skip

    def compute() -> Arrays:
        held = _held_out(setup, plan, seed)
        model, history = training.run(
            training_data(setup, plan, training_seed),
            pairs=held.pairs,
            measure=pair_scores,
            keep=_KEPT,
        )
        model.load_state_dict(history.weights[SELECTED_BY])
        model.to(resolve_device(device)).eval()
        arrays: Arrays = {"epochs": np.array(json.dumps(history.rows))}
        for digits in DIGITS:
            arrays |= {
                f"{digits}/{name}": value.numpy()
                for name, value in _evaluated(model, held, digits).items()
            }
        return arrays

    return _unpacked(training.stored(compute))


def _unpacked(arrays: Arrays) -> TrainedPair:
    def both(name: str) -> dict[str, Tensor]:
        return {key: torch.from_numpy(arrays[f"{key}/{name}"]) for key in DIGITS}

    return TrainedPair(
        epochs=json.loads(str(arrays["epochs"])),
        **{
            name: both(name)
            for name in ("first", "second", "cosine", "labels", "clusters")
        },
    )


def domain_sums(plan: Plan) -> dict[str, str]:
    """sha256 of the digits that the images are made of."""
    return {
        f"{plan.source} {split}": data_sha256(load_dataset(plan.source, split))
        for split in ("train", "test")
    }


# ------------------------------------------------------------------------ images


@dataclass(frozen=True, eq=False)
class _HeldOut:
    """Validation pairs; test samples, the first one and the second ones."""

    pairs: dict[str, tuple[Dataset, Dataset]]
    tests: dict[str, list[Dataset]]
    clusters: dict[str, Tensor]


@lru_cache(maxsize=1)
def training_data(setup: str, plan: Plan, seed: int) -> list[Dataset]:
    """Images of the source domains; those of a plan and a seed are always the same."""
    chosen = SETUPS[setup]
    scenes = draw_all(
        chosen.training,
        shapes=chosen.shapes,
        source=plan.source,
        count=plan.count,
        seed=seed,
    )
    return pictures(scenes, plan)


@lru_cache(maxsize=1)
def _held_out(setup: str, plan: Plan, seed: int) -> _HeldOut:
    chosen = SETUPS[setup]
    pairs, tests, clusters = {}, {}, {}
    for digits in DIGITS:
        first, second = pictures(
            _drawn(chosen, chosen.validation["ID"], "validation", digits, plan, seed),
            plan,
        )
        pairs[digits] = first, second
        # The second sample without a shift is the first one if digits are the same.
        environments = (chosen.tests[0], *chosen.tests)
        scenes = _drawn(chosen, environments, "test", digits, plan, seed)
        tests[digits] = pictures(scenes, plan)
        base = int(scenes[0].instances.max()) + 1
        clusters[digits] = scenes[0].labels * base + scenes[0].instances
    return _HeldOut(pairs, tests, clusters)


def _drawn(
    setup: Setup,
    environments: Sequence[Any],
    split: str,
    digits: str,
    plan: Plan,
    seed: int,
) -> tuple[Scenes, ...]:
    """A first sample, and second ones of the same digits or of other ones."""
    paired = [0] + [int(digits == "other")] * (len(environments) - 1)
    parts = max(paired) + 1
    least = fewest_digits(plan, split, setup.shapes)
    count = len(setup.shapes) * plan.laps * (least // parts)
    return draw_all(
        environments,
        shapes=setup.shapes,
        source=plan.source,
        count=count,
        split=split,
        paired=paired,
        seed=seed,
    )


def fewest_digits(plan: Plan, split: str, shapes: Sequence[int]) -> int:
    """How many pictures there are of the digit with the fewest."""
    return min(_count_digits(plan.source, split, shape) for shape in shapes)


def _count_digits(source: str, split: str, shape: int) -> int:
    """How many pictures of a digit there are: four fifths train, the rest validate."""
    labels = load_dataset(source, "test" if split == "test" else "train").labels
    total = int((labels == shape).sum())
    return total if split == "test" else total - total * 4 // 5


def pictures(scenes: Sequence[Scenes], plan: Plan) -> list[Dataset]:
    """Images of scenes at a plan's size, as uint8."""
    return [one.dataset(size=plan.size, dtype=torch.uint8) for one in scenes]


# -------------------------------------------------------------------- evaluation


def _evaluated(model: nn.Module, held: _HeldOut, digits: str) -> dict[str, Tensor]:
    first, *others = held.tests[digits]
    logits = [_in_parts(logits_of, model, one) for one in (first, *others)]
    features = [_in_parts(features_of, model, one) for one in (first, *others)]
    cosine = [
        torch.cosine_similarity(features[0].double(), one.double()).float()
        for one in features[1:]
    ]
    return {
        "first": logits[0],
        "second": torch.stack(logits[1:]),
        "cosine": torch.stack(cosine),
        "labels": first.labels,
        "clusters": held.clusters[digits],
    }


def _in_parts(function: Any, model: nn.Module, data: Dataset) -> Tensor:
    parts = torch.split(data.images, 128)
    return torch.cat([function(model, part / 255) for part in parts])
