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
from robustbook.studies._rows import decimals
from robustbook.studies._run import Run
from robustbook.studies.domains._pairs import LEARNERS
from robustbook.studies.domains._pictures import fewest_digits, pictures
from robustbook.studies.domains._training import Training, TrainingSetting

__all__ = ["FACTORS", "criteria", "epochs_of"]

#: The factor in which the source domains differ.
FACTORS: Final = ("hue", "position")


def _setups() -> dict[str, Setup]:
    # The configuration's test environments are cumulative also for position; twice
    # the same domain, the thesis's SD, is printed for it but not configured.
    plain = {factor: CONFIGURED[f"selection-{factor}"] for factor in FACTORS}
    return plain | {
        f"{factor} {setting}": opportunities(setting, factor=factor)
        for factor in FACTORS
        for setting in OPPORTUNITIES
    }


_SETUPS: Final[Mapping[str, Setup]] = MappingProxyType(_setups())


def epochs_of(
    run: Run[TrainingSetting], setup: str, learner: str, training_seed: int
) -> list[dict[str, float]]:
    """Train and score every epoch, or read what that gave.

    One dictionary for each epoch: "epoch", "loss", "risk"; for each validation pair,
    and for the pair "tests" of the first two test environments, "NAME/accuracy" and so
    on as :func:`criteria` has them; "test/0" ... the accuracies.
    """
    training = Training(run, __name__, setup, learner, LEARNERS[learner], training_seed)
    setting = run.setting

    def compute() -> Arrays:
        chosen = _SETUPS[setup]
        validation, tests = _held_out(setup, setting, run.seed)
        train = draw_all(
            chosen.training,
            shapes=chosen.shapes,
            source=setting.dataset,
            count=setting.count,
            seed=training_seed,
        )
        _, history = training.train(
            pictures(train, setting),
            num_classes=len(chosen.shapes),
            pairs={**validation, "tests": (tests[0], tests[1])},
            tests={str(k): test for k, test in enumerate(tests)},
            measure=criteria,
        )
        return {"epochs": np.array(json.dumps(history.rows))}

    arrays = training.stored(compute)
    rows: list[dict[str, float]] = json.loads(str(arrays["epochs"]))
    return [{name: decimals(value) for name, value in row.items()} for row in rows]


def criteria(logits: Tensor, shifted: Tensor, labels: Tensor) -> dict[str, float]:
    """What an epoch may be selected by, with the same digits in a pair and with others.

    "accuracy" over both samples; "afr_pred", "pa", "beta" and "confidence" of the
    pairs;
    "other_afr_pred" and "other_pa" where each digit is paired with the next one of its
    class instead; "classes", how many classes are predicted.
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
    setup: str, setting: TrainingSetting, seed: int
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
    samples = _drawn(environments, chosen.shapes, "validation", setting, seed)
    pairs = {
        name: (samples[environments.index(one)], samples[environments.index(two)])
        for name, (one, two) in wanted.items()
    }
    return pairs, _drawn(chosen.tests, chosen.shapes, "test", setting, seed)


def _drawn(
    environments: Sequence[Environment],
    shapes: tuple[int, ...],
    split: str,
    setting: TrainingSetting,
    seed: int,
) -> list[Dataset]:
    all_digits = len(shapes) * setting.laps * fewest_digits(setting, split, shapes)
    most = setting.tested if split == "test" else setting.validated
    scenes = draw_all(
        environments,
        shapes=shapes,
        source=setting.dataset,
        count=all_digits if most is None else min(most, all_digits),
        split=split,
        paired=True,
        seed=seed,
    )
    return pictures(scenes, setting)
