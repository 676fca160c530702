"""Detection of brittle decisions by a score."""

import math
from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq
from scipy.stats import binom, rankdata
from sklearn.metrics import average_precision_score, roc_auc_score

from robustbook._checks.arguments import ArrayLike, check_count, check_level
from robustbook._intervals import joined, normal_quantile, wilson
from robustbook.margins._arrays import Flags, Vector, check_radius, check_vector

#: Share of brittle decisions that the threshold of the false positive rate flags.
TPR = 0.95


@dataclass(frozen=True)
class Detection:
    """How well a score detects the decisions that are brittle at one ε.

    Attributes
    ----------
    auroc : float
        Probability that a brittle decision scores lower than a robust one.
    auroc_interval : tuple of float
        By Newcombe's method 5. It covers 95 to 99 % in simulations.
    aupr : float
        Average precision. That of a random score is `prevalence`, not 0.5.
    aupr_interval : tuple of float
        Wilson's, for as many trials as the spread over resamples implies, at most the
        number of brittle decisions. It covers 92 to 99 % in simulations.
    fpr : float
        Share of robust decisions that are flagged at `threshold`.
    fpr_interval : tuple of float
        From order statistics of the brittle scores for the threshold, and Wilson's
        interval for the share of robust decisions up to it, added in squares. Fewer
        than 72 brittle decisions do not bound the threshold, and the upper end is 1.
    threshold : float
        The smallest score at which 95 % of brittle decisions are flagged.
    num_brittle, num_samples : int
        Number of brittle decisions, and of all.
    """

    auroc: float
    auroc_interval: tuple[float, float]
    aupr: float
    aupr_interval: tuple[float, float]
    fpr: float
    fpr_interval: tuple[float, float]
    threshold: float
    num_brittle: int
    num_samples: int

    @property
    def prevalence(self) -> float:
        """The share of brittle decisions: the average precision of a random score."""
        return self.num_brittle / self.num_samples


def detection_scores(
    scores: ArrayLike,
    input_margin: ArrayLike,
    eps: float,
    *,
    level: float = 0.95,
    resamples: int = 1000,
    seed: int = 0,
) -> Detection:
    """Score the detection of brittle decisions by a small margin: ``Detection``.

    Brittle decisions are the positive class; the lower the score, the more brittle.
    Source: the margin paper, section 2.3; Newcombe, "Confidence intervals for an effect
    size measure based on the Mann-Whitney statistic. Part 2", Statistics in Medicine
    2006; Chapters 23 and 42.

    Parameters
    ----------
    scores : Tensor or array, shape (N,)
        A margin that needs no attack, or any score that is small for brittle decisions.
    input_margin, level
        As for :func:`margin_consistency`.
    eps : float
        In the units of `input_margin`: decisions with margins up to it are brittle.
    resamples : int, default 1000
        Number of bootstrap resamples.
    seed : int, default 0
        Seed of the resamples.

    Raises
    ------
    TypeError, ValueError
        If shapes or types do not match, an entry is NaN, or an option is out of range.
        Among them: all decisions are brittle, or none is.

    Examples
    --------
    >>> scores, margins = [0.1, 0.4, 0.3, 0.8], [0.01, 0.02, 0.05, 0.09]
    >>> detection_scores(scores, margins, 0.03).auroc
    0.75
    """
    values = check_vector("scores", scores)
    margins = check_vector("input_margin", input_margin, length=len(values), low=0.0)
    check_level(level)
    check_count("resamples", resamples, minimum=100)
    check_count("seed", seed, minimum=0)
    limit = check_radius(eps, margins)
    brittle = margins <= limit
    if brittle.all() or not brittle.any():
        raise ValueError(
            f"eps: expected brittle and robust decisions, got only "
            f"{'brittle' if brittle.any() else 'robust'} ones at {limit:g}; input "
            f"margins reach from {margins.min():g} to {margins.max():g}"
        )
    # Scikit-learn wants large scores for the positive class, and finite ones.
    falling = -rankdata(values)
    auroc = float(roc_auc_score(brittle, falling))
    aupr = float(average_precision_score(brittle, falling))
    ends, robust = np.sort(values[brittle]), values[~brittle]
    drawn = _resample(values, brittle, resamples, seed)
    threshold = ends[math.ceil((TPR - 1e-12) * len(ends)) - 1]
    fpr = float((robust <= threshold).mean())
    return Detection(
        auroc=auroc,
        auroc_interval=_auroc_interval(auroc, len(ends), len(robust), level),
        aupr=aupr,
        aupr_interval=_precision_interval(aupr, drawn, len(ends), level),
        fpr=fpr,
        fpr_interval=_fpr_interval(ends, robust, fpr, level),
        threshold=float(threshold),
        num_brittle=len(ends),
        num_samples=len(values),
    )


def _auroc_interval(
    auroc: float, num_brittle: int, num_robust: int, level: float
) -> tuple[float, float]:
    """Return the farthest AUROCs that are within z of their own standard errors.

    The variance is that of two exponential distributions with the AUROC in question
    (Newcombe's method 5), so that the interval has a width also if the scores separate
    all pairs.
    """
    z, pairs = normal_quantile(level), num_brittle * num_robust
    extra = (num_brittle + num_robust) / 2 - 1

    def excess(area: float) -> float:
        odds = (1 - area) / (2 - area) + area / (1 + area)
        distance = abs(area - auroc)
        if auroc in (0.0, 1.0):
            # The distance is a factor of both sides: without it, only one root is left.
            return distance - z**2 * (1 - distance) * (1 + extra * odds) / pairs
        variance = area * (1 - area) * (1 + extra * odds) / pairs
        return distance**2 - z**2 * variance

    def end(edge: float) -> float:
        return edge if auroc == edge else float(brentq(excess, auroc, edge))

    return end(0.0), end(1.0)


def _precision_interval(
    aupr: float, drawn: Vector, num_brittle: int, level: float
) -> tuple[float, float]:
    """Return Wilson's interval for as many trials as the spread over resamples implies.

    The spread is taken on the arcsine scale. Resamples without a mistake would imply
    any number of trials, so the number of brittle decisions bounds it.
    """
    spread = float(np.nanstd(np.arcsin(np.sqrt(np.minimum(drawn, 1.0))), ddof=1))
    trials = min(num_brittle, 1 / (4 * spread**2) if spread > 0 else math.inf)
    return wilson(aupr * trials, trials, level)


def _fpr_interval(
    ends: Vector, robust: Vector, fpr: float, level: float
) -> tuple[float, float]:
    """Return an interval for the share of robust decisions up to the true threshold.

    Order statistics of the brittle scores, `ends`, bound the threshold; Wilson's
    interval bounds the share up to a known one. Both deviations add in squares.
    """
    tails = np.array([0.5 - level / 2, 0.5 + level / 2])
    below, above = binom.ppf(tails, len(ends), TPR).astype(int)
    at_bounds = (
        float((robust <= ends[below - 1]).mean()) if below > 0 else -math.inf,
        float((robust <= ends[above]).mean()) if above < len(ends) else math.inf,
    )
    of_share = wilson(round(fpr * len(robust)), len(robust), level)
    return joined(fpr, at_bounds, of_share)


def _resample(values: Vector, brittle: Flags, resamples: int, seed: int) -> Vector:
    """Return average precisions of resamples; NaN where a class is empty."""
    random = np.random.default_rng(seed)
    order = np.argsort(values, kind="stable")
    places = np.flatnonzero(brittle[order])
    # A threshold can only be at the last of equal scores.
    ends = np.searchsorted(values[order], values[order][places], side="right") - 1
    last = np.searchsorted(places, ends, side="right") - 1
    count, precisions = len(values), np.full(resamples, np.nan)
    for number in range(resamples):
        times = np.bincount(random.integers(count, size=count), minlength=count)
        hits = times[places]
        total = hits.sum()
        if 0 < total < count:
            flagged = np.maximum(np.cumsum(times)[ends], 1)
            precisions[number] = (hits * np.cumsum(hits)[last] / flagged).sum() / total
    return precisions
