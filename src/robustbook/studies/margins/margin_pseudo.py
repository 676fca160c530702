"""Margins learned from features, against margins that cost one gradient."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import torch
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import RidgeCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor

from robustbook.datasets import load_dataset
from robustbook.margins import PseudoMargin
from robustbook.studies.margins.columns import detections, difference_row, tau_row
from robustbook.studies.margins.measured import MeasuredMargins, margins_of, scores_of
from robustbook.studies.margins.settings import SETTINGS as ALL
from robustbook.studies.margins.settings import MarginSetting
from robustbook.studies.run import Row, Run, with_keys

#: Penalties that ridge regression chooses from.
PENALTIES: Final = np.logspace(-3, 5, 17)
#: Test images at most.
TESTED: Final = 4000


@dataclass(frozen=True)
class Learning:
    """Training images of each model, sizes of the parts to learn from, and runs."""

    images: dict[str, int]
    sizes: tuple[int, ...]
    seeds: int
    options: dict[str, int]


_LEARNING: Final = {
    "quick": Learning(
        {"digits-cnn-s0": 120, "digits-cnn-adv-s0": 120},
        (60, 120),
        2,
        {"width": 128, "epochs": 40, "patience": 8},
    ),
    "full": Learning(
        {"cifar10-cnn_a_adv4": 3000, "mnist-madry_tiny_adv": 5000},
        (500, 1500, 3000, 5000),
        3,
        {},
    ),
}
#: In full the networks whose logit margins order their samples worst.
SETTINGS: Final = {
    profile: tuple(setting.only(*_LEARNING[profile].images) for setting in ALL[profile])
    for profile in _LEARNING
}


def measure(run: Run[MarginSetting], model: str) -> Iterator[Row]:
    """Learn input margins from training images, and test on test images.

    Rows with ``what`` =
    "method": what a ``method`` that learned from ``train`` images makes of the test
    images: ``tau`` of its predictions with the input margins, ``tau_difference``, by
    how much that is more than τ of the logit margin, and ``mae``, the mean absolute
    error (None for scores that are no margins). Methods: "pseudo", five
    layers of 512 on the features, one row for each ``training_seed``; "ridge", linear
    in the features, and "ridge_logits", linear in the sorted gaps of logits;
    "boosted_scores", boosted trees on all scores together; "isotonic" and
    "gradient_isotonic", a rising function of one score; and, with nothing learned
    (``train`` 0), the scores themselves.
    "detection": AUROC, AUPR and FPR at 95 % TPR of the same at ``eps``, for the largest
    ``train``.

    Margin paper, section 3.3, Figure 7 and Table 2. Chapter 30 of this book.
    """
    setting, learning = run.setting, _LEARNING[run.profile]
    data = load_dataset(setting.dataset, "train")
    splits = (
        data.subset(slice(learning.images[model])),
        setting.images_of(model).subset(slice(TESTED)),
    )
    recipe, _ = setting.models[model]
    train, test = (margins_of(run, model, images, recipe) for images in splits)
    keys = {"dataset": setting.dataset, "model": model}
    yield from with_keys(keys, learned_rows(run, train, test, setting, learning))


def learned_rows(
    run: Run[Any],
    train: MeasuredMargins,
    test: MeasuredMargins,
    setting: MarginSetting,
    learning: Learning,
) -> Iterator[Row]:
    """Learn from a part of the training images, and from all; test on other images."""
    train = train[train.bounds.isfinite()]
    sizes = sorted({min(size, len(train)) for size in learning.sizes})
    learning = replace(learning, images={}, sizes=tuple(sizes))
    arguments = train, test, setting.only(), learning
    for size in (0, *sizes):
        yield from run.rows("learned margins", _learned, *arguments, size, run.seed)


def _learned(
    train: MeasuredMargins,
    test: MeasuredMargins,
    setting: MarginSetting,
    learning: Learning,
    size: int,
    seed: int,
) -> Iterator[Row]:
    """Learn from `size` images; with none, use scores that need no learning."""
    before, after = scores_of(train), scores_of(test)
    for name, values in after.items() if size == 0 else ():
        key = {"method": name, "train": 0, "training_seed": None}
        mae = name in ("gradient_margin", "first_order_margin")
        yield from with_keys(key, _tested(values, test, setting, mae=mae, detect=True))
    if size == 0:
        return
    bounds = train.bounds[:size]
    learned: list[tuple[str, int | None, Tensor]] = []
    for method, score in (
        ("isotonic", "logit_margin"),
        ("gradient_isotonic", "gradient_margin"),
    ):
        values = before[score][:size]
        usable = values.isfinite()
        rising = _rising(values[usable], bounds[usable], after[score])
        learned.append((method, None, rising))
    for method, inputs, others in (
        ("ridge", train.features, test.features),
        ("ridge_logits", _sorted(train.logits), _sorted(test.logits)),
    ):
        learned.append((method, None, _ridge(inputs[:size], bounds, others)))
    boosted = _boosted(before, train.bounds, after, size)
    learned.append(("boosted_scores", None, boosted))
    for number in range(seed, seed + learning.seeds):
        network = PseudoMargin(seed=number, **learning.options)
        network.fit(train.features[:size], bounds)
        learned.append(("pseudo", number, network.predict(test.features)))
    for method, training_seed, values in learned:
        key = {"method": method, "train": size, "training_seed": training_seed}
        last = size == learning.sizes[-1]
        yield from with_keys(key, _tested(values, test, setting, mae=True, detect=last))


def _sorted(logits: Tensor) -> Tensor:
    """Gaps of the largest logit to all others, the smallest first."""
    ordered = logits.double().sort(dim=1, descending=True).values
    return ordered[:, :1] - ordered[:, 1:]


def _rising(scores: Tensor, margins: Tensor, others: Tensor) -> Tensor:
    """The rising function of a score that fits best, constant beyond the scores."""
    model = IsotonicRegression().fit(scores.double().numpy(), margins.double().numpy())
    inside = others.double().clamp(model.X_min_, model.X_max_)
    return torch.from_numpy(model.predict(inside.numpy())).double()


def _ridge(inputs: Tensor, margins: Tensor, others: Tensor) -> Tensor:
    """A linear function of standardized inputs, its penalty cross-validated."""
    model = make_pipeline(StandardScaler(), RidgeCV(alphas=PENALTIES))
    model.fit(inputs.double().numpy(), margins.numpy())
    return torch.from_numpy(model.predict(others.double().numpy()))


def _boosted(
    scores: dict[str, Tensor], margins: Tensor, others: dict[str, Tensor], size: int
) -> Tensor:
    """Boosted trees on all scores that need no attack, without the features."""
    inputs, unseen = (
        # Where a gradient is zero, trees do without.
        torch.stack(list(part.values()), dim=1).nan_to_num(posinf=torch.nan).numpy()
        for part in (scores, others)
    )
    model = HistGradientBoostingRegressor(
        max_iter=200, learning_rate=0.05, min_samples_leaf=10, random_state=0
    )
    model.fit(inputs[:size], margins[:size].numpy())
    return torch.from_numpy(model.predict(unseen))


def _tested(
    values: Tensor,
    test: MeasuredMargins,
    setting: MarginSetting,
    *,
    mae: bool,
    detect: bool,
) -> Iterator[Row]:
    bounds = test.bounds
    logit_margins = scores_of(test)["logit_margin"]
    finite = bounds.isfinite() & values.isfinite()
    yield {
        "what": "method",
        "samples": len(test),
        **tau_row("tau", values, bounds),
        **difference_row(values, logit_margins, bounds),
        "mae": float((values - bounds)[finite].abs().mean()) if mae else None,
    }
    if detect:
        yield from detections(values, bounds, setting)
