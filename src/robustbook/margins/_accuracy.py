"""Robust accuracy of a large test set from a few measured margins."""

from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from scipy.stats import rankdata
from sklearn.isotonic import IsotonicRegression
from torch import Tensor

from robustbook._checks.arguments import (
    ArrayLike,
    check_count,
    check_fraction,
    check_level,
)
from robustbook._intervals import Estimate, normal_quantile
from robustbook.margins._arrays import (
    Flags,
    Indices,
    Vector,
    check_indices,
    check_radius,
    check_scores,
    check_vector,
)


def design_estimate(
    value: float,
    squares: ArrayLike,
    *,
    drawn: ArrayLike,
    sizes: ArrayLike,
    population: int,
    ends: tuple[float, float],
    level: float,
) -> Estimate:
    """Return the estimate of a random sample, stratified or not, with an interval.

    Each stratum has a sum of squared residuals, a number of samples drawn and a size.
    The interval is normal, at least as wide as Wilson's, also where no residual was
    seen, and cut to the ends that the sample leaves possible.
    """
    squares, drawn, sizes = (np.array(x, dtype=float) for x in (squares, drawn, sizes))
    z = normal_quantile(level)
    # A stratum of one sample is known completely.
    weights = (sizes / population) ** 2 * (1 - drawn / sizes) / drawn
    weights /= np.maximum(drawn - 1, 1)
    error = np.sqrt((weights * squares).sum())
    half = z * np.sqrt((weights * (squares + z**2 * drawn / drawn.sum())).sum())
    low, high = np.clip([value - half, value + half], *ends).tolist()
    return Estimate(value, float(error), (low, high))


@dataclass(frozen=True)
class RobustAccuracy:
    """Robust accuracy by Algorithm 1, and two unbiased estimates of the same sample.

    Attributes
    ----------
    estimate : float
        Algorithm 1: the share of all samples that are classified correctly with a logit
        margin above `threshold`. It has a bias that no interval covers.
    threshold : float
        Logit margin up to which decisions count as brittle.
    tpr : float
        Share of the sample's brittle decisions with a logit margin up to `threshold`.
    plain : Estimate
        The share in the sample: unbiased, and independent of the logit margins.
    design_based : Estimate
        Difference estimator: unbiased however poor the logit margins are, and the more
        precise the better they are.
    """

    estimate: float
    threshold: float
    tpr: float
    plain: Estimate
    design_based: Estimate


def estimate_robust_accuracy(
    logit_margin: ArrayLike,
    correct: ArrayLike,
    indices: ArrayLike,
    input_margin: ArrayLike,
    eps: float,
    *,
    alpha: float = 0.8,
    folds: int = 10,
    level: float = 0.95,
    seed: int = 0,
) -> RobustAccuracy:
    """Estimate robust accuracy from the input margins of a few samples.

    Returns a ``RobustAccuracy``: three estimates, two with intervals. Algorithm 1
    of the paper tunes a threshold of the logit margin to the robust accuracy of the
    sample and applies it to all. The plain estimate is the share in the sample. The
    difference estimator predicts all outcomes from the logit margins, cross-fitted, and
    adds the mean error of these predictions on the sample. Source: the margin paper,
    section 2.4; Särndal, Swensson and Wretman, "Model assisted survey sampling", 1992,
    chapter 7; Chapter 24.

    Parameters
    ----------
    logit_margin : Tensor or array, shape (N,)
        Margins of logits, or any score that is large where decisions are robust.
    correct : Tensor or array, shape (N,)
        Whether predictions are right: booleans, or 0 and 1.
    indices : Tensor or array, shape (n,)
        The samples whose input margins were measured: drawn uniformly at random,
        without replacement, in the order drawn. If they are sorted, the difference
        estimator is unbiased only on average over `seed`.
    input_margin : Tensor or array, shape (n,)
        Their input margins in the same order; any number where predictions are wrong.
    eps : float
        In the units of `input_margin`: a decision is robust if its margin is larger.
    alpha : float, default 0.8
        The smallest share of the sample's brittle decisions that the threshold of
        Algorithm 1 may flag.
    folds : int, default 10
        Parts of the sample for cross-fitting.
    level : float, default 0.95
        Coverage of each interval, in (0, 1).
    seed : int, default 0
        Seed of everything that is drawn at random.

    Raises
    ------
    TypeError, ValueError
        If shapes or types do not match, an entry is NaN, or an option is out of range.
        Also if an index occurs twice, or there are fewer than two.

    Examples
    --------
    >>> margins = torch.linspace(0, 1, 1000, dtype=torch.float64)
    >>> correct, sample = margins > 0.1, torch.randperm(1000)[:50]
    >>> accuracy = estimate_robust_accuracy(
    ...     margins, correct, sample, margins[sample] / 4, eps=0.1
    ... )
    >>> low, high = accuracy.design_based.interval
    >>> low < 0.6 < high
    True
    """
    scores, right = check_scores(logit_margin, correct)
    count = len(scores)
    rows = check_indices(indices, population=count)
    margins = check_vector("input_margin", input_margin, length=len(rows), low=0.0)
    share = check_fraction("alpha", alpha)
    check_count("folds", folds, minimum=2)
    check_count("seed", seed, minimum=0)
    check_level(level)
    brittle = margins <= check_radius(eps, margins)
    outcome = right[rows] & ~brittle
    threshold, tpr = tune_threshold(scores[rows], right[rows], brittle, share)
    failed = (right[rows] & brittle).sum()
    estimate = partial(
        design_estimate,
        drawn=len(rows),
        sizes=count,
        population=count,
        ends=(float(outcome.sum()) / count, float(right.sum() - failed) / count),
        level=level,
    )
    mean = float(outcome.astype(np.float64).mean())
    difference, residuals = difference_estimator(
        scores, right, rows, outcome, np.random.default_rng(seed), folds
    )
    return RobustAccuracy(
        estimate=float((right & (scores > threshold)).mean()),
        threshold=threshold,
        tpr=tpr,
        plain=estimate(mean, np.square(outcome - mean).sum()),
        design_based=estimate(difference, np.square(residuals).sum()),
    )


def tune_threshold(
    scores: Vector, right: Flags, brittle: Flags, alpha: float
) -> tuple[float, float]:
    """Return the threshold that best reproduces the sample's robust accuracy.

    Among equally good ones it is the middle one; the paper does not say which to take.
    The share of brittle decisions up to the threshold comes with it.
    """
    cuts = np.unique(scores)
    if not brittle.any():
        # A threshold below all scores flags none.
        cuts = np.concatenate([[-np.inf], cuts])

    def up_to_cuts(values: Vector) -> Indices:
        return np.searchsorted(np.sort(values), cuts, side="right")

    flagged = np.ones(len(cuts))
    if brittle.any():
        flagged = up_to_cuts(scores[brittle]) / brittle.sum()
    above = right.sum() - up_to_cuts(scores[right])
    error = np.abs(above - (right & ~brittle).sum())
    allowed = np.flatnonzero(flagged >= alpha - 1e-12)
    best = allowed[error[allowed] == error[allowed].min()]
    chosen = best[(len(best) - 1) // 2]
    return float(cuts[chosen]), float(flagged[chosen])


def difference_estimator(
    scores: Vector,
    right: Flags,
    rows: Indices,
    outcome: Flags,
    random: np.random.Generator,
    folds: int,
) -> tuple[float, Vector]:
    """Return the cross-fitted difference estimator, and residuals of mean 0.

    Given all other parts, a part of the sample is a simple random sample of the rest of
    the population, and with predictions from the other parts its difference estimator
    is unbiased for the mean of that rest. Predictions, the probability of a right and
    robust decision, rise with the score.
    """
    count, size = len(scores), len(rows)
    # Ranks do, as predictions are monotone, and infinite scores have ranks.
    order = rankdata(scores)
    parts = np.array_split(random.permutation(size), min(folds, size))
    residuals, estimates = np.zeros(size), []
    for part in parts:
        others = np.setdiff1d(np.arange(size), part)
        used, predicted = others[right[rows[others]]], np.zeros(count)
        if len(used):
            model = IsotonicRegression(y_min=0.0, y_max=1.0, out_of_bounds="clip")
            model.fit(order[rows[used]], outcome[used].astype(np.float64))
            predicted[right] = model.predict(order[right])
        left = np.ones(count, dtype=bool)
        left[rows[others]] = False
        residuals[part] = outcome[part] - predicted[rows[part]]
        total = predicted[left].sum() + left.sum() * residuals[part].mean()
        estimates.append((outcome[others].sum() + total) / count)
    return float(np.mean(estimates)), residuals - residuals.mean()


@dataclass(frozen=True, eq=False, repr=False)
class StratifiedSample:
    """The samples to measure, and the strata that they represent.

    Attributes
    ----------
    indices : Tensor, shape (n,)
        The samples to measure, int64; all of them are classified correctly.
    strata : Tensor, shape (n,)
        The stratum of each, from 0.
    sizes : Tensor, shape (H,)
        Number of samples in each stratum.
    num_samples : int
        Number of all samples, N, wrong predictions among them.
    """

    indices: Tensor
    strata: Tensor
    sizes: Tensor
    num_samples: int

    def __len__(self) -> int:
        return len(self.indices)

    def __repr__(self) -> str:
        return (
            f"StratifiedSample({len(self)} of {self.num_samples} samples, "
            f"{len(self.sizes)} strata)"
        )

    def robust_accuracy(
        self, input_margin: ArrayLike, eps: float, *, level: float = 0.95
    ) -> Estimate:
        """Return an ``Estimate`` from the input margins of this sample.

        Parameters
        ----------
        input_margin : Tensor or array, shape (n,)
            Measured margins in the order of `indices`.
        eps, level
            As for :func:`estimate_robust_accuracy`.

        Raises
        ------
        TypeError, ValueError
            If shapes or types do not match, or an entry is NaN.
        """
        margins = check_vector("input_margin", input_margin, length=len(self), low=0.0)
        robust = margins > check_radius(eps, margins)
        check_level(level)
        strata, sizes = self.strata.numpy(), self.sizes.double().numpy()
        drawn = np.bincount(strata, minlength=len(sizes))
        hits = np.bincount(strata, weights=robust, minlength=len(sizes))
        failed = (drawn - hits).sum()
        return design_estimate(
            float((sizes * hits / drawn).sum() / self.num_samples),
            hits * (1 - hits / drawn),
            drawn=drawn,
            sizes=sizes,
            population=self.num_samples,
            ends=(
                float(hits.sum() / self.num_samples),
                float((sizes.sum() - failed) / self.num_samples),
            ),
            level=level,
        )


def stratified_sample(
    logit_margin: ArrayLike,
    correct: ArrayLike,
    size: int,
    *,
    strata: int = 10,
    seed: int = 0,
) -> StratifiedSample:
    """Choose samples to measure among right predictions, spread over logit margins.

    Right predictions are divided into strata of equal size by their logit margin; from
    each, about the same number is drawn. Returns a ``StratifiedSample``. Source:
    Cochran, "Sampling techniques", 1977, chapter 6; Chapter 23.

    Parameters
    ----------
    logit_margin, correct, seed
        As for :func:`estimate_robust_accuracy`.
    size : int
        Number of samples to measure, from 2 to the number of right predictions.
    strata : int, default 10
        Number of strata; fewer if they would get fewer than two samples each.

    Raises
    ------
    TypeError, ValueError
        If shapes or types do not match, an entry is NaN, or an option is out of range.

    Examples
    --------
    >>> margins = torch.linspace(0, 1, 1000, dtype=torch.float64)
    >>> sample = stratified_sample(margins, margins > 0.1, 50)
    >>> low, high = sample.robust_accuracy(margins[sample.indices] / 4, 0.1).interval
    >>> low < 0.6 < high
    True
    """
    scores, right = check_scores(logit_margin, correct)
    check_count("size", size, minimum=2)
    check_count("strata", strata)
    check_count("seed", seed, minimum=0)
    rows = np.flatnonzero(right)
    if size > len(rows):
        raise ValueError(
            f"size: expected at most the {len(rows)} right predictions, got {size}"
        )
    order = rows[np.argsort(scores[rows], kind="stable")]
    groups = np.array_split(order, min(strata, size // 2))
    # Strata differ in size by at most one, and so do their shares of the sample.
    shares = [len(part) for part in np.array_split(np.arange(size), len(groups))]
    random = np.random.default_rng(seed)
    drawn = [
        random.choice(group, share, replace=False)
        for group, share in zip(groups, shares, strict=True)
    ]
    return StratifiedSample(
        torch.from_numpy(np.concatenate(drawn)),
        torch.from_numpy(np.repeat(np.arange(len(groups)), shares)),
        torch.tensor([len(group) for group in groups]),
        len(scores),
    )
