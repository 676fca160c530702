"""Trainings in which each epoch is scored by every criterion and on every test."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Final

import torch
from torch import Tensor

from robustbook._store.cache import Arrays
from robustbook.datasets import Dataset
from robustbook.datasets.diagvib import CONFIGURED, OPPORTUNITIES, Setup, opportunities
from robustbook.selection import pair_scores
from robustbook.studies._run import Run, decimals
from robustbook.studies.domains._pairs import LEARNERS
from robustbook.studies.domains._pictures import (
    held_out_scenes,
    pictures,
    training_pictures,
)
from robustbook.studies.domains._training import Training, TrainingSetting
from robustbook.training import History

#: The factor in which the source domains differ.
FACTORS: Final = ("hue", "position")

# The configuration's test environments are cumulative also for position; twice the
# same domain, the thesis's SD, is printed for it but not configured.
_SETUPS: Final[Mapping[str, Setup]] = MappingProxyType(
    {factor: CONFIGURED[f"selection-{factor}"] for factor in FACTORS}
    | {
        f"{factor} {setting}": opportunities(setting, factor=factor)
        for factor in FACTORS
        for setting in OPPORTUNITIES
    }
)


def epochs_of(
    run: Run[TrainingSetting], setup: str, learner: str, training_seed: int
) -> list[dict[str, float]]:
    """Train and score every epoch, or read what that gave.

    One dictionary for each epoch: "epoch", "loss", "risk"; for each validation pair,
    and for the pair "tests" of the first two test environments, "NAME/accuracy" and so
    on as :func:`criteria` has them; "test/0" ... the accuracies.
    """
    training = Training(run, __name__, setup, learner, LEARNERS[learner], training_seed)

    def compute() -> tuple[History, Arrays]:
        validation, tests = held_out(
            _SETUPS[setup], run.setting, run.seed, one_domain=setup in FACTORS
        )
        _, history = training.train(
            training_pictures(_SETUPS[setup], run.setting, training_seed),
            num_classes=len(_SETUPS[setup].shapes),
            pairs={**validation, "tests": (tests[0], tests[1])},
            tests={str(k): test for k, test in enumerate(tests)},
            measure=criteria,
        )
        return history, {}

    rows, _ = training.stored(compute)
    return [{name: decimals(value) for name, value in row.items()} for row in rows]


def criteria(logits: Tensor, shifted: Tensor, labels: Tensor) -> dict[str, float]:
    """What an epoch may be selected by, with the same digits in a pair and with others.

    "accuracy" over both samples; "same_answer_rate", "pa" and "beta" of the pairs;
    "other_same_answer_rate" and "other_pa" where each digit is paired with the next one
    of its class instead.
    """
    same = pair_scores(logits, shifted, labels)
    other = pair_scores(logits, shifted[_next_of_class(labels)], labels)
    return {
        **{name: same[name] for name in ("accuracy", "same_answer_rate", "pa", "beta")},
        **{f"other_{name}": other[name] for name in ("same_answer_rate", "pa")},
    }


def _next_of_class(labels: Tensor) -> Tensor:
    """For each sample the index of the next one of its class, in a circle."""
    index = torch.empty_like(labels)
    for label in torch.unique(labels):
        mine = torch.nonzero(labels == label).flatten()
        index[mine] = mine.roll(-1)
    return index


@lru_cache(maxsize=1)
def held_out(
    setup: Setup, setting: TrainingSetting, seed: int, *, one_domain: bool = False
) -> tuple[dict[str, tuple[Dataset, Dataset]], list[Dataset]]:
    """Validation pairs, and tests: the same digits in all environments of a part."""
    wanted = dict(setup.validation)
    if one_domain:
        wanted = {"SD": (setup.training[0], setup.training[0]), **wanted}
    # Each environment once, also if it is part of several pairs.
    environments = list(dict.fromkeys(one for pair in wanted.values() for one in pair))
    samples, tests = (
        pictures(held_out_scenes(setup, some, split, setting, seed, most=most), setting)
        for some, split, most in (
            (environments, "validation", setting.validated),
            (setup.tests, "test", setting.tested),
        )
    )
    pairs = {
        name: (samples[environments.index(one)], samples[environments.index(two)])
        for name, (one, two) in wanted.items()
    }
    return pairs, tests
