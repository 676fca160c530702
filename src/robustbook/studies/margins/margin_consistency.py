"""Do margins of logits order samples as margins of inputs do? On every model."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

import numpy as np
import torch
from scipy.stats import kendalltau, spearmanr
from torch import Tensor
from tqdm import tqdm

from robustbook.margins import class_distances
from robustbook.margins import margin_consistency as consistency_of
from robustbook.studies.margins._measured import (
    FOUND_BY,
    MarginSetting,
    MeasuredMargins,
    detection_row,
    margin_settings,
    margin_sums,
    paired_tau_difference,
    scores_of,
    share_row,
    tau_row,
)
from robustbook.studies._rows import Row

__all__ = ["data_sums", "margin_consistency"]

#: Quantiles of margins, ratios and distances that rows give.
QUANTILES: Final = (0.05, 0.25, 0.5, 0.75, 0.95)
#: Groups of samples of like input margins, for the curves of Figure 2.
BINS: Final = 20
#: Draws of images for intervals of what is compared across models.
DRAWS: Final = {"quick": 50, "full": 200}


def margin_consistency(
    *, profile: str = "full", seed: int = 0, device: str = "auto"
) -> list[Row]:
    """Measure margin consistency, detection, equidistance and isometry.

    Parameters
    ----------
    profile : {"quick", "full"}
        "quick" takes digits, "full" CIFAR-10 and MNIST.
    seed : int
        Of the attacks and of the draws.
    device : str
        Where the attacks run.

    Returns
    -------
    list of dict
        Rows with ``what`` =
        "model": accuracy, quantiles of the input margins, and who found them;
        "robust": robust accuracy and the share of brittle decisions at ``eps``;
        "consistency": τ and Spearman's ρ of a ``score`` with the input margin, on
        all samples or on those classified correctly (``subset``);
        "difference": τ of a score less that of the logit margin, paired;
        "detection": AUROC, AUPR and FPR at 95 % TPR of a score at ``eps``;
        "equidistance": distances between the weights of the classes;
        "isometry": how far features move on the way to the boundary, against how
        far inputs do;
        "bin": the mean score of samples of like input margin, and the mean distance
        of their features from those of the closest image ("feature_distance");
        "across": rank correlation, over models, of τ with robust accuracy.
        Ends of 95 % intervals are in ``_low`` and ``_high``.

    Notes
    -----
    Margin paper, Figures 2, 4, 6, 9 and 13 and Table 1; chapters 23 and 24 of this
    book. Every input margin is an upper bound.
    """
    rows: list[Row] = []
    for setting in margin_settings(profile):
        found = {}
        for model in tqdm(setting.models, desc="margin_consistency", disable=None):
            found[model] = setting.margins(model, seed=seed, device=device)
            key = {"dataset": setting.dataset, "model": model}
            rows += [
                {"what": row.pop("what"), **key, **row}
                for row in _of_model(found[model], setting)
            ]
        across = _across(found, setting, DRAWS[profile], seed)
        rows += [
            {"what": "across", "dataset": setting.dataset, **row} for row in across
        ]
    return rows


def data_sums(profile: str) -> dict[str, str]:
    """sha256 of the models and of the images."""
    return margin_sums(profile)


def _of_model(found: MeasuredMargins, setting: MarginSetting) -> Iterator[Row]:
    bounds, correct = found.bounds, found.correct
    yield {
        "what": "model",
        "samples": len(found),
        "features": found.features.shape[1],
        **share_row("accuracy", correct),
        **_quantiles("margin", bounds[bounds.isfinite()]),
        "missing": float(bounds.isinf().double().mean()),
        **{
            f"by_{name}": float((found.found_by == code).double().mean())
            for code, name in enumerate(FOUND_BY)
            if name != "none"
        },
    }
    for eps in setting.eps:
        yield {
            "what": "robust",
            "eps": eps,
            "usual": eps == setting.focus,
            **share_row("robust_accuracy", correct & (bounds > eps)),
            **share_row("brittle", bounds <= eps),
        }
    scores = scores_of(found)
    for name, values in scores.items():
        for subset, kept in (("all", torch.ones_like(correct)), ("correct", correct)):
            measured = consistency_of(values[kept], bounds[kept])
            yield {
                "what": "consistency",
                "score": name,
                "subset": subset,
                "samples": int(kept.sum()),
                **tau_row("tau", measured),
                "spearman": measured.spearman,
            }
        if name != "logit_margin":
            difference, error = paired_tau_difference(
                values, scores["logit_margin"], bounds
            )
            yield {
                "what": "difference",
                "score": name,
                "tau_difference": difference,
                "tau_difference_low": difference - 1.96 * error,
                "tau_difference_high": difference + 1.96 * error,
            }
        yield from _detection(name, values, bounds, setting)
        yield from _bins(name, values, bounds)
    yield from _bins("feature_distance", found.feature_shifts, bounds)
    yield from _geometry(found)


def _quantiles(name: str, values: Tensor) -> Row:
    """Quantiles, in columns that name their percentage."""
    shares = torch.tensor(QUANTILES, dtype=torch.float64)
    found = values.double().quantile(shares).tolist()
    return {
        f"{name}_q{100 * share:02.0f}": value
        for share, value in zip(QUANTILES, found, strict=True)
    }


def _detection(
    name: str, values: Tensor, bounds: Tensor, setting: MarginSetting
) -> Iterator[Row]:
    for eps in setting.eps:
        brittle = bounds <= eps
        row: Row = {
            "what": "detection",
            "score": name,
            "eps": eps,
            "usual": eps == setting.focus,
            "brittle": float(brittle.double().mean()),
        }
        yield {**row, **detection_row(values, bounds, eps)}


def _bins(name: str, values: Tensor, bounds: Tensor) -> Iterator[Row]:
    """Mean scores of samples of like input margin, as many in each group."""
    order = bounds.argsort(stable=True)
    for place, rows in enumerate(order.tensor_split(BINS)):
        part = values[rows]
        part = part[part.isfinite()]  # not where a gradient is zero
        yield {
            "what": "bin",
            "score": name,
            "bin": place,
            "count": len(part),
            "input_margin": float(bounds[rows].mean()),
            "value": float(part.mean()) if len(part) else None,
            "value_se": float(part.std()) / math.sqrt(len(part))
            if len(part) > 1
            else None,
        }


def _geometry(found: MeasuredMargins) -> Iterator[Row]:
    """Equidistant classes, and features that move as far as inputs do."""
    table = class_distances(found.weights).distances
    first, second = torch.triu_indices(len(table), len(table), offset=1)
    apart = table[first, second]
    scores = scores_of(found)
    feature, logit = scores["feature_margin"], scores["logit_margin"]
    top = found.logits.topk(2, dim=1).indices
    gaps = found.logits.gather(1, top[:, :1]) - found.logits
    # Of the predicted class, 0 / 0: no boundary of its own.
    distances = (gaps / table[top[:, 0]]).nan_to_num(nan=torch.inf)
    yield {
        "what": "equidistance",
        **_quantiles("distance", apart),
        "distance_min": float(apart.min()),
        "distance_max": float(apart.max()),
        "variation": class_distances(found.weights).variation,
        "pairs": len(apart),
        "tau_margins": float(kendalltau(logit, feature).statistic),
        "same_class": float((distances.argmin(dim=1) == top[:, 1]).double().mean()),
    }
    kept = found.bounds.isfinite()
    bounds, shifts = found.bounds[kept], found.feature_shifts[kept]
    isometry = consistency_of(shifts, bounds)
    own = consistency_of(feature[kept], shifts)
    ratio = shifts / bounds
    yield {
        "what": "isometry",
        **tau_row("tau", isometry),
        **tau_row("tau_feature", own),
        **_quantiles("ratio", ratio),
        "variation": float(ratio.std() / ratio.mean()),
    }


def _across(
    found: dict[str, MeasuredMargins], setting: MarginSetting, draws: int, seed: int
) -> Iterator[Row]:
    """Do models that are more robust keep the order of margins better?"""
    random = np.random.default_rng([seed, len(found)])
    shortest = min(len(one) for one in found.values())
    picks = [np.arange(shortest)]
    picks += [random.integers(shortest, size=shortest) for _ in range(draws)]
    names = ("logit_margin", "gradient_margin")
    taus = np.empty((len(picks), len(names), len(found)))
    robust = np.empty((len(picks), len(setting.eps), len(found)))
    for column, one in enumerate(found.values()):
        scores = scores_of(one)
        bounds, correct = one.bounds.numpy(), one.correct.numpy()
        for row, pick in enumerate(picks):
            for place, name in enumerate(names):
                taus[row, place, column] = kendalltau(
                    scores[name].numpy()[pick], bounds[pick]
                ).statistic
            for place, eps in enumerate(setting.eps):
                robust[row, place, column] = np.mean((correct & (bounds > eps))[pick])
    for place, name in enumerate(names):
        for level, eps in enumerate(setting.eps):
            pairs = list(zip(taus[:, place], robust[:, level], strict=True))
            if np.ptp(pairs[0][1]) == 0:
                continue
            kendall = [kendalltau(*pair).statistic for pair in pairs]
            spearman = [spearmanr(*pair).statistic for pair in pairs]
            yield {
                "score": name,
                "eps": eps,
                "usual": eps == setting.focus,
                "models": len(found),
                "samples": shortest,
                "kendall": float(kendall[0]),
                "kendall_low": float(np.nanquantile(kendall[1:], 0.025)),
                "kendall_high": float(np.nanquantile(kendall[1:], 0.975)),
                "spearman": float(spearman[0]),
                "spearman_low": float(np.nanquantile(spearman[1:], 0.025)),
                "spearman_high": float(np.nanquantile(spearman[1:], 0.975)),
                "p_value": float(kendalltau(*pairs[0]).pvalue),
            }
