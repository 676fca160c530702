"""Records of trainings on two domains: scores, logits, or features."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor, nn

from robustbook._store.cache import Arrays
from robustbook.datasets import Dataset
from robustbook.datasets.diagvib import Scenes
from robustbook.models import features_of, logits_of, resolve_device
from robustbook.selection import pair_scores
from robustbook.studies._statistics import Values
from robustbook.studies.domains._pictures import (
    SETUPS,
    held_out_pictures,
    held_out_scenes,
    pictures,
    training_pictures,
    validation_pair,
)
from robustbook.studies.domains._training import (
    LEARNERS,
    Regime,
    TrainingSetting,
    new_network,
)
from robustbook.studies.run import Row, Run
from robustbook.training import History, train_domains

#: Whether the two samples of a pair show the same digits (Experiment 5a) or share
#: none (5b).
DIGITS: Final = ("same", "other")
#: The criterion that selects the weights with which the tests are evaluated.
SELECTED_BY: Final = "same/accuracy"
#: Pairs whose features are recorded.
PAIRS: Final = 128


def _train(
    run: Run[Any],
    setting: TrainingSetting,
    setup: str,
    learner: str,
    training_seed: int,
    **measured: Any,
) -> tuple[nn.Module, History]:
    """Train on source domains, whose pictures, weights and batches the seed draws."""
    sources = training_pictures(setup, setting.of_pictures, training_seed)
    model = new_network(setting, sources[0].num_classes, training_seed)
    options = ("epochs", "lr", "optimizer", "batch_size", "precision")
    how: dict[str, Any] = {name: getattr(setting, name) for name in options}
    how |= {"seed": training_seed, "device": run.device, "progress": False}
    history = train_domains(model, LEARNERS[learner], sources, **how, **measured)
    return model, history


# ----------------------------------------------------------- every epoch, every score


def scored_epochs(
    run: Run[Any],
    setting: TrainingSetting,
    setup: str,
    learner: str,
    training_seed: int,
    *,
    digits: int = 6,
) -> list[Row]:
    """Train and score every epoch.

    One row for each epoch: "epoch", "loss", "risk"; for each validation pair, and for
    the pair "tests" of the first two test environments, "NAME/accuracy" and so on as
    :func:`criteria` has them; "test/0" ... the accuracies. In a :class:`Regime`, the
    training seed draws the validation and test images, too, and rows have no "risk";
    they are kept in the cache.
    """
    is_regime = isinstance(setting, Regime)

    def compute() -> list[Row]:
        seed = training_seed if is_regime else run.seed
        pairs, tests = held_out_pictures(setup, setting.of_pictures, seed)
        pairs = {**pairs, "tests": (tests[0], tests[1])}
        numbered = {str(k): test for k, test in enumerate(tests)}
        how = run, setting, setup, learner, training_seed
        return _train(*how, pairs=pairs, tests=numbered, measure=criteria)[1].rows

    key = _key(setting, setup, learner, training_seed)
    epochs = run.rows("scored epochs", compute, **key) if is_regime else compute()
    left_out = {"risk"} if is_regime else set()
    return [
        {name: round(row[name], digits) for name in row if name not in left_out}
        for row in epochs
    ]


def _key(
    setting: TrainingSetting, setup: str, learner: str, training_seed: int
) -> dict[str, Any]:
    # The number of other trainings does not change this one.
    alone: dict[str, Any] = {"seeds": 0}
    if isinstance(setting, Regime):
        alone["setups"] = ()
    return {
        "networks": setting.models,
        "data": setting.dataset,
        "training": (replace(setting, **alone), setup, learner, training_seed),
        "code": __name__,
    }


def stored_columns(epoch: Row, of_tests: Collection[str] = ()) -> Row:
    """Columns of an epoch: no "beta", and of the pair of tests those asked for."""
    row: Row = {}
    for name, value in epoch.items():
        part, _, column = name.partition("/")
        if column in of_tests if part == "tests" else column != "beta":
            row[name] = value
    return row


def criteria(logits: Tensor, shifted: Tensor, labels: Tensor) -> dict[str, float]:
    """Criteria that select an epoch, with the same digits in a pair and with others.

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
        members = torch.nonzero(labels == label).flatten()
        index[members] = members.roll(-1)
    return index


# ------------------------------------------------------- logits at the selected epoch


@dataclass(frozen=True)
class TrainedPair:
    """Scores of a training, and its logits of test samples.

    The samples are grouped by whether both of a pair show the same digits. F second
    samples of N scenes have 0, 1, ... F - 1 factors shifted; scene i is the same digit
    in all of them.
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
    """Train and evaluate, or read the results from the cache.

    Logits are those at the best epoch by :data:`SELECTED_BY`, the first of several.
    """
    setting = run.setting

    def compute() -> Arrays:
        pairs = {"same": validation_pair(setup, setting, run.seed)}
        measured: Any = {"measure": pair_scores, "keep": (SELECTED_BY,)}
        how = run, setting, setup, learner, training_seed
        model, history = _train(*how, pairs=pairs, **measured)
        model.load_state_dict(history.weights[SELECTED_BY])
        model.to(resolve_device(run.device)).eval()
        arrays = {"epochs": np.array(json.dumps(history.rows))}
        for digits in DIGITS:
            samples = tested_samples(setup, digits, setting, run.seed)
            for name, value in _evaluated(model, *samples).items():
                arrays[f"{digits}/{name}"] = value.numpy()
        return arrays

    key = _key(setting, setup, learner, training_seed)
    arrays = run.arrays("trained pair", compute, **key)
    by_digits = {
        name: {key: torch.from_numpy(arrays[f"{key}/{name}"]) for key in DIGITS}
        for name in ("first", "second", "cosine", "labels", "clusters")
    }
    return TrainedPair(json.loads(str(arrays["epochs"])), **by_digits)


def tested_scenes(
    setup: str, digits: str, setting: TrainingSetting, seed: int
) -> tuple[Scenes, ...]:
    """A first sample, and second ones of the same digits or of other ones."""
    # The second sample without a shift is the first one if digits are the same.
    environments = (SETUPS[setup].tests[0], *SETUPS[setup].tests)
    return held_out_scenes(
        setup, environments, "test", setting, seed, other_digits=digits == "other"
    )


@lru_cache(maxsize=len(DIGITS))
def tested_samples(
    setup: str, digits: str, setting: TrainingSetting, seed: int
) -> tuple[list[Dataset], Tensor]:
    """Pictures of these scenes, and a number for the digit in each of the first."""
    scenes = tested_scenes(setup, digits, setting, seed)
    base = int(scenes[0].instances.max()) + 1
    return pictures(scenes, setting), scenes[0].labels * base + scenes[0].instances


def _evaluated(
    model: nn.Module, samples: list[Dataset], clusters: Tensor
) -> dict[str, Tensor]:
    first, *others = (_evaluate(logits_of, model, sample) for sample in samples)
    seen = [_evaluate(features_of, model, sample).double() for sample in samples]
    cosine = [torch.cosine_similarity(seen[0], other).float() for other in seen[1:]]
    return {
        "first": first,
        "second": torch.stack(others),
        "cosine": torch.stack(cosine),
        "labels": samples[0].labels,
        "clusters": clusters,
    }


def _evaluate(function: Any, model: nn.Module, data: Dataset) -> Tensor:
    scale = 255 if data.images.dtype == torch.uint8 else 1
    values: Tensor = function(model, data.images / scale, batch_size=128)
    return values


# ------------------------------------------------------------ features of every epoch


@dataclass(frozen=True)
class Watched:
    """Scores of a training, and features of n validation pairs of one digit each."""

    #: Scores of each epoch, as :class:`robustbook.training.History` has them.
    epochs: list[dict[str, float]]
    #: After each epoch, the features of the two samples: (T, 2, n, D).
    features: Values
    #: The class of each pair, 0 or 1: (n,).
    labels: Values


def watch_training(
    run: Run[TrainingSetting], setup: str, learner: str, training_seed: int
) -> Watched:
    """Train and record the features."""
    setting = run.setting
    pair = validation_pair(setup, setting, run.seed)
    few = [sample.subset(slice(PAIRS)) for sample in pair]

    def look(model: nn.Module) -> Tensor:
        return torch.stack([_evaluate(features_of, model, sample) for sample in few])

    how = run, setting, setup, learner, training_seed
    measured: Any = {"measure": pair_scores, "watch": {"features": look}}
    _, history = _train(*how, pairs={"same": pair}, **measured)
    features = torch.stack(history.watched["features"]).double().numpy()
    return Watched(history.rows, features, few[0].labels.numpy())
