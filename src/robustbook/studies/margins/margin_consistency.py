"""Do margins of logits order samples as margins of inputs do? On every model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import torch
from scipy.stats import kendalltau
from torch import Tensor

from robustbook.margins import class_distances
from robustbook.studies._statistics import Integers, mean_error
from robustbook.studies.margins.columns import (
    detections,
    difference_row,
    robust_rows,
    tau_row,
)
from robustbook.studies.margins.measured import MeasuredMargins, margins_in, scores_of
from robustbook.studies.margins.settings import MarginSetting
from robustbook.studies.run import Row, Run, significant, with_keys

#: Quantiles of distances that rows give.
QUANTILES: Final = (0.25, 0.5, 0.75)
#: Groups of samples of like input margins, for the curves of Figure 2.
BINS: Final = 20
#: Images of each network in the study ``margin_samples``.
SHOWN: Final = {"quick": 100, "full": 200}


def parts(
    run: Run[MarginSetting], *, samples: bool = False
) -> Iterator[tuple[str, int]]:
    """Each network, with the number of images that all share, if some are shown."""
    shared = min(count for _, count in run.setting.models.values()) if samples else 0
    return ((model, shared) for model in run.setting.models)


def measure(run: Run[MarginSetting], model: str, shared: int) -> Iterator[Row]:
    """Measure margin consistency, detection, equidistance and isometry.

    Rows with ``what`` =
    "robust": robust accuracy and the share of brittle decisions at ``eps``;
    "consistency": τ of a ``score`` with the input margin, on all samples or on those
    classified correctly (``subset``);
    "difference": τ of a score minus that of the logit margin, paired;
    "detection": AUROC, AUPR and FPR at 95 % TPR of a score at ``eps``;
    "equidistance": distances between the weights of the classes;
    "isometry": how far features move on the way to the boundary, against how far inputs
    do;
    "bin": the mean logit margin of samples of like input margin;
    "across": rank correlation, over models, of τ with robust accuracy.
    Ends of 95 % intervals are in ``_low`` and ``_high``.

    In the study ``margin_samples``, where `shared` is not 0, there is one row for each
    network and each of some images, drawn at random and the same for all networks of a
    data set: ``index`` in the split, ``label``, ``predicted``, ``input_margin``,
    ``logit_margin``, ``feature_margin``, ``softmax_margin``, ``gradient_margin``,
    ``first_order_margin`` and ``feature_distance``, how far the features are from those
    of the closest image.

    Margin paper, Figures 2, 4, 6, 9 and 13 and Table 1; chapters 22 and 23 of this
    book. Every input margin is an upper bound.
    """
    measured, shown = margins_in(run, model), SHOWN[run.profile]
    if shared:
        chosen = np.random.default_rng([run.seed, shared])
        rows = _samples(measured, chosen.choice(shared, size=shown, replace=False))
    else:
        rows = _of_model(measured, run.setting)
    return with_keys({"dataset": run.setting.dataset, "model": model}, rows)


def summary(run: Run[MarginSetting], *, samples: bool = False) -> Iterator[Row]:
    """Relations across the networks of a setting."""
    if not samples:
        networks = {model: margins_in(run, model) for model in run.setting.models}
        across = _across(networks, run.setting)
        yield from with_keys({"what": "across", "dataset": run.setting.dataset}, across)


def _of_model(measured: MeasuredMargins, setting: MarginSetting) -> Iterator[Row]:
    bounds, correct = measured.bounds, measured.correct
    yield from robust_rows(correct, bounds, setting)
    scores = scores_of(measured)
    for name, values in scores.items():
        for subset, kept in (("all", torch.ones_like(correct)), ("correct", correct)):
            yield {
                "what": "consistency",
                "score": name,
                "subset": subset,
                "samples": int(kept.sum()),
                **tau_row("tau", values[kept], bounds[kept]),
            }
        if name != "logit_margin":
            difference = difference_row(values, scores["logit_margin"], bounds)
            yield {"what": "difference", "score": name, **difference}
        yield from with_keys({"score": name}, detections(values, bounds, setting))
        if name == "logit_margin":
            yield from _bins(name, values, bounds)
    yield from _geometry(measured)


def _bins(name: str, values: Tensor, bounds: Tensor) -> Iterator[Row]:
    """Mean scores of equally large groups of samples of similar input margin."""
    order = bounds.argsort(stable=True)
    for place, rows in enumerate(order.tensor_split(BINS)):
        part = values[rows]
        yield {
            "what": "bin",
            "score": name,
            "bin": place,
            "count": len(part),
            "input_margin": float(bounds[rows].mean()),
            "value": float(part.mean()),
            "value_se": mean_error(part) if len(part) > 1 else None,
        }


def _geometry(measured: MeasuredMargins) -> Iterator[Row]:
    """Equidistant classes, and features that move as far as inputs do."""
    table = class_distances(measured.weights).distances
    first, second = torch.triu_indices(len(table), len(table), offset=1)
    apart = table[first, second].double()
    yield {
        "what": "equidistance",
        **{f"distance_q{100 * q:02.0f}": float(apart.quantile(q)) for q in QUANTILES},
        "distance_min": float(apart.min()),
        "distance_max": float(apart.max()),
    }
    kept = measured.bounds.isfinite()
    bounds, shifts = measured.bounds[kept], measured.feature_shifts[kept]
    feature_margins = scores_of(measured)["feature_margin"][kept]
    ratio = shifts / bounds
    yield {
        "what": "isometry",
        **tau_row("tau", shifts, bounds),
        **tau_row("tau_feature", feature_margins, shifts),
        "variation": float(ratio.std() / ratio.mean()),
    }


def _across(
    networks: dict[str, MeasuredMargins], setting: MarginSetting
) -> Iterator[Row]:
    """Do models that are more robust keep the order of margins better?"""
    shortest = min(len(net) for net in networks.values())
    shared = [net[torch.arange(shortest)] for net in networks.values()]
    taus = [
        kendalltau(scores_of(net)["logit_margin"], net.bounds).statistic
        for net in shared
    ]
    for eps in setting.eps:
        robust = [
            float((net.correct & (net.bounds > eps)).double().mean()) for net in shared
        ]
        if np.ptp(robust) == 0:
            continue
        order = kendalltau(taus, robust)
        yield {
            "score": "logit_margin",
            "eps": eps,
            "models": len(networks),
            "kendall": float(order.statistic),
            "p_value": float(order.pvalue),
        }


def _samples(measured: MeasuredMargins, chosen: Integers) -> Iterator[Row]:
    scores = scores_of(measured)
    predicted = measured.logits.argmax(dim=1)
    for index in np.sort(chosen).tolist():
        yield {
            "index": index,
            "label": int(measured.labels[index]),
            "predicted": int(predicted[index]),
            "input_margin": significant(measured.bounds[index]),
            **{name: significant(score[index]) for name, score in scores.items()},
            "feature_distance": significant(measured.feature_shifts[index]),
        }
