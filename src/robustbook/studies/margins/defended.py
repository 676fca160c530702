"""Networks trained by the defenses that the margin paper compares, and weak ones."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Final

import numpy as np
import torch
from torch import Tensor, nn

from robustbook.datasets import Dataset, load_dataset
from robustbook.margins import margin_consistency as consistency_of
from robustbook.studies._run import Row, Run, under
from robustbook.studies.margins._defended_nets import Budget, Method, trained
from robustbook.studies.margins.columns import (
    detections,
    difference_row,
    paired_tau_difference,
    share_row,
    tau_row,
)
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
    #: How margins of the weakest network are learned from training images, if at all.
    learning: Learning | None = None

    def training_images(self) -> Dataset:
        """Load what is trained on, and what margins are learned from."""
        return load_dataset(self.dataset, "train")


def _methods(eps: float, steps: int) -> dict[str, Method]:
    return {
        **{name: Method(name, eps, steps) for name in ("sat", "trades", "mart")},
        # Toward DI0 of the paper: margins as wide as they get, images standardized.
        "mma, standardized": Method("mma", 2 * eps, steps, standardized=True),
        # Only some classes have to be safe.
        "sat, half": Method("sat", eps, steps, classes=5),
    }


def _paper(eps: float, steps: int) -> dict[str, Method]:
    """Those of the paper, of which one is two; squares are averaged over ten logits."""
    return {
        **{name: Method(name, eps, steps) for name in ("sat", "trades", "mart")},
        **{
            name: Method(name, eps, steps, weight=0.05)
            for name in ("alp", "clp", "clp-attacked")
        },
    }


_CIFAR: Final = Recipe(targets=2, steps=10, refine_steps=20, rounds=1)
_DIGITS: Final = Recipe(targets=1, steps=5, refine_steps=0, rounds=0)
_MNIST: Final = Recipe(targets=2, steps=10, refine_steps=30, rounds=3)

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
            dataset="mnist", eps=(0.05, 0.1, 0.2, 0.3), focus=0.1,
            models={f"mnist-cnn-s{seed}": (_MNIST, 500) for seed in range(2)},
            methods=_methods(0.2, 4), budget=Budget(10_000, 4),
            learning=Learning({}, (3000,), 3, {}),
        ),
        DefendedSetting(
            dataset="cifar10", split="test1000",
            eps=tuple(level / 255 for level in (2, 4, 8, 12, 16, 32)), focus=8 / 255,
            models={f"cifar10-cnn-s{seed}": (_CIFAR, 1000) for seed in range(2)},
            methods=_paper(8 / 255, 4), budget=Budget(10_000, 4),
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
    "group", where only some classes are defended: τ among the decisions for these, and
    among the others, with the medians of both margins;
    "method": means over the seeds of ``tau``, ``accuracy``, ``robust_accuracy`` and, at
    the usual ε, ``auroc``, each with a standard error (``_se``) over seeds and images;
    "learned" and "learned detection": of the weakest network, as "method" and
    "detection" of the study ``margin_pseudo``, where ``score`` is what is called method
    there, and "by_class" is the logit margin times a factor of the predicted class. The
    weakest network has the least τ among those that are right at least half as often as
    their plain one. It is tested on other images than those that chose it.

    Margin paper, sections 3 and 5, Tables 1 and 2 and Figure 9. Every input margin is
    an upper bound.
    """
    for setting in run.settings:
        keys: Row = {"dataset": setting.dataset}
        found: dict[tuple[str, str], list[Row]] = {}
        for method in run.each((PLAIN, *setting.methods)):
            own: list[Row] = []
            for number, start in enumerate(setting.models):
                measured = measure(run, setting, method, start)
                one = [*_of_network(measured, setting)]
                if method != PLAIN and (some := setting.methods[method].classes):
                    one += _groups(measured, some)
                yield from under({**keys, "method": method, "seed": number}, one)
                own += one
                found[method, start] = one
            yield {"what": "method", **keys, "method": method, **_mean(own, setting)}
        if setting.learning is not None:
            learned = _learned(run, setting, setting.learning, *_weakest(found))
            yield from under(keys, learned)


def _learned(
    run: Run[DefendedSetting], setting: DefendedSetting, learning: Learning,
    weak: str, start: str,
) -> Iterator[Row]:  # fmt: skip
    """Learn margins of one network, and test on images that did not choose it."""
    most, tested = max(learning.sizes), setting.models[start][1]
    later = setting.data().subset(slice(tested, 2 * tested))
    train, test = (
        measure(run, setting, weak, start, data)
        for data in (setting.training_images().subset(slice(most)), later)
    )
    for row in learned_rows(train, test, setting, learning, run.seed):
        what = {"method": "learned", "detection": "learned detection"}[row["what"]]
        yield {**row, "what": what, "score": row["method"], "method": weak}
    values = _by_class(train, test)
    key: Row = {"score": "by_class", "method": weak, "train": len(train)}
    paired = paired_tau_difference(values, scores_of(test)[_SCORES[0]], test.bounds)
    order = tau_row("tau", consistency_of(values, test.bounds))
    yield {"what": "learned", **key, **order, **difference_row(*paired)}
    for row in detections(values, test.bounds, setting):
        yield {**row, "what": "learned detection", **key}


def _by_class(train: MeasuredMargins, test: MeasuredMargins) -> Tensor:
    """Logit margins times what is due to the predicted class in the median, (N,)."""
    factors = torch.ones(train.logits.shape[1], dtype=torch.float64)
    due, decided = train.bounds / scores_of(train)[_SCORES[0]], train.logits.argmax(1)
    for k in range(len(factors)):
        if (decided == k).any():
            factors[k] = due[decided == k].median()
    return scores_of(test)[_SCORES[0]] * factors[test.logits.argmax(dim=1)]


def _weakest(found: dict[tuple[str, str], list[Row]]) -> tuple[str, str]:
    """Method and start of the network with the least τ, of those of some accuracy."""

    def of(one: tuple[str, str], what: str, name: str) -> float:
        value: float = _logit_rows(found[one], what)[0][name]
        return value

    usable = [
        one
        for one in found
        if of(one, "network", "accuracy")
        >= of((PLAIN, one[1]), "network", "accuracy") / 2
    ]
    return min(usable, key=lambda one: of(one, "consistency", "tau"))


def _network(
    run: Run[DefendedSetting], setting: DefendedSetting, method: str, start: str
) -> nn.Module:
    seed = run.seed + [*setting.models].index(start)
    how, data = setting.methods.get(method), setting.training_images()
    return trained(start, how, data, setting.budget, seed=seed)


def measure(
    run: Run[DefendedSetting], setting: DefendedSetting, method: str, start: str,
    data: Dataset | None = None,
) -> MeasuredMargins:  # fmt: skip
    """Margins of a network, which is trained before, on its images or on others."""
    model = _network(run, setting, method, start)
    data = setting.images_of(start) if data is None else data
    recipe, _ = setting.models[start]
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


def _groups(measured: MeasuredMargins, classes: int) -> Iterator[Row]:
    """Margins of decisions for the first classes, and of those for the others."""
    for defended in (True, False):
        part = measured[(measured.logits.argmax(dim=1) < classes) == defended]
        gap = scores_of(part)[_SCORES[0]]
        yield {
            "what": "group", "defended": defended, "count": len(part),
            **tau_row("tau", consistency_of(gap, part.bounds)),
            "logit_margin": float(gap.median()),
            "input_margin": float(part.bounds.median()),
        }  # fmt: skip


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
