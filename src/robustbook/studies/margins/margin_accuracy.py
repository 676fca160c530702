"""Robust accuracy from a few measured margins: error, bias and coverage."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from scipy.stats import kendalltau, rankdata
from sklearn.isotonic import IsotonicRegression

from robustbook.margins import (
    estimate_robust_accuracy,
    stratified_sample,
    tune_threshold,
)
from robustbook.studies.margins.measured import MeasuredMargins, margins_in, scores_of
from robustbook.studies.margins.settings import MarginSetting
from robustbook.studies.run import Row, Run, with_keys

#: The lower bound of Algorithm 1 on the share of brittle decisions that it finds.
_ALPHA: Final = 0.8
#: Quantiles of the errors.
QUANTILES: Final = (0.05, 0.95)


@dataclass(frozen=True)
class _Sizes:
    """Random subsets: how many of each size."""

    repeats: int
    sizes: tuple[int, ...]
    #: Sizes at other bounds than the usual one.
    few: tuple[int, ...]


_SIZES: Final = {
    "quick": _Sizes(20, (50, 100), (100,)),
    "full": _Sizes(100, (50, 100, 200, 300, 500, 1000, 5000), (100, 500)),
}
#: Parts of a subset for cross-fitting: half of the default, at half the cost.
FOLDS: Final = 5


#: Estimates of one method from one random subset after another, with their intervals.
_Draws = list[tuple[float, tuple[float, float] | None]]


def measure(run: Run[MarginSetting], model: str) -> Iterator[Row]:
    """Estimate robust accuracy from many random subsets, and compare with all.

    The truth is the share, of all samples, that are classified rightly with a measured
    margin above ε. Every subset serves all methods, but for the stratified one, which
    draws as many samples in its own way.

    One row for each model, ``eps``, subset ``size`` and ``method`` ("algorithm-1", the
    paper's; "no-alpha", the same without a lower bound on the share of brittle
    decisions that it finds; "plain", the share in the subset; "design", the difference
    estimator; "stratified"), all but "plain" with the logit margin as auxiliary
    variable: ``truth``; ``bias`` with its standard error; ``sd``, ``error_mean`` (of
    absolute errors), quantiles ``error_q05`` and ``error_q95``; ``coverage`` of the
    95 % interval and its mean ``width``; for Algorithm 1 ``tau`` and ``tau_sd`` of the
    logit margin on the subset.

    Method "population", one for each model and ``eps``, says what theory needs to know
    of all samples: ``truth``, ``floor`` (what Algorithm 1 is too low by if all are
    measured), ``explained`` (R² of the isotonic regression).

    Margin paper, Algorithm 1 and Figures 5, 10 and 11. Chapter 24 of this book.
    """
    setting, sizes = run.setting, _SIZES[run.profile]
    measured = margins_in(run, model)
    for eps in setting.eps:
        usual = eps == setting.focus
        made = [_population(measured, eps)]
        for size in sizes.sizes if usual else sizes.few:
            if size <= len(measured) // 2:
                made += _of_size(measured, eps, size, sizes.repeats, run.seed)
        keys = {"dataset": setting.dataset, "model": model}
        yield from with_keys({**keys, "eps": eps, "usual": usual}, made)


def _of_size(
    measured: MeasuredMargins, eps: float, size: int, repeats: int, seed: int
) -> Iterator[Row]:
    correct, bounds = measured.correct, measured.bounds
    score = scores_of(measured)["logit_margin"]
    truth = float((correct & (bounds > eps)).double().mean())
    gaps, right = score.numpy(), correct.numpy()
    brittle = (bounds <= eps).numpy()
    draws: defaultdict[str, _Draws] = defaultdict(list)
    taus = []
    random = np.random.default_rng([seed, size, round(1e6 * eps)])
    for repeat in range(repeats):
        rows = random.choice(len(measured), size=size, replace=False)
        result = estimate_robust_accuracy(
            score, correct, rows, bounds[rows], eps, folds=FOLDS, seed=repeat
        )
        draws["plain"].append((result.plain.value, result.plain.interval))
        draws["algorithm-1"].append((result.estimate, None))
        design = result.design_based
        draws["design"].append((design.value, design.interval))
        taus.append(float(kendalltau(gaps[rows], bounds[rows].numpy()).statistic))
        # Algorithm 1 without its lower bound: only the threshold is sought anew.
        cut, _ = tune_threshold(gaps[rows], right[rows], brittle[rows], 0.0)
        draws["no-alpha"].append((float((right & (gaps > cut)).mean()), None))
        if size <= int(correct.sum()):
            drawn = stratified_sample(score, correct, size, seed=seed + repeat)
            guess = drawn.robust_accuracy(bounds[drawn.indices], eps)
            draws["stratified"].append((guess.value, guess.interval))
    for method, made in draws.items():
        row = _errors(made, truth)
        if method == "algorithm-1":
            row |= {"tau": float(np.mean(taus)), "tau_sd": float(np.std(taus, ddof=1))}
        yield {"size": size, "method": method, "samples": len(measured), **row}


def _population(measured: MeasuredMargins, eps: float) -> Row:
    """Summarize the logit margin of all samples at this bound."""
    right = measured.correct.numpy()
    robust = (measured.bounds > eps).numpy()
    score = scores_of(measured)["logit_margin"].numpy()
    outcome = right & robust
    brittle = np.sort(score[~robust])
    truth, floor = float(outcome.mean()), 0.0
    if len(brittle):
        needed = brittle[math.ceil(_ALPHA * len(brittle) - 1e-9) - 1]
        floor = truth - min(truth, float((right & (score > needed)).mean()))
    predicted = np.zeros(len(score))
    if right.any():
        model = IsotonicRegression()
        order = rankdata(score[right])
        predicted[right] = model.fit_transform(order, outcome[right].astype(float))
    spread, left = float(outcome.var()), float((outcome - predicted).var())
    return {
        "size": len(measured),
        "method": "population",
        "samples": len(measured),
        "truth": truth,
        "floor": floor,
        "explained": 1 - left / spread if spread else None,
    }


def _errors(made: _Draws, truth: float) -> Row:
    errors = np.array([value for value, _ in made]) - truth
    spread = float(errors.std(ddof=1))
    row: Row = {
        "truth": truth,
        "bias": float(errors.mean()),
        "bias_se": spread / math.sqrt(len(errors)),
        "sd": spread,
        "error_mean": float(np.abs(errors).mean()),
        **{
            f"error_q{100 * share:02.0f}": float(np.quantile(errors, share))
            for share in QUANTILES
        },
        **dict.fromkeys(("coverage", "width", "tau", "tau_sd")),
    }
    intervals = [interval for _, interval in made if interval is not None]
    if intervals:
        low, high = np.array(intervals).T
        # A share of N that is computed twice differs in its last digit.
        covered = (low <= truth + 1e-12) & (truth - 1e-12 <= high)
        row |= {"coverage": float(covered.mean()), "width": float((high - low).mean())}
    return row
