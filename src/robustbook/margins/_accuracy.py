"""Robust accuracy of a large test set from a few measured margins."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import rankdata
from sklearn.isotonic import IsotonicRegression

from robustbook._checks.arguments import check_count, check_fraction, check_non_negative
from robustbook.margins._arrays import (
    Flags,
    Indices,
    Vector,
    check_flags,
    check_indices,
    check_level,
    check_vector,
)
from robustbook.margins._docs import DOCS
from robustbook.margins._estimate import Estimate, bounded_interval


@dataclass(frozen=True)
class RobustAccuracy:
    """Robust accuracy by Algorithm 1 and, from the same sample, by design.

    Attributes
    ----------
    estimate : float
        Algorithm 1: the share of all samples that are classified rightly with a
        logit margin above ``threshold``. It has a bias that no interval covers.
    threshold : float
        Logit margin up to which decisions count as brittle.
    tpr : float
        Share of the brittle decisions of the sample that are up to it.
    plain : Estimate
        The share in the sample: unbiased, blind to the logit margins.
    design_based : Estimate
        Difference estimator: unbiased whatever the logit margins are worth, and the
        more precise the more they are.
    eps : float
        The bound.
    num_measured, num_samples : int
        Size of the sample and of all.
    """

    estimate: float
    threshold: float
    tpr: float
    plain: Estimate
    design_based: Estimate
    eps: float
    num_measured: int
    num_samples: int


@DOCS.fill
def estimate_robust_accuracy(
    logit_margin: Any,
    correct: Any,
    indices: Any,
    input_margin: Any,
    eps: float,
    *,
    alpha: float = 0.8,
    folds: int = 10,
    level: float = 0.95,
    seed: int = 0,
) -> RobustAccuracy:
    """Estimate robust accuracy from the input margins of a few samples.

    Three estimates on one budget. Algorithm 1 of the paper tunes a threshold of the
    logit margin to the robust accuracy of the sample and applies it to all. The
    plain estimate is that of the sample. The difference estimator predicts all
    outcomes from the logit margins and adds the mean error of the predictions on
    the sample; predictions are cross-fitted, so it is unbiased.

    Parameters
    ----------
    {logit_margin} {correct}
    indices : Tensor or array, shape (n,)
        The samples whose input margins were measured: drawn uniformly at random,
        without replacement, in the order drawn. Where they were sorted, the
        difference estimator is unbiased on average over `seed` only.
    input_margin : Tensor or array, shape (n,)
        Their input margins, in the order of `indices`; those of the predictions or
        0 where they are wrong, which makes no difference to robust accuracy.
    {eps}
    alpha : float, default 0.8
        The smallest share of the sample's brittle decisions that the threshold of
        Algorithm 1 may find.
    folds : int, default 10
        Parts of the sample for cross-fitting.
    {level}
    seed : int, default 0
        For the parts.

    Returns
    -------
    RobustAccuracy
        The three estimates, intervals of two.

    Raises
    ------
    {TypeError, ValueError}
    ValueError
        If an index is out of range or there twice, or there are fewer than two.

    See Also
    --------
    stratified_sample : A design that measures no wrong prediction.

    References
    ----------
    Margin paper, section 2.4 and Algorithm 1. Särndal, Swensson and Wretman, "Model
    assisted survey sampling", 1992, chapter 6. Chapter 25 of this book.

    Examples
    --------
    >>> import torch
    >>> margins = torch.linspace(0, 1, 1000, dtype=torch.float64)
    >>> correct, sample = margins > 0.1, torch.randperm(1000)[:50]
    >>> accuracy = estimate_robust_accuracy(
    ...     margins, correct, sample, margins[sample] / 4, eps=0.1
    ... )
    >>> low, high = accuracy.design_based.interval
    >>> low < 0.6 < high
    True
    """
    scores = check_vector("logit_margin", logit_margin)
    right = check_flags("correct", correct, length=len(scores))
    rows = check_indices("indices", indices, population=len(scores))
    margins = check_vector("input_margin", input_margin, length=len(rows), low=0.0)
    limit = check_non_negative("eps", eps)
    share = check_fraction("alpha", alpha)
    check_count("folds", folds, minimum=2)
    check_count("seed", seed, minimum=0)
    check_level(level)
    if len(rows) < 2:
        raise ValueError("indices: expected at least two measured samples, got 1")
    brittle = margins <= limit
    outcome = right[rows] & ~brittle
    threshold, tpr = tune_threshold(scores[rows], right[rows], brittle, share)
    return RobustAccuracy(
        estimate=float((right & (scores > threshold)).mean()),
        threshold=threshold,
        tpr=tpr,
        plain=_plain(outcome, right, rows, level),
        design_based=_difference(scores, right, rows, outcome, folds, level, seed),
        eps=limit,
        num_measured=len(rows),
        num_samples=len(scores),
    )


def tune_threshold(
    scores: Vector, right: Flags, brittle: Flags, alpha: float
) -> tuple[float, float]:
    """The threshold that reproduces the sample's robust accuracy best.

    Of equally good ones, the middle one: the paper does not say which.
    """
    cuts = np.unique(scores)
    order = np.sort(scores[right])
    above = len(order) - np.searchsorted(order, cuts, side="right")
    error = np.abs(above - (right & ~brittle).sum())
    if brittle.any():
        places = np.searchsorted(np.sort(scores[brittle]), cuts, side="right")
        flagged = places / brittle.sum()
    else:
        # None to be flagged: a threshold below all scores flags none.
        cuts = np.concatenate([[-np.inf], cuts])
        flagged = np.ones(len(cuts))
        error = np.concatenate([[abs(len(order) - right.sum())], error])
    allowed = np.flatnonzero(flagged >= alpha - 1e-12)
    best = allowed[error[allowed] == error[allowed].min()]
    chosen = best[(len(best) - 1) // 2]
    return float(cuts[chosen]), float(flagged[chosen])


def _plain(outcome: Flags, right: Flags, rows: Indices, level: float) -> Estimate:
    values = outcome.astype(np.float64)
    return bounded_interval(
        float(values.mean()), values - values.mean(), outcome, right, rows, level
    )


def _difference(
    scores: Vector,
    right: Flags,
    rows: Indices,
    outcome: Flags,
    folds: int,
    level: float,
    seed: int,
) -> Estimate:
    """Unbiased, exactly: for each part of the sample, given all others.

    Given the other parts, a part is a simple random sample of what they left of the
    population. Its difference estimator with predictions from the others is unbiased
    for the mean of that; the outcomes of the others are known.
    """
    count, size = len(scores), len(rows)
    # Ranks: predictions are monotone, and infinite scores do no harm.
    order = rankdata(scores)
    parts = np.array_split(np.random.default_rng(seed).permutation(size), folds)
    residuals, estimates = np.zeros(size), []
    for part in parts:
        if len(part) == 0:
            continue
        others = np.setdiff1d(np.arange(size), part)
        predicted = _predict(order, right, rows[others], outcome[others])
        left = np.ones(count, dtype=bool)
        left[rows[others]] = False
        residuals[part] = outcome[part] - predicted[rows[part]]
        total = predicted[left].sum() + left.sum() * residuals[part].mean()
        estimates.append((outcome[others].sum() + total) / count)
    estimate = float(np.mean(estimates))
    spread = residuals - residuals.mean()
    return bounded_interval(estimate, spread, outcome, right, rows, level)


def _predict(order: Vector, right: Flags, rows: Indices, outcome: Flags) -> Vector:
    """Probability of a right and robust decision, rising with the score."""
    chosen = right[rows]
    if not chosen.any():
        return np.zeros(len(order))
    model = IsotonicRegression(y_min=0.0, y_max=1.0, out_of_bounds="clip")
    model.fit(order[rows[chosen]], outcome[chosen].astype(np.float64))
    predicted: Vector = np.where(right, model.predict(order), 0.0)
    return predicted
