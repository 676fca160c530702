"""Robust accuracy from a few measured margins: error, bias and coverage."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np
from scipy.stats import kendalltau, rankdata
from sklearn.isotonic import IsotonicRegression
from torch import Tensor

from robustbook._store.cache import Arrays, cached_arrays
from robustbook._store.sums import tensors_sum
from robustbook.margins import estimate_robust_accuracy, stratified_sample
from robustbook.margins.parts import tune_threshold
from robustbook.studies._rows import Row
from robustbook.studies._run import Run, under
from robustbook.studies._statistics import share_error
from robustbook.studies.margins.measured import MeasuredMargins, margins_in, scores_of
from robustbook.studies.margins.settings import SETTINGS, MarginSetting

__all__ = ["SETTINGS", "rows"]

#: What estimates take as auxiliary variable.
SCORES: Final = ("logit_margin", "gradient_margin")
#: The lower bound of Algorithm 1 on the share of brittle decisions that it finds.
_ALPHA: Final = 0.8
#: Quantiles of the errors, for box plots.
QUANTILES: Final = (0.05, 0.25, 0.5, 0.75, 0.95)


@dataclass(frozen=True)
class _Sizes:
    """Random subsets: how many of each size."""

    repeats: int
    sizes: tuple[int, ...]
    #: Sizes at other bounds than the usual one, and for other scores.
    few: tuple[int, ...]


_SIZES: Final = {
    "quick": _Sizes(20, (50, 100), (100,)),
    "full": _Sizes(100, (50, 100, 200, 300, 500, 1000), (100, 500)),
}
#: Parts of a subset for cross-fitting: half of the default, at half the cost.
FOLDS: Final = 5


@dataclass
class _Draws:
    """Estimates from one random subset after another."""

    values: list[float]
    intervals: list[tuple[float, float]]
    thresholds: list[float]


def rows(run: Run[MarginSetting]) -> Iterator[Row]:
    """Estimate robust accuracy from many random subsets, and compare with all.

    The truth is the share, of all samples, that are classified rightly with a measured
    margin above ε. Every subset serves all methods, but for the stratified one, which
    draws as many samples in its own way.

    One row for each model, ``eps``, subset ``size``, ``method`` ("algorithm-1", the
    paper's; "plain", the share in the subset; "design", the difference estimator;
    "stratified") and ``score``, what it takes as auxiliary variable: ``truth``;
    ``bias`` with its standard error ``bias_se``; ``sd``, ``rmse``, ``error_mean`` (of
    absolute errors), quantiles ``error_q05`` ... of errors; ``coverage`` of the 95 %
    interval with ``coverage_se`` and its mean ``width`` (None for Algorithm 1, which
    has none); for Algorithm 1 ``tpr``, the mean share of brittle decisions its
    threshold finds, and ``tau`` and ``tau_sd`` of the score on the subset. Method
    "no-alpha" is Algorithm 1 without a lower bound on that share. Method "population",
    of ``size`` N, one for each model and ``eps``, says what theory needs to know:
    ``truth``, ``accuracy``, ``brittle`` (share of all decisions), ``misjudged`` (share,
    at the threshold of the logit margin above which as many right predictions lie as
    are robust, of those that are misjudged), ``tpr`` at that threshold, ``floor`` (what
    Algorithm 1 is too low by if all samples are measured) and ``explained`` (R² of the
    isotonic regression among right predictions).

    Margin paper, Algorithm 1 and Figures 5, 10 and 11. Chapter 25 of this book.
    """
    sizes = _SIZES[run.profile]
    for setting, model in run.each_model():
        measured = margins_in(run, setting, model)
        stored = cached_arrays(
            {
                "margins": _sum(measured),
                "eps": repr((setting.eps, setting.focus)),
                "sizes": repr(sizes),
                "seed": run.seed,
            },
            partial(_stored_rows, measured, setting, sizes, run.seed),
            code=__name__,
        )
        keys = {"dataset": setting.dataset, "model": model}
        yield from under(keys, json.loads(str(stored["rows"])))


def _sum(measured: MeasuredMargins) -> str:
    """The sum of what the estimates are of."""
    return tensors_sum(
        {"bounds": measured.bounds, "correct": measured.correct, **scores_of(measured)}
    )


def _stored_rows(
    measured: MeasuredMargins, setting: MarginSetting, sizes: _Sizes, seed: int
) -> Arrays:
    return {"rows": np.array(json.dumps(_of_model(measured, setting, sizes, seed)))}


def _of_model(
    measured: MeasuredMargins, setting: MarginSetting, sizes: _Sizes, seed: int
) -> list[Row]:
    rows: list[Row] = []
    for eps in setting.eps:
        usual = eps == setting.focus
        key = {"eps": eps, "usual": usual}
        rows.append({**key, **_population(measured, eps)})
        rows += [
            {**key, **row}
            for size in (sizes.sizes if usual else sizes.few)
            if size <= len(measured) // 2
            for row in _of_size(
                measured,
                eps,
                size,
                SCORES if usual and size in sizes.few else SCORES[:1],
                sizes.repeats,
                seed,
            )
        ]
    return rows


def _of_size(
    measured: MeasuredMargins,
    eps: float,
    size: int,
    names: tuple[str, ...],
    repeats: int,
    seed: int,
) -> Iterator[Row]:
    correct, bounds = measured.correct, measured.bounds
    known = scores_of(measured)
    scores = {name: known[name] for name in names}
    truth = float((correct & (bounds > eps)).double().mean())
    keys = [
        ("plain", None),
        *((m, s) for m in ("algorithm-1", "design") for s in names),
        ("no-alpha", "logit_margin"),
    ]
    gaps, right = scores["logit_margin"].numpy(), correct.numpy()
    brittle = (bounds <= eps).numpy()
    stratified = size <= int(correct.sum())
    if stratified:
        keys.append(("stratified", "logit_margin"))
    draws = {key: _Draws([], [], []) for key in keys}
    taus: dict[str, list[float]] = {name: [] for name in names}
    random = np.random.default_rng([seed, size, round(1e6 * eps)])
    for repeat in range(repeats):
        rows = random.choice(len(measured), size=size, replace=False)
        for name, values in scores.items():
            one = estimate_robust_accuracy(
                values, correct, rows, bounds[rows], eps, folds=FOLDS, seed=repeat
            )
            draws["algorithm-1", name].values.append(one.estimate)
            draws["algorithm-1", name].thresholds.append(one.tpr)
            draws["design", name].values.append(one.design_based.value)
            draws["design", name].intervals.append(one.design_based.interval)
            taus[name].append(_tau(values[rows], bounds[rows]))
        # Algorithm 1 without its lower bound: only the threshold is sought anew.
        cut, tpr = tune_threshold(gaps[rows], right[rows], brittle[rows], 0.0)
        draws["no-alpha", "logit_margin"].values.append(
            float((right & (gaps > cut)).mean())
        )
        draws["no-alpha", "logit_margin"].thresholds.append(tpr)
        draws["plain", None].values.append(one.plain.value)
        draws["plain", None].intervals.append(one.plain.interval)
        if stratified:
            drawn = stratified_sample(
                scores["logit_margin"], correct, size, seed=seed + repeat
            )
            guess = drawn.robust_accuracy(bounds[drawn.indices], eps)
            draws["stratified", "logit_margin"].values.append(guess.value)
            draws["stratified", "logit_margin"].intervals.append(guess.interval)
    for (method, score), made in draws.items():
        row = _errors(made, truth)
        if method == "algorithm-1" and score is not None:
            row["tau"] = float(np.mean(taus[score]))
            row["tau_sd"] = float(np.std(taus[score], ddof=1))
        yield {
            "size": size,
            "method": method,
            "score": score,
            "samples": len(measured),
            "repeats": repeats,
            **row,
        }


def _population(measured: MeasuredMargins, eps: float) -> Row:
    """What all samples together say of the logit margin at this bound."""
    right = measured.correct.numpy()
    robust = (measured.bounds > eps).numpy()
    score = scores_of(measured)["logit_margin"].numpy()
    outcome = right & robust
    ranked = np.append(np.sort(score[right])[::-1], -np.inf)
    balanced = ranked[outcome.sum()]
    brittle = np.sort(score[~robust])
    truth = float(outcome.mean())
    floor, tpr = 0.0, None
    if len(brittle):
        needed = brittle[math.ceil(_ALPHA * len(brittle) - 1e-9) - 1]
        floor = truth - min(truth, float((right & (score > needed)).mean()))
        tpr = float((brittle <= balanced).mean())
    predicted = np.zeros(len(score))
    if right.any():
        model = IsotonicRegression()
        order = rankdata(score[right])
        predicted[right] = model.fit_transform(order, outcome[right].astype(float))
    spread = float(outcome.var())
    return {
        "size": len(measured),
        "method": "population",
        "score": "logit_margin",
        "samples": len(measured),
        "truth": truth,
        "accuracy": float(right.mean()),
        "brittle": float((~robust).mean()),
        "misjudged": float((outcome != (right & (score > balanced))).mean()),
        "tpr": tpr,
        "floor": floor,
        "explained": 1 - float((outcome - predicted).var()) / spread
        if spread
        else None,
    }


def _tau(values: Tensor, bounds: Tensor) -> float:
    return float(kendalltau(values.numpy(), bounds.numpy()).statistic)


def _errors(made: _Draws, truth: float) -> Row:
    values = np.array(made.values)
    errors = values - truth
    spread = float(errors.std(ddof=1))
    row: Row = {
        "truth": truth,
        "bias": float(errors.mean()),
        "bias_se": spread / math.sqrt(len(errors)),
        "sd": spread,
        "rmse": float(np.sqrt(np.square(errors).mean())),
        "error_mean": float(np.abs(errors).mean()),
        **{
            f"error_q{100 * share:02.0f}": float(np.quantile(errors, share))
            for share in QUANTILES
        },
        "coverage": None,
        "coverage_se": None,
        "width": None,
        "tpr": float(np.mean(made.thresholds)) if made.thresholds else None,
        "tau": None,
        "tau_sd": None,
    }
    if made.intervals:
        low, high = np.array(made.intervals).T
        # A share of N that is computed twice differs in its last digit.
        covered = float(((low <= truth + 1e-12) & (truth - 1e-12 <= high)).mean())
        row["coverage"] = covered
        row["coverage_se"] = share_error(covered, len(errors))
        row["width"] = float((high - low).mean())
    return row
