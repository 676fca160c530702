"""Robust accuracy from a few measured margins: error, bias and coverage."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import numpy as np
from scipy.stats import kendalltau, rankdata
from sklearn.isotonic import IsotonicRegression

from robustbook._store.cache import Arrays, cached_arrays
from robustbook._store.sums import tensors_sum
from robustbook.margins import estimate_robust_accuracy, stratified_sample
from robustbook.margins.parts import tune_threshold
from robustbook.studies._run import Row, Run, under
from robustbook.studies._statistics import share_row
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

    values: list[float] = field(default_factory=list)
    intervals: list[tuple[float, float]] = field(default_factory=list)
    thresholds: list[float] = field(default_factory=list)

    def add(
        self,
        value: float,
        interval: tuple[float, float] | None = None,
        threshold: float | None = None,
    ) -> None:
        self.values.append(value)
        self.intervals += [] if interval is None else [interval]
        self.thresholds += [] if threshold is None else [threshold]


def rows(run: Run[MarginSetting]) -> Iterator[Row]:
    """Estimate robust accuracy from many random subsets, and compare with all.

    The truth is the share, of all samples, that are classified rightly with a measured
    margin above ε. Every subset serves all methods, but for the stratified one, which
    draws as many samples in its own way.

    One row for each model, ``eps``, subset ``size``, ``method`` ("algorithm-1", the
    paper's; "no-alpha", the same without a lower bound on the share of brittle
    decisions that it finds; "plain", the share in the subset; "design", the difference
    estimator; "stratified") and ``score``, what it takes as auxiliary variable:
    ``truth``; ``bias``; ``sd``, ``rmse``, ``error_mean`` (of absolute errors),
    quantiles ``error_q05`` ...; ``coverage`` of the 95 % interval and its mean
    ``width``; for Algorithm 1 ``tpr``, the mean share of brittle decisions its
    threshold finds, and ``tau`` and ``tau_sd`` of the score on the subset.

    Method "population", one for each model and ``eps``, says what theory needs to know
    of all samples: ``truth``, ``accuracy``, ``brittle``, ``misjudged`` (share, at the
    threshold of the logit margin above which as many right predictions lie as are
    robust, of those that are misjudged), ``tpr`` there, ``floor`` (what Algorithm 1 is
    too low by if all are measured), ``explained`` (R² of the isotonic regression).

    Margin paper, Algorithm 1 and Figures 5, 10 and 11. Chapter 23 of this book.
    """
    sizes = _SIZES[run.profile]
    for setting, model in run.each_model():
        measured = margins_in(run, setting, model)
        about = {"bounds": measured.bounds, "correct": measured.correct}
        stored = cached_arrays(
            {
                "margins": tensors_sum({**about, **scores_of(measured)}),
                "eps": repr((setting.eps, setting.focus)),
                "sizes": repr(sizes),
                "seed": run.seed,
            },
            partial(_of_model, measured, setting, sizes, run.seed),
            code=__name__,
        )
        keys = {"dataset": setting.dataset, "model": model}
        yield from under(keys, json.loads(str(stored["rows"])))


def _of_model(
    measured: MeasuredMargins, setting: MarginSetting, sizes: _Sizes, seed: int
) -> Arrays:
    rows: list[Row] = []
    for eps in setting.eps:
        usual = eps == setting.focus
        made = [_population(measured, eps)]
        for size in sizes.sizes if usual else sizes.few:
            if size <= len(measured) // 2:
                names = SCORES if usual and size in sizes.few else SCORES[:1]
                made += _of_size(measured, eps, size, names, sizes.repeats, seed)
        rows += under({"eps": eps, "usual": usual}, made)
    return {"rows": np.array(json.dumps(rows))}


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
    gaps, right = scores["logit_margin"].numpy(), correct.numpy()
    brittle = (bounds <= eps).numpy()
    stratified = size <= int(correct.sum())
    draws: defaultdict[tuple[str, str | None], _Draws] = defaultdict(_Draws)
    taus: dict[str, list[float]] = {name: [] for name in names}
    random = np.random.default_rng([seed, size, round(1e6 * eps)])
    for repeat in range(repeats):
        rows = random.choice(len(measured), size=size, replace=False)
        estimates = {
            name: estimate_robust_accuracy(
                values, correct, rows, bounds[rows], eps, folds=FOLDS, seed=repeat
            )
            for name, values in scores.items()
        }
        plain = estimates["logit_margin"].plain
        draws["plain", None].add(plain.value, plain.interval)
        for name, one in estimates.items():
            draws["algorithm-1", name].add(one.estimate, threshold=one.tpr)
            pair = scores[name][rows].numpy(), bounds[rows].numpy()
            taus[name].append(float(kendalltau(*pair).statistic))
        for name, one in estimates.items():
            design = one.design_based
            draws["design", name].add(design.value, design.interval)
        # Algorithm 1 without its lower bound: only the threshold is sought anew.
        cut, tpr = tune_threshold(gaps[rows], right[rows], brittle[rows], 0.0)
        share = float((right & (gaps > cut)).mean())
        draws["no-alpha", "logit_margin"].add(share, threshold=tpr)
        if stratified:
            drawn = stratified_sample(
                scores["logit_margin"], correct, size, seed=seed + repeat
            )
            guess = drawn.robust_accuracy(bounds[drawn.indices], eps)
            draws["stratified", "logit_margin"].add(guess.value, guess.interval)
    for (method, score), made in draws.items():
        row = _errors(made, truth)
        if method == "algorithm-1" and score is not None:
            row["tau"] = float(np.mean(taus[score]))
            row["tau_sd"] = float(np.std(taus[score], ddof=1))
        yield {
            "size": size, "method": method, "score": score, "samples": len(measured),
            "repeats": repeats, **row,
        }  # fmt: skip


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
    spread, left = float(outcome.var()), float((outcome - predicted).var())
    return {
        "size": len(measured), "method": "population", "score": "logit_margin",
        "samples": len(measured), "truth": truth, "accuracy": float(right.mean()),
        "brittle": float((~robust).mean()),
        "misjudged": float((outcome != (right & (score > balanced))).mean()),
        "tpr": tpr, "floor": floor, "explained": 1 - left / spread if spread else None,
    }  # fmt: skip


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
        **dict.fromkeys(("coverage", "coverage_se", "width", "tau", "tau_sd")),
        "tpr": float(np.mean(made.thresholds)) if made.thresholds else None,
    }
    if made.intervals:
        low, high = np.array(made.intervals).T
        # A share of N that is computed twice differs in its last digit.
        covered = float(((low <= truth + 1e-12) & (truth - 1e-12 <= high)).mean())
        row |= share_row("coverage", covered, len(errors))
        row["width"] = float((high - low).mean())
    return row
