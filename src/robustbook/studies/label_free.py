"""Accuracy without labels: every score of the package, for three questions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from typing import Any, Final

import numpy as np
import torch

from robustbook.datasets import Dataset, load_dataset, load_sentences
from robustbook.datasets.photographs import PACS_DOMAINS
from robustbook.label_free import agreement_on_the_line
from robustbook.studies._label_free_cells import (
    factor_networks,
    network_cells,
    perceptrons,
)
from robustbook.studies._label_free_summary import family_of, summarize
from robustbook.studies._networks import CIFAR10, PENALTIES, trainings
from robustbook.studies._shifted_logits import Shift, shifted_logits, shifts_of
from robustbook.studies._statistics import Values
from robustbook.studies.domains.unlike_pairs import (
    digit_collections,
    heads,
    photographs,
    readers,
)
from robustbook.studies.run import Row, Run, Setting, significant, with_keys


@dataclass(frozen=True, kw_only=True)
class WorldSetting(Setting):
    """Networks, the shifts of their images, and how many images calibrate and judge."""

    world: str
    source: int
    judged: int
    shifts: tuple[Shift, ...]
    #: Steps of each run of an attack.
    steps: int = 40

    def halves(self, seed: int) -> tuple[Dataset, Dataset]:
        """Draw the images that calibrate, and others that judge."""
        data = load_dataset(self.dataset, self.split)
        draws = torch.Generator().manual_seed(seed)
        order = torch.randperm(len(data), generator=draws)
        rest = order[self.source : self.source + self.judged]
        return data.subset(order[: self.source]), data.subset(rest)


@dataclass(frozen=True, kw_only=True)
class ChoiceSetting(Setting):
    """Small trainings among which the scores choose; `dataset` tells which."""

    world: str
    seeds: int
    count: int = 0
    #: Epochs after which a training is a candidate, and rates of Adam.
    epochs: tuple[int, ...] = ()
    rates: tuple[float, ...] = ()
    #: Numbers of texts to train on.
    sizes: tuple[int, ...] = ()
    #: Other data sets that are read.
    beside: tuple[str, ...] = ()

    def datasets(self) -> list[str]:
        """All that are read."""
        return [self.dataset, *self.beside]


#: Worlds of several collections, of which one at a time is the target.
_COLLECTIONS: Final[Mapping[str, tuple[Any, tuple[str, ...]]]] = {
    "heads": (digit_collections, ("mnist", "usps", "digits")),
    "PACS": (photographs, PACS_DOMAINS),
}
#: Worlds of which clean and shifted inputs are not the same inputs.
_UNLIKE: Final = (*_COLLECTIONS, "reviews")

_digits: Final = partial(WorldSetting, world="digits", dataset="digits")
SETTINGS: Final = {
    "full": (
        _digits(
            source=298, judged=298,
            models=trainings("digits-cnn", 5, (*PENALTIES, "-noise", "-adv"))
            + trainings("digits-linear", 5, ("",)),
            shifts=shifts_of((0.2, 0.4, 0.6), (3, 5), (0.05, 0.1, 0.2)),
        ),
        WorldSetting(
            world="MNIST", dataset="mnist", source=500, judged=500,
            models=[
                *trainings("mnist-cnn", 2), "mnist-conv_small_nat", "mnist-cnn_a_adv",
                "mnist-advertorch_lenet5_clean", "mnist-advertorch_lenet5_adv",
                "mnist-madry_tiny_adv", "mnist-kw",
            ],
            shifts=shifts_of((0.2, 0.4, 0.6), (3, 5), (0.05, 0.1, 0.2)),
        ),
        WorldSetting(
            world="Fashion-MNIST", dataset="fashion-mnist", source=500, judged=500,
            models=[
                *trainings("fashion-mnist-cnn", 2, ("", "-grad1e-1")),
                *trainings("fashion-mnist-cnn", 1, PENALTIES[1:4] + PENALTIES[5:]),
                "fashion-kw",
            ],
            shifts=shifts_of((0.1, 0.2, 0.4), (3, 5), (0.02, 0.05, 0.1)),
        ),
        WorldSetting(
            world="CIFAR-10", dataset="cifar10", split="test1000", source=500,
            judged=500,
            models=[
                *trainings("cifar10-cnn", 2), "cifar10-preact-adv-s0", *CIFAR10,
            ],
            shifts=shifts_of((0.05, 0.1, 0.2), (3, 5), (2 / 255, 4 / 255, 8 / 255)),
        ),
        # Networks and images that no earlier comparison has seen.
        WorldSetting(
            world="CIFAR-10 held out", dataset="cifar10", split="held_out", source=500,
            judged=500,
            models=[
                "cifar10-blocks-s0", "cifar10-blocks-adv-s0",
                *trainings("cifar10-strided", 2, PENALTIES[:4]),
                "cifar10-strided-adv-s0",
            ],
            shifts=shifts_of((0.05, 0.1, 0.2), (3, 5), (2 / 255, 4 / 255, 8 / 255)),
        ),
        WorldSetting(
            world="ImageNet", dataset="imagenet-nips2017", split="test200", source=100,
            judged=100,
            models=["imagenet:efficientnet-lite0", "imagenet:efficientnet-lite1"],
            shifts=shifts_of((0.1, 0.3), (5,), (2 / 255,)), steps=20,
        ),
        ChoiceSetting(
            world="heads", dataset="usps", seeds=2, epochs=(1, 3, 8), rates=(1e-2, 1e-3)
        ),
        ChoiceSetting(
            world="PACS", dataset="pacs", seeds=2, epochs=(1, 3, 8), rates=(1e-2, 1e-3)
        ),
        ChoiceSetting(
            world="reviews", dataset="imdb", beside=("sentence-polarity",), seeds=3,
            count=400, sizes=(300, 1000, 3000),
        ),
        ChoiceSetting(
            world="perceptrons", dataset="digits", seeds=4, count=300, epochs=(100,)
        ),
        ChoiceSetting(
            world="factors", dataset="mnist", seeds=3, count=600, epochs=(1, 3, 6),
            rates=(3e-3, 1e-3),
        ),
    ),
    "quick": (
        _digits(
            source=298, judged=298,
            models=trainings("digits-cnn", 2, ("", "-noise", "-adv", "-grad1e-1")),
            shifts=shifts_of((0.2, 0.6), (3,), (0.1,)),
        ),
        ChoiceSetting(
            world="perceptrons", dataset="digits", seeds=2, count=150, epochs=(10,)
        ),
    ),
}  # fmt: skip


def rows(run: Run[Any]) -> Iterator[Row]:
    """Score networks under shifts, and summarize each score for each question.

    The scores are those of :func:`robustbook.label_free.score_pairs`, the
    generalization disagreement with another seed of the network (by answers, and
    ``hellinger``), agreement on the line, where all networks see the same images, and
    the disagreement bound; a score that needs what is missing is left out.

    Rows told apart by ``what``. "cell": a ``network`` of a ``world`` under a ``shift``,
    its ``accuracy`` and the scores that the chapter shows, to four digits, and under an
    attack ``same_answers_half``, after half of its steps. Worlds of
    small trainings have a summary only: their networks are candidates (learner, rate,
    epoch; width, penalty; number of texts), their shifts problems (a target and a
    seed).
    In "heads" (digits of three collections), "PACS" and "reviews" the two sides of a
    pair are not the same input; the groups are ways to pair, "without pairs", and "same
    text", reviews that are themselves cut or edited.

    "summary", for each ``world``, ``group`` of shifts ("natural", "attack"; others for
    trainings) and ``score``: ``value`` of a ``statistic`` with its 95 % interval
    (``low``, ``high``) over families of networks and kinds of shifts, drawn anew
    together, and by how much it is worse than that of the paired estimate on the same
    cells (``behind``, with ``behind_low``, ``behind_high``). Statistics: "error", mean
    absolute, and where sides are unlike "bias", mean signed, of estimates; "sets",
    Spearman's correlation over shifts, mean over networks (dataset-centric);
    "networks", the same over networks, mean over shifts (model-centric); "regret", the
    accuracy lost by taking the network of the largest score (selection). Chapter 9.
    """
    cells: dict[str, list[Row]] = defaultdict(list)
    for setting in run.settings:
        measured = _trainings if isinstance(setting, ChoiceSetting) else _networks
        for row in measured(run, setting):
            cells[setting.world].append(row)
    for setting in run.settings:
        if isinstance(setting, WorldSetting):
            found = cells[setting.world]
            yield from with_keys(
                {"world": setting.world}, ({"what": "cell", **_shown(r)} for r in found)
            )
    for world, found in cells.items():
        unlike = world in _UNLIKE
        summary = run.rows("summary of scores", summarize, found, unlike, code=__name__)
        yield from with_keys({"world": world}, summary)


#: What is stored of a cell; the summaries are of all scores.
_SHOWN: Final = (
    *("network", "group", "shift", "accuracy", "beta", "paired_accuracy"),
    *("low", "high"),
    *("same_answers", "confidence", "agreement_on_the_line"),
    "same_answers_half",
)


def _shown(cell: Row) -> Row:
    values = ((name, cell[name]) for name in _SHOWN if name in cell)
    return {k: float(f"{v:.4g}") if isinstance(v, float) else v for k, v in values}


def _networks(run: Run[Any], setting: WorldSetting) -> list[Row]:
    source, judged = setting.halves(run.seed)
    logits = {}
    for name in run.progress(setting.models):
        logits[name] = run.arrays(
            "shifted logits", shifted_logits, source, judged, setting.shifts,
            setting.steps, run.seed, network=name,
        )  # fmt: skip
    found = []
    for name, own in logits.items():
        kinds = [other for other in logits if family_of(other) == family_of(name)]
        second = kinds[(kinds.index(name) + 1) % len(kinds)]
        other = None if second == name else logits[second]
        labels = source.labels, judged.labels
        for row in run.rows("scores of pairs", network_cells, own, other, labels):
            group = "attack" if row["shift"].startswith("APGD") else "natural"
            found.append({"network": name, "group": group, **row})
    lines = _lines(logits, source) if len(logits) > 2 else {}
    return [
        {**row, "agreement_on_the_line": lines.get((row["network"], row["shift"]))}
        for row in found
    ]


def _lines(
    logits: Mapping[str, Mapping[str, Any]], source: Dataset
) -> dict[tuple[str, str], float]:
    """Agreement on the line where all networks see the same images."""
    truth = source.labels.numpy()
    answers = {
        view: np.stack([z[view].argmax(1) for z in logits.values()])
        for view in next(iter(logits.values()))
    }
    margin = 0.5 / len(truth)

    def agreements(view: str) -> Values:
        pairs = combinations(answers[view], 2)
        shares = np.array([(a == b).mean() for a, b in pairs])
        return shares.clip(margin, 1 - margin)

    right = (answers["source"] == truth).mean(1).clip(margin, 1 - margin)
    before = agreements("source")
    lines: dict[tuple[str, str], float] = {}
    for view in answers:
        if view not in ("source", "clean") and not view.startswith("APGD"):
            moved = agreement_on_the_line(right, before, agreements(view))
            lines |= {
                (n, view): significant(v) for n, v in zip(logits, moved, strict=True)
            }
    return lines


def _trainings(run: Run[Any], setting: ChoiceSetting) -> list[Row]:
    found: list[Row] = []
    sizes: tuple[Any, ...]
    name = "trainings to choose among"
    for seed in run.progress(run.seeds(setting.seeds)):
        if setting.world in _COLLECTIONS:
            load, targets = _COLLECTIONS[setting.world]
            for target in targets:
                sizes = load(target), target, seed, setting.epochs, setting.rates
                for row in run.rows(name, heads, *sizes):
                    found.append({"shift": f"{target} {seed}", **row})
        elif setting.world == "reviews":
            splits = ("train", "validation", "test")
            reviews = {
                split: load_sentences(setting.dataset, split) for split in splits
            }
            sentences = load_sentences(setting.beside[0], "test")
            sizes = reviews, sentences, seed, setting.sizes, setting.count
            found += run.rows(name, readers, *sizes)
        elif setting.world == "perceptrons":
            data = setting.dataset
            sizes = seed, setting.count, setting.epochs[-1]
            for row in run.rows(name, perceptrons, *sizes, data=data):
                group = str(row.pop("family"))
                found.append({"group": group, "shift": f"seed {seed}", **row})
        else:
            data = setting.dataset
            sizes = data, seed, setting.count, setting.epochs, setting.rates
            for row in run.rows(name, factor_networks, *sizes, data=data):
                problem = f"test {row.pop('test')} seed {seed}"
                found.append({"group": "factors", "shift": problem, **row})
    return [{"network": row.pop("candidate"), **row} for row in found]
