"""How far networks agree with people on the names of images."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
from torch import Tensor, nn

from robustbook.agreement import soft_label_agreement
from robustbook.datasets import load_votes
from robustbook.models import load_model, logits_of
from robustbook.studies._statistics import (
    Values,
    bootstrap_weights,
    interval_row,
    middle_95,
)
from robustbook.studies.families import matched_difference
from robustbook.studies.run import Row, Run, Setting

#: With the labels of the data set, the crowd, a random person, and a random person who
#: names something else than the label.
MEASURES: Final = ("labels", "crowd", "person", "second")
#: An image is clear if at least this share of people gives it the same name.
CLEAR: Final = 0.9
#: A constant added to counts before their logarithms are logits.
_PSEUDO: Final = 0.5
#: Resamples of the images, and random halves of the people.
_DRAWS: Final = {"full": 2000, "quick": 200}
_HALVES: Final = {"full": 10, "quick": 2}
#: Made-up people for each image.
_PEOPLE: Final = 50

Counts = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class PeopleSetting(Setting):
    """Images and networks, and the people who name the images."""

    #: Names, and whether they were trained against attacks or noise.
    models: dict[str, bool]


SETTINGS: Final[dict[str, tuple[Setting, ...]]] = {
    "quick": (
        PeopleSetting(
            dataset="digits", samples=300,
            models={
                "digits-linear-s0": False, "digits-cnn-s0": False,
                "digits-cnn-s1": False, "digits-cnn-s2": False,
                "digits-cnn-noise-s0": True, "digits-cnn-noise-s1": True,
                "digits-cnn-adv-s0": True, "digits-cnn-adv-s1": True,
            },
        ),
        # Nobody was asked: a network speaks for the people.
        Setting(dataset="digits", samples=300, models=("digits-linear-s1",)),
    ),
    "full": (
        PeopleSetting(
            dataset="cifar10", split="test1000",
            models={
                "cifar10-resnet20": False, "cifar10-resnet32": False,
                "cifar10-resnet44": False, "cifar10-resnet56": False,
                "cifar10-captum_lenet": False, "cifar10-marabou_small": False,
                "cifar10-marabou_medium": False, "cifar10-marabou_large": False,
                "cifar10-cnn_a_adv": True, "cifar10-cnn_a_adv4": True,
                "cifar10-cnn_a_adv_alt": True, "cifar10-cnn_a_mix": True,
                "cifar10-cnn_a_mix4": True, "cifar10-conv_small_pgd": True,
                "cifar10-oval_wide_kw": True, "cifar10-resnet2b_adv": True,
                "cifar10-resnet4b_adv": True,
            },
        ),
        Setting(dataset="cifar10h", split="test1000"),
    ),
}  # fmt: skip


def rows(run: Run[Setting]) -> Iterator[Row]:
    """Measure the agreement of each network with people, and of people with people.

    Rows with ``what`` = "people": how many images are clear, how often two
    persons give one name (``same``), and for each of :data:`MEASURES` but the labels
    the agreement of a random half of the people with the others, beside the most that
    any posterior reaches (``_cap``); "model", one a network: the same measures with
    their inverse temperatures, by how much the crowd's exceeds that of the labels
    (``gain``), accuracy, how often a random person gives its name, and the agreement
    with the crowd on images that are clear and on those that are not;
    "robust": how much more robust networks agree than others of the same agreement with
    the labels, of all networks and of those whose agreement others reach
    (``overlapping``), with 95 % intervals over images. Errors are over images.
    """
    networks, people = run.settings
    assert isinstance(networks, PeopleSetting)
    data = networks.data()
    votes, labels = _votes_of(people, run), data.labels.numpy()
    random = np.random.default_rng([run.seed, 1])
    yield _people_row(votes, labels, random, _HALVES[run.profile])
    measured: dict[str, dict[str, _Measured]] = {}
    for name in run.progress(networks.models):
        stored = run.arrays(
            "logits of images",
            _logits,
            data.images,
            network=name,
            code="robustbook.models",
        )
        logits = np.asarray(stored["logits"], dtype=np.float64)
        row, measured[name] = _model_row(logits, votes, labels)
        robust = networks.models[name]
        yield {"what": "model", "model": name, "robust": robust, **row}
    yield from _robust_rows(measured, networks.models, _DRAWS[run.profile], random)


def _logits(model: nn.Module, images: Tensor) -> dict[str, Any]:
    return {"logits": logits_of(model, images).double().numpy()}


def _votes_of(people: Setting, run: Run[Setting]) -> Counts:
    if not people.models:
        votes: Counts = load_votes(people.dataset, people.split).numpy()
        return votes[: people.samples]
    (name,) = people.models
    logits = logits_of(load_model(name).eval(), people.data().images)
    return made_up_votes(logits, seed=run.seed)


def made_up_votes(logits: Tensor, *, seed: int) -> Counts:
    """Draw the votes of people who doubt as a network does."""
    chances = logits.double().softmax(dim=1).numpy()
    votes: Counts = np.random.default_rng([seed, 0]).multinomial(_PEOPLE, chances)
    return votes


class _Measured(NamedTuple):
    """An agreement as a ratio of sums over images, at its inverse temperature."""

    sums: Values
    counts: Values
    beta: float = 0.0

    @property
    def value(self) -> float:
        return float(self.sums.sum() / self.counts.sum())

    @property
    def error(self) -> float:
        """Standard error over images."""
        size, off = len(self.sums), self.sums - self.counts * self.value
        spread = float(size / (size - 1) * (off**2).sum())
        return spread**0.5 / float(self.counts.sum())

    def among(self, chosen: npt.NDArray[np.bool_]) -> _Measured:
        return _Measured(self.sums[chosen], self.counts[chosen], self.beta)

    def row(self, name: str) -> Row:
        return {name: self.value, f"{name}_se": self.error}


def _with_crowd(logits: Values, votes: Counts) -> _Measured:
    result = soft_label_agreement(logits, votes)
    each = result.per_sample.numpy()
    return _Measured(each, np.ones(len(each)), result.beta)


def _with_persons(logits: Values, votes: Counts) -> _Measured:
    """Every vote is a sample."""
    images, names = np.nonzero(votes)
    times = votes[images, names]
    images, names = np.repeat(images, times), np.repeat(names, times)
    classes = np.eye(votes.shape[1])
    result = soft_label_agreement(logits[images], classes[names])
    sums = np.zeros(len(votes))
    np.add.at(sums, images, result.per_sample.numpy())
    return _Measured(sums, votes.sum(axis=1).astype(np.float64), result.beta)


def _others(table: npt.NDArray[Any], labels: Counts) -> npt.NDArray[Any]:
    """Columns of all classes but the label, (N, K - 1)."""
    rest = np.arange(table.shape[1]) != labels[:, None]
    return table[rest].reshape(len(table), -1)


def _measure(logits: Values, votes: Counts, labels: Counts) -> dict[str, _Measured]:
    return {
        "labels": _with_crowd(logits, np.eye(votes.shape[1], dtype=np.int64)[labels]),
        "crowd": _with_crowd(logits, votes),
        "person": _with_persons(logits, votes),
        "second": _with_persons(_others(logits, labels), _others(votes, labels)),
    }


def _model_row(
    logits: Values, votes: Counts, labels: Counts
) -> tuple[Row, dict[str, _Measured]]:
    measured = _measure(logits, votes, labels)
    named = logits.argmax(axis=1)
    every = np.arange(len(votes))
    totals = votes.sum(axis=1).astype(float)
    right = (named == labels).astype(np.float64)
    same = votes[every, named].astype(np.float64)
    row = {
        **_Measured(right, np.ones(len(votes))).row("accuracy"),
        **_Measured(same, totals).row("same"),
    }
    for name, agreement in measured.items():
        row |= {**agreement.row(name), f"{name}_beta": agreement.beta}
    crowd, by_label = measured["crowd"], measured["labels"]
    row |= _Measured(crowd.sums - by_label.sums, by_label.counts).row("gain")
    return row | _clear_row(measured["crowd"], votes), measured


def _clear_row(crowd: _Measured, votes: Counts) -> Row:
    clear = votes.max(axis=1) >= CLEAR * votes.sum(axis=1)
    return {
        **crowd.among(clear).row("crowd_clear"),
        **crowd.among(~clear).row("crowd_unclear"),
    }


def _people_row(
    votes: Counts, labels: Counts, random: np.random.Generator, halves: int
) -> Row:
    totals = votes.sum(axis=1).astype(float)
    clear = votes.max(axis=1) >= CLEAR * totals
    pairs = (votes * (votes - 1)).sum(axis=1) / (totals - 1)
    right = (votes.argmax(axis=1) == labels).astype(float)
    row: Row = {
        "what": "people",
        "samples": len(votes),
        "votes": int(totals.sum()),
        "clear": float(clear.mean()),
        "majority_right": float(right.mean()),
        **_Measured(pairs, totals).row("same"),
    }
    several = [_half_with_half(votes, labels, random) for _ in range(halves)]
    for name in MEASURES[1:]:
        sums = np.mean([half[name].sums for half in several], axis=0)
        counts = np.mean([half[name].counts for half in several], axis=0)
        row |= _Measured(sums, counts).row(name)
        if name == "crowd":
            row |= _clear_row(_Measured(sums, counts), votes)
    cap = np.log(votes.shape[1] * votes.max(axis=1) / totals).mean()
    row["crowd_cap"] = float(cap)
    for name, table in (("person", votes), ("second", _others(votes, labels))):
        row[f"{name}_cap"] = _least_surprise(table)
    return row


def _half_with_half(
    votes: Counts, labels: Counts, random: np.random.Generator
) -> dict[str, _Measured]:
    half = votes.sum(axis=1) // 2
    drawn = [
        random.multivariate_hypergeometric(counts, size)
        for counts, size in zip(votes, half, strict=True)
    ]
    first = np.array(drawn)
    return _measure(np.log(first + _PSEUDO), votes - first, labels)


def _least_surprise(votes: Counts) -> float:
    """The agreement with a random person of who knows all votes: log K - entropy."""
    shares = votes / np.maximum(votes.sum(axis=1, keepdims=True), 1)
    known = np.log(votes.shape[1] * np.where(votes > 0, shares, 1.0))
    return float((votes * known).sum() / votes.sum())


def _robust_rows(
    measured: dict[str, dict[str, _Measured]],
    robust: dict[str, bool],
    draws: int,
    random: np.random.Generator,
) -> Iterator[Row]:
    size = len(next(iter(measured.values()))["labels"].sums)
    weights = bootstrap_weights(size, draws, random)
    weights = np.vstack([np.ones(size), weights])
    values: dict[str, Values] = {}
    for measure in MEASURES:
        several = [net[measure] for net in measured.values()]
        means = [weights @ net.sums / (weights @ net.counts) for net in several]
        values[measure] = np.array(means)
    treated = np.array(list(robust.values()))
    level = values["labels"][:, 0]
    both = [level[treated == kind] for kind in (True, False)]
    reach = min(each.max() for each in both)
    for overlapping in (False, True):
        taken = level <= (reach if overlapping else np.inf)
        for measure in MEASURES[1:]:
            pairs = zip(values[measure].T, values["labels"].T, strict=True)
            gaps = np.array(
                [
                    matched_difference(net[taken], of_labels[taken], treated[taken])
                    for net, of_labels in pairs
                ]
            )
            yield {
                "what": "robust",
                "measure": measure,
                "overlapping": overlapping,
                "networks": int(taken.sum()),
                **interval_row("difference", float(gaps[0]), middle_95(gaps[1:])),
            }
