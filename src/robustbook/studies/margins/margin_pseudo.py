"""Margins learned from features, against margins that cost one gradient."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import RidgeCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor
from tqdm import tqdm

from robustbook.datasets import Dataset, load_dataset
from robustbook.margins import IsotonicMargin, PseudoMargin
from robustbook.margins import margin_consistency as consistency_of
from robustbook.models import load_model
from robustbook.studies.margins._measured import (
    MarginSetting,
    MeasuredMargins,
    detection_row,
    margin_settings,
    margins_of,
    paired_tau_difference,
    scores_of,
    tau_row,
)
from robustbook.studies._rows import Row
from robustbook.studies.adversarial.attacked import data_sha256, model_sha256

__all__ = ["data_sums", "margin_pseudo"]

#: Penalties that ridge regression chooses from.
PENALTIES: Final = np.logspace(-3, 5, 17)
#: Test images at most.
TESTED: Final = 4000
#: Those of them that are shown.
SHOWN: Final = 200


@dataclass(frozen=True)
class _Plan:
    #: Models, and how many training images are measured on each.
    models: dict[str, int]
    #: How many of them are learned from.
    sizes: tuple[int, ...]
    #: Training runs of the network on each.
    seeds: int
    options: dict[str, int]


_PLANS: Final = {
    "quick": _Plan(
        {"digits-cnn-s0": 300, "digits-cnn-adv-s0": 300},
        (150, 300),
        2,
        {"width": 128, "epochs": 60, "patience": 10},
    ),
    "full": _Plan(
        {
            "mnist-madry_tiny_adv": 5000,
            "cifar10-cnn_a_adv4": 3000,
        },
        (500, 1500, 3000, 5000),
        3,
        {},
    ),
}


def margin_pseudo(
    *, profile: str = "full", seed: int = 0, device: str = "auto"
) -> list[Row]:
    """Learn input margins from training images, and test on test images.

    Parameters
    ----------
    profile : {"quick", "full"}
        "quick" takes digits, "full" the models whose logit margins order their
        samples worst.
    seed : int
        Of the attacks, and of the first training run.
    device : str
        Where the attacks run.

    Returns
    -------
    list of dict
        Rows with ``what`` =
        "method": what a ``method`` that learned from ``train`` images makes of
        the test images: ``tau`` of its predictions with the input margins,
        ``tau_difference``, by how much that is more than τ of the logit margin,
        ``spearman``, and ``mae``, the mean absolute error (None for scores that are
        no margins). Methods: "pseudo", five layers of 512 on the features, one row
        for each ``training_seed``; "ridge", linear in the features, and "ridge_logits",
        linear in the sorted gaps of logits; "boosted_scores", boosted trees on all
        scores together; "isotonic" and "gradient_isotonic", a rising function of one
        score; and, with nothing learned (``train`` 0), the scores themselves.
        "detection": AUROC, AUPR and FPR at 95 % TPR of the same at ``eps``, for the
        largest ``train``;
        "epoch": errors on the training images of one run, learned from and held
        out; "sample": predictions on some test images.

    Notes
    -----
    Margin paper, section 3.3, Figure 7 and Table 2. Chapter 26 of this book.
    """
    plan = _PLANS[profile]
    rows: list[Row] = []
    for setting in margin_settings(profile):
        models = [model for model in plan.models if model in setting.models]
        for model in tqdm(models, desc="margin_pseudo", disable=None):
            recipe, _ = setting.models[model]
            test = margins_of(
                model, setting.data(model).subset(slice(TESTED)), recipe,
                seed=seed, device=device,
            )  # fmt: skip
            known = margins_of(
                model, _training_data(setting, plan.models[model]), recipe,
                seed=seed, device=device,
            )  # fmt: skip
            key = {"dataset": setting.dataset, "model": model}
            rows += [
                {"what": row.pop("what"), **key, **row}
                for row in _of_model(known, test, setting, plan, seed)
            ]
    return rows


def data_sums(profile: str) -> dict[str, str]:
    """sha256 of the models and of the images."""
    plan, sums = _PLANS[profile], dict[str, str]()
    for setting in margin_settings(profile):
        models = [model for model in plan.models if model in setting.models]
        if not models:
            continue
        sums |= {model: model_sha256(load_model(model)) for model in models}
        most = min(TESTED, max(setting.models[model][1] for model in models))
        data = load_dataset(setting.dataset, setting.split).subset(slice(most))
        sums[f"{setting.dataset} {setting.split}"] = data_sha256(data)
        most = max(plan.models[model] for model in models)
        sums[f"{setting.dataset} train"] = data_sha256(_training_data(setting, most))
    return sums


def _training_data(setting: MarginSetting, count: int) -> Dataset:
    return load_dataset(setting.dataset, "train").subset(slice(count))


def _of_model(
    known: MeasuredMargins,
    test: MeasuredMargins,
    setting: MarginSetting,
    plan: _Plan,
    seed: int,
) -> Iterator[Row]:
    known = known[known.bounds.isfinite()]
    before, after = scores_of(known), scores_of(test)
    for name, values in after.items():
        key = {"method": name, "train": 0, "training_seed": None}
        mae = name in ("gradient_margin", "first_order_margin")
        yield from _tested(key, values, test, setting, mae=mae, detect=True)
    sizes = sorted({min(size, len(known)) for size in plan.sizes})
    for size in sizes:
        last = size == sizes[-1]
        for method, score in (
            ("isotonic", "logit_margin"),
            ("gradient_isotonic", "gradient_margin"),
        ):
            usable = before[score][:size].isfinite()
            model = IsotonicMargin().fit(
                before[score][:size][usable], known.bounds[:size][usable]
            )
            values = model.predict(after[score])
            key = {"method": method, "train": size, "training_seed": None}
            yield from _tested(key, values, test, setting, mae=True, detect=last)
        for method, inputs in (
            ("ridge", (known.features, test.features)),
            ("ridge_logits", (_sorted(known.logits), _sorted(test.logits))),
        ):
            values = _ridge(inputs[0][:size], known.bounds[:size], inputs[1])
            key = {"method": method, "train": size, "training_seed": None}
            yield from _tested(key, values, test, setting, mae=True, detect=last)
        values = _boosted(before, known.bounds, after, size)
        key = {"method": "boosted_scores", "train": size, "training_seed": None}
        yield from _tested(key, values, test, setting, mae=True, detect=last)
        for number in range(plan.seeds):
            network = PseudoMargin(seed=seed + number, **plan.options)
            network.fit(known.features[:size], known.bounds[:size])
            values = network.predict(test.features)
            key = {"method": "pseudo", "train": size, "training_seed": seed + number}
            yield from _tested(key, values, test, setting, mae=True, detect=last)
            if last and number == 0:
                yield from _epochs(network)
                yield from _samples(values, after, test, seed)


def _sorted(logits: Tensor) -> Tensor:
    """Gaps of the largest logit to all others, the smallest first."""
    ordered = logits.double().sort(dim=1, descending=True).values
    return ordered[:, :1] - ordered[:, 1:]


def _ridge(inputs: Tensor, margins: Tensor, others: Tensor) -> Tensor:
    """A linear function of standardized inputs, its penalty cross-validated."""
    model = make_pipeline(StandardScaler(), RidgeCV(alphas=PENALTIES))
    model.fit(inputs.double().numpy(), margins.numpy())
    return torch.from_numpy(model.predict(others.double().numpy()))


def _boosted(
    scores: dict[str, Tensor], margins: Tensor, others: dict[str, Tensor], size: int
) -> Tensor:
    """Boosted trees on all scores: what is known without an attack, no features."""
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
    key: Row,
    values: Tensor,
    test: MeasuredMargins,
    setting: MarginSetting,
    *,
    mae: bool,
    detect: bool,
) -> Iterator[Row]:
    bounds = test.bounds
    measured = consistency_of(values, bounds)
    logit = scores_of(test)["logit_margin"]
    difference, error = paired_tau_difference(values, logit, bounds)
    kept = bounds.isfinite() & values.isfinite()
    yield {
        "what": "method",
        **key,
        "samples": len(test),
        **tau_row("tau", measured),
        "tau_difference": difference,
        "tau_difference_low": difference - 1.96 * error,
        "tau_difference_high": difference + 1.96 * error,
        "spearman": measured.spearman,
        "mae": float((values - bounds)[kept].abs().mean()) if mae else None,
    }
    for eps in setting.eps if detect else ():
        yield {
            "what": "detection",
            **key,
            "eps": eps,
            "usual": eps == setting.focus,
            "brittle": float((bounds <= eps).double().mean()),
            **detection_row(values, bounds, eps),
        }


def _epochs(network: PseudoMargin) -> Iterator[Row]:
    for epoch, (learned, held_out) in enumerate(network.history):
        yield {
            "what": "epoch",
            "epoch": epoch,
            "kept": epoch == network.best_epoch,
            "rmse": learned,
            "rmse_held_out": held_out,
        }


def _samples(
    values: Tensor, scores: dict[str, Tensor], test: MeasuredMargins, seed: int
) -> Iterator[Row]:
    random = np.random.default_rng([seed, len(test)])
    count = min(SHOWN, len(test))
    for index in np.sort(random.choice(len(test), count, replace=False)).tolist():
        yield {
            "what": "sample",
            "index": index,
            "input_margin": float(test.bounds[index]),
            "logit_margin": float(scores["logit_margin"][index]),
            "gradient_margin": float(scores["gradient_margin"][index]),
            "pseudo_margin": float(values[index]),
        }
