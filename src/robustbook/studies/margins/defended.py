"""Networks trained by the defenses that the margin paper compares, and weak ones."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Final

import numpy as np
from torch import nn

from robustbook.datasets import Dataset, load_dataset
from robustbook.margins import margin_consistency as consistency_of
from robustbook.studies._run import Row, Run, under
from robustbook.studies.margins._defended_nets import Budget, Method, trained
from robustbook.studies.margins.columns import detections, share_row, tau_row
from robustbook.studies.margins.margin_pseudo import Learning, learned_rows
from robustbook.studies.margins.measured import (
    MeasuredMargins,
    Recipe,
    margins_of,
    scores_of,
)
from robustbook.studies.margins.settings import MarginSetting

#: What is not a method: the plain network that every training starts from.
PLAIN: Final = "plain"
#: Scores whose order is measured: of one forward pass, and with one backward pass.
_SCORES: Final = ("logit_margin", "gradient_margin")


@dataclass(frozen=True, kw_only=True)
class DefendedSetting(MarginSetting):
    """What is trained, and how; the networks are those that it begins from, by seed."""

    methods: dict[str, Method]
    budget: Budget
    #: How margins of the weakest network are learned from training images.
    learning: Learning

    def training_images(self) -> Dataset:
        """Load what is trained on, and what margins are learned from."""
        return load_dataset(self.dataset, "train")


def _methods(eps: float, steps: int) -> dict[str, Method]:
    """Those of the paper; then such as may order badly, the search for a weak one."""
    names = ("sat", "trades", "alp", "clp", "clp-attacked", "mart")
    return {
        **{name: Method(name, eps, steps) for name in names},
        # Toward DI0 of the paper: margins as wide as they get, images standardized.
        "mma": Method("mma", 4 * eps, steps),
        "sat, standardized": Method("sat", eps, steps, standardized=True),
        "mma, standardized": Method("mma", 4 * eps, steps, standardized=True),
        # Logits nearly alike; and networks of which half is defended.
        "alp, strong": Method("alp", eps, steps, options={"weight": 3.0}),
        "clp, strong": Method("clp", eps, steps, options={"weight": 3.0}),
        "sat, five classes": Method("sat", eps, steps, classes=5),
        "sat, five classes, twice": Method("sat", 2 * eps, steps, classes=5),
    }


_DIGITS: Final = Recipe(targets=1, steps=5, refine_steps=0, rounds=0)
_CIFAR: Final = Recipe(targets=2, steps=10, refine_steps=20, rounds=1)

SETTINGS: Final = {
    "quick": (
        DefendedSetting(
            dataset="digits", eps=(0.05, 0.1), focus=0.1,
            models={f"digits-cnn-s{seed}": (_DIGITS, 50) for seed in range(2)},
            methods=_methods(0.1, 2), budget=Budget(100, 2, 50),
            learning=Learning({}, (40,), 1, {"width": 64, "epochs": 5}),
        ),
    ),
    "full": (
        DefendedSetting(
            dataset="cifar10", split="test1000",
            eps=tuple(level / 255 for level in (2, 4, 8, 12, 16, 32)), focus=8 / 255,
            models={f"cifar10-cnn-s{seed}": (_CIFAR, 1000) for seed in range(2)},
            methods=_methods(8 / 255, 4), budget=Budget(10_000, 4),
            learning=Learning({}, (500, 1500, 3000), 3, {}),
        ),
    ),
}  # fmt: skip


def rows(run: Run[DefendedSetting]) -> Iterator[Row]:
    """Train with each method, from the same plain networks, and measure margins.

    Every training has the same images, epochs, rates and steps of its attack, and goes
    on from the plain network of its ``seed``. Rows with ``what`` =
    "network": clean ``accuracy``;
    "robust": ``robust_accuracy`` and the share of ``brittle`` decisions at ``eps``;
    "consistency": τ of a ``score`` with the input margin;
    "detection": AUROC, AUPR and FPR at 95 % TPR of the logit margin at ``eps``;
    "method": means over the seeds of ``tau``, ``accuracy``, ``robust_accuracy`` and, at
    the usual ε, ``auroc``, each with a standard error (``_se``) over seeds and images;
    "learned" and "learned detection": of the weakest method, as "method" and
    "detection" of the study ``margin_pseudo``, where ``score`` is what is called method
    there. The weakest has the least τ among the first networks that are right at least
    half as often as the plain one; what is learned is of its last network.

    Margin paper, sections 3 and 5, Tables 1 and 2 and Figure 9. Every input margin is
    an upper bound.
    """
    for setting in run.settings:
        keys: Row = {"dataset": setting.dataset}
        first: dict[str, list[Row]] = {}
        for method in run.each((PLAIN, *setting.methods)):
            own: list[Row] = []
            for number, start in enumerate(setting.models):
                measured = measure(run, setting, method, start)
                one = [*_of_network(measured, setting)]
                yield from under({**keys, "method": method, "seed": number}, one)
                own += one
                first.setdefault(method, one)
            yield {"what": "method", **keys, "method": method, **_mean(own, setting)}
        weak, start = _weakest(first), [*setting.models][-1]
        test = measure(run, setting, weak, start)
        train = measure(run, setting, weak, start, training=True)
        for row in learned_rows(train, test, setting, setting.learning, run.seed):
            what = {"method": "learned", "detection": "learned detection"}[row["what"]]
            yield {**row, "what": what, **keys, "score": row["method"], "method": weak}


def _weakest(first: dict[str, list[Row]]) -> str:
    def of(method: str, what: str, name: str) -> float:
        value: float = _logit_rows(first[method], what)[0][name]
        return value

    enough = of(PLAIN, "network", "accuracy") / 2
    usable = [one for one in first if of(one, "network", "accuracy") >= enough]
    return min(usable, key=lambda one: of(one, "consistency", "tau"))


def _network(
    run: Run[DefendedSetting], setting: DefendedSetting, method: str, start: str
) -> nn.Module:
    seed = run.seed + [*setting.models].index(start)
    how, data = setting.methods.get(method), setting.training_images()
    return trained(start, how, data, setting.budget, seed=seed)


def measure(
    run: Run[DefendedSetting], setting: DefendedSetting, method: str, start: str, *,
    training: bool = False,
) -> MeasuredMargins:  # fmt: skip
    """Margins of a network, which is trained before."""
    model = _network(run, setting, method, start)
    data, (recipe, _) = setting.images_of(start), setting.models[start]
    if training:
        data = setting.training_images().subset(slice(max(setting.learning.sizes)))
    return margins_of(model, data, recipe, seed=run.seed, device=run.device)


def jobs(run: Run[DefendedSetting]) -> Iterator[tuple[DefendedSetting, str, str]]:
    """Each method from each start."""
    for setting in run.settings:
        for method, start in product((PLAIN, *setting.methods), setting.models):
            yield setting, method, start


def _of_network(measured: MeasuredMargins, setting: DefendedSetting) -> Iterator[Row]:
    bounds, correct = measured.bounds, measured.correct
    yield {"what": "network", **share_row("accuracy", correct), "count": len(correct)}
    for eps in setting.eps:
        yield {
            "what": "robust", "eps": eps, "usual": eps == setting.focus,
            **share_row("robust_accuracy", correct & (bounds > eps)),
            "brittle": float((bounds <= eps).double().mean()),
        }  # fmt: skip
    scores = scores_of(measured)
    for name in _SCORES:
        order = consistency_of(scores[name], bounds)
        yield {"what": "consistency", "score": name, **tau_row("tau", order)}
    yield from detections(scores[_SCORES[0]], bounds, setting)


def _logit_rows(rows: list[Row], what: str) -> list[Row]:
    """Rows of a kind, of the logit margin and at the usual ε where there are others."""
    return [
        row
        for row in rows
        if row["what"] == what
        and row.get("usual", True)
        and row.get("score", _SCORES[0]) == _SCORES[0]
    ]


def _mean(own: list[Row], setting: DefendedSetting) -> Row:
    """Means over the seeds, with errors over seeds and images.

    The images of all seeds are the same, so their error does not fall with the number
    of seeds; that of the seeds does.
    """
    row: Row = {"seeds": len(setting.models)}
    for what, name in (
        ("network", "accuracy"), ("robust", "robust_accuracy"),
        ("consistency", "tau"), ("detection", "auroc"),
    ):  # fmt: skip
        found = _logit_rows(own, what)
        if any(one[name] is None for one in found):
            row |= {name: None, f"{name}_se": None}
            continue
        values = np.array([one[name] for one in found])
        ends = np.array([[one[f"{name}_low"], one[f"{name}_high"]] for one in found])
        of_images = float(np.square((ends[:, 1] - ends[:, 0]) / 3.92).mean())
        of_seeds = float(values.var(ddof=1)) / len(values)
        row |= {
            name: float(values.mean()),
            f"{name}_se": math.sqrt(of_images + of_seeds),
        }
    return row
