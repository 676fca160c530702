"""Networks trained by the defenses that the margin paper compares, and weak ones."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Final, cast

import numpy as np
import torch
from torch import Tensor, nn

from robustbook.datasets import Dataset, load_dataset
from robustbook.studies._statistics import mean_error
from robustbook.studies.margins import _defended_nets as nets
from robustbook.studies.margins._defended_nets import Budget, Method, trained
from robustbook.studies.margins.columns import (
    detections,
    difference_row,
    exact_share,
    robust_rows,
    tau_row,
)
from robustbook.studies.margins.margin_pseudo import Learning, learned_rows
from robustbook.studies.margins.measured import MeasuredMargins, margins_of, scores_of
from robustbook.studies.margins.search import Recipe
from robustbook.studies.margins.settings import MarginSetting
from robustbook.studies.run import Row, Run, with_keys
from robustbook.training import Loss

#: The name of the plain network, from which every training starts.
PLAIN: Final = "plain"
#: Scores whose order is measured: of one forward pass, and with one backward pass.
_SCORES: Final = ("logit_margin", "gradient_margin")


@dataclass(frozen=True, kw_only=True)
class DefendedSetting(MarginSetting):
    """Trainings by several methods; `models` are the networks that they start from."""

    methods: dict[str, Method]
    budget: Budget
    #: For each method, the start of each training; by default the first two networks.
    starts: dict[str, tuple[int, ...]] = field(default_factory=dict)
    #: How margins of the weakest network are learned from training images, if at all.
    learning: Learning | None = None
    #: On how many training images MART's objective is compared between networks.
    compared: int = 0

    def training_images(self) -> Dataset:
        """Load the training images, from which margins are learned, too."""
        return load_dataset(self.dataset, "train")

    def start_indices(self, method: str) -> tuple[int, ...]:
        """Indices of the networks that a method's trainings start from, by seed."""
        return self.starts.get(method, (0, 1))


def _methods(eps: float, steps: int) -> dict[str, Method]:
    return {
        **{name: Method(name, eps, steps) for name in ("sat", "trades", "mart")},
        # Toward DI0 of the paper: margins as wide as they get, images standardized.
        "mma, standardized": Method("mma", 2 * eps, steps, standardized=True),
        # Only some classes are defended.
        "sat, half": Method("sat", eps, steps, classes=5),
    }


def _paper(eps: float, steps: int) -> dict[str, Method]:
    """Those of the paper, of which one is two; squares are averaged over ten logits."""
    return {
        **{name: Method(name, eps, steps) for name in ("sat", "trades", "mart")},
        "mart, half the ball": Method("mart", eps / 2, steps),
        **{
            name: Method(name, eps, steps, weight=0.05)
            for name in ("alp", "clp", "clp-attacked")
        },
    }


_CIFAR: Final = Recipe(targets=2, steps=10, refine_steps=20, rounds=1)
_DIGITS: Final = Recipe(targets=1, steps=5, refine_steps=0, rounds=0)
_MNIST: Final = Recipe(targets=2, steps=10, refine_steps=30, rounds=3)

_PLAIN_MNIST: Final = (
    "mnist-cnn-s0",
    "mnist-cnn-s1",
    *(f"{nets.__name__}:mnist_s{seed}" for seed in (2, 3, 4)),
)

SETTINGS: Final = {
    "quick": (
        DefendedSetting(
            dataset="digits", eps=(0.05, 0.1), focus=0.1,
            models={f"digits-cnn-s{seed}": (_DIGITS, 50) for seed in range(2)},
            methods=_methods(0.1, 2), budget=Budget(100, 2, 50),
            starts={"sat, half": (0, 1, 0)}, compared=40,
            learning=Learning({}, (40,), 1, {"width": 64, "epochs": 5}),
        ),
    ),
    "full": (
        DefendedSetting(
            dataset="mnist", eps=(0.05, 0.1, 0.2, 0.3), focus=0.1,
            models=dict.fromkeys(_PLAIN_MNIST, (_MNIST, 1000)),
            methods=_methods(0.2, 4), budget=Budget(10_000, 4),
            starts={"sat, half": (0, 1, 0, 1, 0, 1, 2, 3, 4)},
            learning=Learning({}, (3000,), 3, {}),
        ),
        DefendedSetting(
            dataset="cifar10", split="test1000",
            eps=tuple(level / 255 for level in (2, 4, 8, 12, 16, 32)), focus=8 / 255,
            models={f"cifar10-cnn-s{seed}": (_CIFAR, 1000) for seed in range(2)},
            methods=_paper(8 / 255, 4), budget=Budget(10_000, 4), compared=4000,
        ),
    ),
}  # fmt: skip


def parts(run: Run[DefendedSetting]) -> Iterator[tuple[str, int, int, str]]:
    """Each training of each method, with the number and name of the network before."""
    names = [*run.setting.models]
    for method in (PLAIN, *run.setting.methods):
        for seed, start in enumerate(run.setting.start_indices(method)):
            yield method, seed, start, names[start]


def measure(
    run: Run[DefendedSetting], method: str, seed: int, start: int, name: str
) -> Iterator[Row]:
    """Train with each method, from the same plain networks, and measure margins.

    Every training has the same images, epochs, rates and steps of its attack, and goes
    on from the plain network number ``start``; its own number is its ``seed``. Rows
    with ``what`` =
    "network": clean ``accuracy``;
    "robust": ``robust_accuracy`` and the share of ``brittle`` decisions at ``eps``;
    "consistency": τ of a ``score`` with the input margin;
    "detection": AUROC, AUPR and FPR at 95 % TPR of the logit margin at ``eps``;
    "group", where only some classes are defended: τ among the decisions for these, and
    among the others, with the medians of both margins;
    "objective": what MART minimizes, in nats, on training ``images``: ``value``, and
    its standard error over batches;
    "method": means over the starts of ``tau``, ``accuracy``, ``robust_accuracy`` and,
    at the usual ε, ``auroc``, each with a standard error (``_se``) over starts and
    images;
    "learned" and "learned detection": of the weakest network and of what the same
    method made of other starts, as "method" and "detection" of the study
    ``margin_pseudo``, where ``score`` is what is called method there, and "by_class" is
    the logit margin times a factor of the predicted class; "learned method": means over
    the starts, with errors, of ``tau`` and ``tau_difference``. The weakest network has
    the least τ among those that are right at least half as often as plain ones. All are
    tested on other images than those that chose it.

    Margin paper, sections 3 and 5, Tables 1 and 2 and Figure 9. Every input margin is
    an upper bound.
    """
    setting, images = run.setting, run.setting.images_of(name)
    measured = _measured(run, method, seed, name, images)
    rows = [*_of_network(measured, setting)]
    if method != PLAIN and (classes := setting.methods[method].classes):
        rows += _groups(measured, classes)
    if setting.compared:
        rows.append(_objective(run, method, seed, name))
    keys = {"dataset": setting.dataset, "method": method, "seed": seed, "start": start}
    yield from with_keys(keys, rows)


def summary(run: Run[DefendedSetting]) -> Iterator[Row]:
    """Means over the starts, and what can be learned about the weakest network."""
    setting, by_method = run.setting, dict[str, list[Row]]()
    for part in parts(run):
        by_method.setdefault(part[0], []).extend(run.measured(measure, *part))
    keys: Row = {"dataset": setting.dataset}
    for method, rows in by_method.items():
        yield {"what": "method", **keys, "method": method, **_mean(rows)}
    if setting.learning is not None:
        learned = _learned(run, setting.learning, _weakest(by_method))
        yield from with_keys(keys, learned)


def _learned(run: Run[DefendedSetting], learning: Learning, weak: str) -> Iterator[Row]:
    """Learn margins of a method's networks, and test on images that did not choose it.

    One network from each start.
    """
    setting = run.setting
    train_images = setting.training_images().subset(slice(max(learning.sizes)))
    # Of several trainings from a start the first.
    first = {part[2]: part for part in reversed([*parts(run)]) if part[0] == weak}
    by_score: dict[tuple[str, int], list[Row]] = {}
    for start, (_, seed, _, name) in sorted(first.items()):
        tested = setting.models[name][1]
        later = setting.data().subset(slice(tested, 2 * tested))
        train, test = (
            _measured(run, weak, seed, name, data) for data in (train_images, later)
        )
        network_keys: Row = {"method": weak, "seed": seed, "start": start}
        for row in _learned_from(run, train, test, setting, learning):
            yield {**row, **network_keys}
            if row["what"] == "learned":
                key = row["score"], row["train"]
                by_score.setdefault(key, []).append({**row, **network_keys})
    for (score, count), rows in by_score.items():
        yield {
            "what": "learned method",
            "method": weak,
            "score": score,
            "train": count,
            **_over_starts(rows, "tau"),
            **_over_starts(rows, "tau_difference"),
        }


def _learned_from(
    run: Run[DefendedSetting],
    train: MeasuredMargins,
    test: MeasuredMargins,
    setting: DefendedSetting,
    learning: Learning,
) -> Iterator[Row]:
    for row in learned_rows(run, train, test, setting, learning):
        what = {"method": "learned", "detection": "learned detection"}[row["what"]]
        yield {**row, "what": what, "score": row["method"]}
    values, logit_margins = _by_class(train, test), scores_of(test)[_SCORES[0]]
    key: Row = {"score": "by_class", "train": len(train)}
    order = tau_row("tau", values, test.bounds)
    difference = difference_row(values, logit_margins, test.bounds)
    yield {"what": "learned", **key, **order, **difference}
    for row in detections(values, test.bounds, setting):
        yield {**row, "what": "learned detection", **key}


def _by_class(train: MeasuredMargins, test: MeasuredMargins) -> Tensor:
    """Logit margins times a factor of the predicted class, a learned median: (N,)."""
    factors = torch.ones(train.logits.shape[1], dtype=torch.float64)
    due, decided = train.bounds / scores_of(train)[_SCORES[0]], train.logits.argmax(1)
    for k in range(len(factors)):
        if (decided == k).any():
            factors[k] = due[decided == k].median()
    return scores_of(test)[_SCORES[0]] * factors[test.logits.argmax(dim=1)]


def _weakest(by_method: dict[str, list[Row]]) -> str:
    """The method of the sufficiently accurate network with the smallest τ."""
    plain = [row["accuracy"] for row in _logit_rows(by_method[PLAIN], "network")]
    taus = []
    for method, rows in by_method.items():
        right = [row["accuracy"] for row in _logit_rows(rows, "network")]
        orders = [row["tau"] for row in _logit_rows(rows, "consistency")]
        for tau, accuracy in zip(orders, right, strict=True):
            if accuracy >= np.mean(plain) / 2:
                taus.append((tau, method))
    return min(taus)[1]


def _network(run: Run[DefendedSetting], method: str, seed: int, name: str) -> nn.Module:
    how, data = run.setting.methods.get(method), run.setting.training_images()
    return trained(run, name, how, data, run.setting.budget, number=seed)


def _half_defended(seed: int) -> nn.Module:
    """The MNIST network of a seed of which five classes are defended."""
    setting = SETTINGS["full"][0]
    run = Run("defended", "full", 0, "cpu", (setting,))
    start = setting.start_indices("sat, half")[seed]
    return _network(run, "sat, half", seed, [*setting.models][start])


#: The first of them from each start, which load_model takes by import path.
half_0, half_1, half_2, half_3, half_4 = (
    partial(_half_defended, seed) for seed in (0, 1, 6, 7, 8)
)


def _measured(
    run: Run[DefendedSetting], method: str, seed: int, name: str, data: Dataset
) -> MeasuredMargins:
    """Train a network, and measure its margins on images."""
    recipe, _ = run.setting.models[name]
    return margins_of(run, _network(run, method, seed, name), data, recipe)


def _objective(run: Run[DefendedSetting], method: str, seed: int, name: str) -> Row:
    """The objective of MART for a network on training images: mean and error."""
    model, data = _network(run, method, seed, name), run.setting.training_images()
    data, mart = data.subset(slice(run.setting.compared)), run.setting.methods["mart"]
    loss = cast(Loss, mart.loss)

    draws = torch.Generator().manual_seed(run.seed)
    place = next(model.parameters()).device
    batches = (part.to(place).tensor_split(40) for part in (data.images, data.labels))
    pairs = zip(*batches, strict=True)
    value = np.array([float(loss(model, x, y, draws)) for x, y in pairs])
    return {
        "what": "objective",
        "images": len(data),
        "value": float(value.mean()),
        "value_se": mean_error(value),
    }


def _of_network(measured: MeasuredMargins, setting: DefendedSetting) -> Iterator[Row]:
    bounds, correct = measured.bounds, measured.correct
    accuracy = exact_share("accuracy", correct)
    yield {"what": "network", **accuracy, "count": len(correct)}
    yield from robust_rows(correct, bounds, setting)
    scores = scores_of(measured)
    for name in _SCORES:
        order = tau_row("tau", scores[name], bounds)
        yield {"what": "consistency", "score": name, **order}
    yield from detections(scores[_SCORES[0]], bounds, setting)


def _groups(measured: MeasuredMargins, classes: int) -> Iterator[Row]:
    """Margins of decisions for the first classes, and of those for the others."""
    for defended in (True, False):
        part = measured[(measured.logits.argmax(dim=1) < classes) == defended]
        gap = scores_of(part)[_SCORES[0]]
        yield {
            "what": "group",
            "defended": defended,
            "count": len(part),
            **tau_row("tau", gap, part.bounds),
            "logit_margin": float(gap.median()),
            "input_margin": float(part.bounds.median()),
        }


def _logit_rows(rows: list[Row], what: str) -> list[Row]:
    """Rows of a kind, restricted to the logit margin and the usual ε."""
    return [
        row
        for row in rows
        if row["what"] == what
        and row.get("usual", True)
        and row.get("score", _SCORES[0]) == _SCORES[0]
    ]


def _mean(rows: list[Row]) -> Row:
    """Means over the starts, with errors over starts and images."""
    row: Row = {"starts": len({network_row["start"] for network_row in rows})}
    for what, name in (
        ("network", "accuracy"),
        ("robust", "robust_accuracy"),
        ("consistency", "tau"),
        ("detection", "auroc"),
    ):
        row |= _over_starts(_logit_rows(rows, what), name)
    return row


def _over_starts(rows: list[Row], name: str) -> Row:
    """A mean over the starts, each the mean over its trainings, and its error.

    The images are the same for all, so their error does not fall with the number of
    starts; that of the starts does.
    """
    if any(row[name] is None for row in rows):
        return {name: None, f"{name}_se": None}
    by_start: dict[int, list[float]] = {}
    for row in rows:
        by_start.setdefault(row["start"], []).append(row[name])
    means = np.array([np.mean(values) for values in by_start.values()])
    ends = np.array([[row[f"{name}_low"], row[f"{name}_high"]] for row in rows])
    of_images = float(np.square((ends[:, 1] - ends[:, 0]) / 3.92).mean())
    of_starts = float(means.var(ddof=1)) / len(means)
    return {name: float(means.mean()), f"{name}_se": math.sqrt(of_images + of_starts)}
