"""Trainings in which each epoch is scored by every criterion and on every test."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Final

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from robustbook._store.cache import Arrays
from robustbook.datasets import Dataset
from robustbook.datasets.diagvib import (
    CONFIGURED,
    OPPORTUNITIES,
    Environment,
    Setup,
    draw_all,
    opportunities,
)
from robustbook.selection import pair_scores
from robustbook.studies.domains._data import LEARNERS, fewest_digits, pictures
from robustbook.studies._rows import Row, rounded
from robustbook.studies.domains._training import Plan, Training

__all__ = ["FACTORS", "SELECTION_PLANS", "SHORTCUT_PLANS", "all_epochs", "epochs_of"]

#: Raise it with every change of what is trained, or of how it is measured.
VERSION: Final = 1
#: The factor in which the source domains differ.
FACTORS: Final = ("hue", "position")
#: How much is trained where source domains differ in a factor (Experiment 6).
SELECTION_PLANS: Final = {
    "full": Plan(
        source="mnist",
        size=64,
        width=16,
        count=3000,
        laps=1,
        epochs=20,
        batch_size=64,
        lr=1e-3,
        seeds=5,
        precision="bfloat16",
        validated=600,
        tested=800,
    ),
    "quick": Plan("digits", 32, 8, 300, 1, 6, 32, 5e-3, 2),
}
#: How much is trained where that factor gives the class away (Experiment 7).
SHORTCUT_PLANS: Final = {
    "full": Plan(
        source="mnist",
        size=64,
        width=16,
        count=2000,
        laps=1,
        epochs=15,
        batch_size=32,
        lr=1e-3,
        seeds=5,
        precision="bfloat16",
        validated=600,
        tested=600,
    ),
    "quick": Plan("digits", 32, 8, 120, 1, 6, 32, 5e-3, 2),
}


def _setups() -> dict[str, Setup]:
    # The configuration's test environments are cumulative also for position; twice
    # the same domain, the thesis's SD, is printed for it but not configured.
    found = {factor: CONFIGURED[f"selection-{factor}"] for factor in FACTORS}
    return found | {
        f"{factor} {setting}": opportunities(setting, factor=factor)
        for factor in FACTORS
        for setting in OPPORTUNITIES
    }


_SETUPS: Final[Mapping[str, Setup]] = MappingProxyType(_setups())


def all_epochs(
    tasks: Sequence[tuple[str, str]],
    plan: Plan,
    *,
    of_tests: Sequence[str] = (),
    seed: int,
    device: str,
) -> list[Row]:
    """Rows of all trainings: seed after seed, so that a part of them is of use.

    Parameters
    ----------
    tasks : sequence of (str, str)
        Setups, as :func:`epochs_of` takes them, and learners.
    plan : Plan
        How much is trained.
    of_tests : sequence of str
        What is told of the pair of the first two test environments.
    seed : int
        Of the validation and test images; the first of the trainings'.
    device : str
        Where to train.

    Returns
    -------
    list of dict
        One for each training and epoch.
    """

    def wanted(name: str) -> bool:
        part, _, column = name.partition("/")
        if part == "tests":
            return column in of_tests
        return column not in ("beta", "confidence")

    rows: list[Row] = []
    todo = [
        (training_seed, setup, learner)
        for training_seed in range(seed, seed + plan.seeds)
        for setup, learner in tasks
    ]
    for training_seed, setup, learner in tqdm(todo, desc="trainings", disable=None):
        factor, _, setting = setup.partition(" ")
        shared: Row = {"factor": factor, **({"setting": setting} if setting else {})}
        shared |= {"learner": learner, "training_seed": training_seed}
        epochs = epochs_of(
            setup, learner, plan, training_seed=training_seed, seed=seed, device=device
        )
        rows += [
            {**shared, **{name: row[name] for name in row if wanted(name)}}
            for row in epochs
        ]
    return rows


def epochs_of(
    setup: str,
    learner: str,
    plan: Plan,
    *,
    training_seed: int,
    seed: int = 0,
    device: str = "auto",
) -> list[dict[str, float]]:
    """Train and score every epoch, or read what that gave.

    Parameters
    ----------
    setup : str
        A factor of :data:`FACTORS`, or one and a setting of
        :data:`robustbook.datasets.diagvib.OPPORTUNITIES`, such as "hue 1-CGO".
    learner : str
        A key of :data:`robustbook.studies.domains._data.LEARNERS`.
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
    list of dict
        One for each epoch: "epoch", "loss", "risk"; for each validation pair, and for
        the pair "tests" of the first two test environments, "NAME/accuracy" and so on
        as :func:`criteria` has them; "test/0" ... the accuracies.
    """
    training = Training(
        "epochs_of", VERSION, setup, learner, LEARNERS[learner], plan,
        training_seed=training_seed, seed=seed, device=device,
    )  # fmt: skip

    def compute() -> Arrays:
        chosen = _SETUPS[setup]
        validation, tests = _held_out(setup, plan, seed)
        train = draw_all(
            chosen.training,
            shapes=chosen.shapes,
            source=plan.source,
            count=plan.count,
            seed=training_seed,
        )
        _, history = training.run(
            pictures(train, plan),
            num_classes=len(chosen.shapes),
            pairs={**validation, "tests": (tests[0], tests[1])},
            tests={str(k): test for k, test in enumerate(tests)},
            measure=criteria,
        )
        return {"epochs": np.array(json.dumps(history.rows))}

    arrays = training.stored(compute)
    rows: list[dict[str, float]] = json.loads(str(arrays["epochs"]))
    return [{name: rounded(value) for name, value in row.items()} for row in rows]


def criteria(logits: Tensor, shifted: Tensor, labels: Tensor) -> dict[str, float]:
    """What an epoch may be selected by, with the same digits in a pair and with others.

    Parameters
    ----------
    logits, shifted : Tensor, shape (N, K)
        Logits of two samples of the same digits.
    labels : Tensor, shape (N,)
        Classes.

    Returns
    -------
    dict of str to float
        "accuracy" over both samples; "afr_pred", "pa", "beta" and "confidence" of the
        pairs; "other_afr_pred" and "other_pa" where each digit is paired with the next
        one of its class instead; "classes", how many classes are predicted.
    """
    same = pair_scores(logits, shifted, labels)
    other = pair_scores(logits, shifted[_next_of_class(labels)], labels)
    predicted = torch.cat([logits, shifted]).argmax(1)
    kept = ("accuracy", "afr_pred", "pa", "beta", "confidence")
    return {
        **{name: same[name] for name in kept},
        **{f"other_{name}": other[name] for name in ("afr_pred", "pa")},
        "classes": len(torch.unique(predicted)),
    }


def _next_of_class(labels: Tensor) -> Tensor:
    """For each sample the index of the next one of its class, in a circle."""
    index = torch.empty_like(labels)
    for label in torch.unique(labels):
        mine = torch.nonzero(labels == label).flatten()
        index[mine] = mine.roll(-1)
    return index


@lru_cache(maxsize=1)
def _held_out(
    setup: str, plan: Plan, seed: int
) -> tuple[dict[str, tuple[Dataset, Dataset]], list[Dataset]]:
    """Validation pairs, and tests: the same digits in all environments of a part."""
    chosen = _SETUPS[setup]
    wanted = dict(chosen.validation)
    if setup in FACTORS:
        wanted = {"SD": (chosen.training[0], chosen.training[0]), **wanted}
    # Each environment once, also if it is part of several pairs.
    environments: list[Environment] = []
    for pair in wanted.values():
        environments += [env for env in pair if env not in environments]
    samples = _drawn(environments, chosen.shapes, "validation", plan, seed)
    pairs = {
        name: (samples[environments.index(one)], samples[environments.index(two)])
        for name, (one, two) in wanted.items()
    }
    return pairs, _drawn(chosen.tests, chosen.shapes, "test", plan, seed)


def _drawn(
    environments: Sequence[Environment],
    shapes: tuple[int, ...],
    split: str,
    plan: Plan,
    seed: int,
) -> list[Dataset]:
    all_digits = len(shapes) * plan.laps * fewest_digits(plan, split, shapes)
    most = plan.tested if split == "test" else plan.validated
    scenes = draw_all(
        environments,
        shapes=shapes,
        source=plan.source,
        count=all_digits if most is None else min(most, all_digits),
        split=split,
        paired=True,
        seed=seed,
    )
    return pictures(scenes, plan)
