"""Do margins of logits order samples as margins of inputs do? On every model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import torch
from scipy.stats import kendalltau, spearmanr
from torch import Tensor

from robustbook.margins import class_distances
from robustbook.margins import margin_consistency as consistency_of
from robustbook.studies._run import Row, Run, under
from robustbook.studies._statistics import interval_row, mean_error, middle_95
from robustbook.studies.margins.columns import (
    detections,
    difference_row,
    paired_tau_difference,
    share_row,
    tau_row,
)
from robustbook.studies.margins.measured import (
    FOUND_BY,
    MeasuredMargins,
    margins_in,
    scores_of,
)
from robustbook.studies.margins.settings import SETTINGS, MarginSetting

__all__ = ["SETTINGS", "rows"]

#: Quantiles of margins, ratios and distances that rows give.
QUANTILES: Final = (0.05, 0.25, 0.5, 0.75, 0.95)
#: Groups of samples of like input margins, for the curves of Figure 2.
BINS: Final = 20
#: Draws of images for intervals of what is compared across models.
DRAWS: Final = {"quick": 50, "full": 200}


def rows(run: Run[MarginSetting]) -> Iterator[Row]:
    """Measure margin consistency, detection, equidistance and isometry.

    Rows with ``what`` =
    "model": accuracy, quantiles of the input margins, and who found them;
    "robust": robust accuracy and the share of brittle decisions at ``eps``;
    "consistency": τ and Spearman's ρ of a ``score`` with the input margin, on all
    samples or on those classified correctly (``subset``);
    "difference": τ of a score less that of the logit margin, paired;
    "detection": AUROC, AUPR and FPR at 95 % TPR of a score at ``eps``;
    "equidistance": distances between the weights of the classes;
    "isometry": how far features move on the way to the boundary, against how far inputs
    do;
    "bin": the mean score of samples of like input margin, and the mean distance of
    their features from those of the closest image ("feature_distance");
    "across": rank correlation, over models, of τ with robust accuracy.
    Ends of 95 % intervals are in ``_low`` and ``_high``.

    Margin paper, Figures 2, 4, 6, 9 and 13 and Table 1; chapters 21 and 22 of this
    book. Every input margin is an upper bound.
    """
    for setting in run.settings:
        networks = {}
        for model in run.each(setting.models):
            networks[model] = margins_in(run, setting, model)
            keys = {"dataset": setting.dataset, "model": model}
            yield from under(keys, _of_model(networks[model], setting))
        across = _across(networks, setting, DRAWS[run.profile], run.seed)
        yield from under({"what": "across", "dataset": setting.dataset}, across)


def _of_model(measured: MeasuredMargins, setting: MarginSetting) -> Iterator[Row]:
    bounds, correct = measured.bounds, measured.correct
    yield {
        "what": "model",
        "samples": len(measured),
        "features": measured.features.shape[1],
        **share_row("accuracy", correct),
        **_quantiles("margin", bounds[bounds.isfinite()]),
        "missing": float(bounds.isinf().double().mean()),
        **{
            f"by_{name}": float((measured.found_by == code).double().mean())
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
    scores = scores_of(measured)
    for name, values in scores.items():
        for subset, kept in (("all", torch.ones_like(correct)), ("correct", correct)):
            order = consistency_of(values[kept], bounds[kept])
            yield {
                "what": "consistency", "score": name, "subset": subset,
                "samples": int(kept.sum()), **tau_row("tau", order),
                "spearman": order.spearman,
            }  # fmt: skip
        if name != "logit_margin":
            paired = paired_tau_difference(values, scores["logit_margin"], bounds)
            yield {"what": "difference", "score": name, **difference_row(*paired)}
        yield from under({"score": name}, detections(values, bounds, setting))
        yield from _bins(name, values, bounds)
    yield from _bins("feature_distance", measured.feature_shifts, bounds)
    yield from _geometry(measured)


def _quantiles(name: str, values: Tensor) -> Row:
    """Quantiles, in columns that name their percentage."""
    shares = torch.tensor(QUANTILES, dtype=torch.float64)
    quantiles = values.double().quantile(shares).tolist()
    return {
        f"{name}_q{100 * share:02.0f}": value
        for share, value in zip(QUANTILES, quantiles, strict=True)
    }


def _bins(name: str, values: Tensor, bounds: Tensor) -> Iterator[Row]:
    """Mean scores of samples of like input margin, as many in each group."""
    order = bounds.argsort(stable=True)
    for place, rows in enumerate(order.tensor_split(BINS)):
        part = values[rows]
        part = part[part.isfinite()]  # not where a gradient is zero
        yield {
            "what": "bin", "score": name, "bin": place, "count": len(part),
            "input_margin": float(bounds[rows].mean()),
            "value": float(part.mean()) if len(part) else None,
            "value_se": mean_error(part) if len(part) > 1 else None,
        }  # fmt: skip


def _geometry(measured: MeasuredMargins) -> Iterator[Row]:
    """Equidistant classes, and features that move as far as inputs do."""
    table = class_distances(measured.weights).distances
    first, second = torch.triu_indices(len(table), len(table), offset=1)
    apart = table[first, second]
    scores = scores_of(measured)
    feature, logit = scores["feature_margin"], scores["logit_margin"]
    top = measured.logits.topk(2, dim=1).indices
    gaps = measured.logits.gather(1, top[:, :1]) - measured.logits
    # Of the predicted class, 0 / 0: no boundary of its own.
    distances = (gaps / table[top[:, 0]]).nan_to_num(nan=torch.inf)
    yield {
        "what": "equidistance", **_quantiles("distance", apart),
        "distance_min": float(apart.min()), "distance_max": float(apart.max()),
        "variation": class_distances(measured.weights).variation, "pairs": len(apart),
        "tau_margins": float(kendalltau(logit, feature).statistic),
        "same_class": float((distances.argmin(dim=1) == top[:, 1]).double().mean()),
    }  # fmt: skip
    kept = measured.bounds.isfinite()
    bounds, shifts = measured.bounds[kept], measured.feature_shifts[kept]
    isometry = consistency_of(shifts, bounds)
    own = consistency_of(feature[kept], shifts)
    ratio = shifts / bounds
    yield {
        "what": "isometry", **tau_row("tau", isometry), **tau_row("tau_feature", own),
        **_quantiles("ratio", ratio), "variation": float(ratio.std() / ratio.mean()),
    }  # fmt: skip


def _across(
    networks: dict[str, MeasuredMargins], setting: MarginSetting, draws: int, seed: int
) -> Iterator[Row]:
    """Do models that are more robust keep the order of margins better?"""
    random = np.random.default_rng([seed, len(networks)])
    shortest = min(len(one) for one in networks.values())
    picks = [np.arange(shortest)]
    picks += [random.integers(shortest, size=shortest) for _ in range(draws)]
    names = ("logit_margin", "gradient_margin")
    taus = np.empty((len(picks), len(names), len(networks)))
    robust = np.empty((len(picks), len(setting.eps), len(networks)))
    for column, one in enumerate(networks.values()):
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
                "score": name, "eps": eps, "usual": eps == setting.focus,
                "models": len(networks), "samples": shortest,
                **interval_row("kendall", *_with_ends(kendall)),
                **interval_row("spearman", *_with_ends(spearman)),
                "p_value": float(kendalltau(*pairs[0]).pvalue),
            }  # fmt: skip


def _with_ends(values: list[float]) -> tuple[float, tuple[float | None, float | None]]:
    """The first value, and the middle 95 % of the others."""
    return float(values[0]), middle_95(np.array(values[1:]))
