"""Accuracy under a shift, estimated from pairs without labels."""

import math
import warnings
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch
from scipy.stats import t as student
from torch import Tensor

from robustbook._checks.arguments import check_choice, check_level, check_paired
from robustbook.agreement._calibration import Calibration, calibrate_beta
from robustbook.agreement._docs import SHARED
from robustbook.agreement._paired_interval import Array, accuracy_interval
from robustbook.agreement._temperatures import (
    check_pair,
    log_posterior,
    posterior_overlap,
    row_slices,
)


@dataclass(frozen=True)
class PairedAccuracy:
    """An estimate of the accuracy under a shift; :func:`paired_accuracy` makes it.

    Parameters
    ----------
    value : float
        In [0, 1].
    standard_error : float
        Of pairs and calibration together; where few answers are wrong (or right),
        or beta is infinite, it is too small, and the interval is not.
    interval : tuple of float
        At `level`.
    level : float
        Coverage, if the assumptions of :func:`paired_accuracy` hold.
    from_pairs, from_calibration : tuple of float
        The interval if only one of the two varied.
    calibration : Calibration
        With ``beta`` and its interval.
    per_sample : Tensor, shape (N,)
        Calibrated probability of each shifted answer; their mean is `value`.
    by_class : Tensor of shape (K, 3), or None
        Estimate and ends of the interval for each class, NaN where it never occurs.
    """

    value: float
    standard_error: float
    interval: tuple[float, float]
    level: float
    from_pairs: tuple[float, float] = field(repr=False)
    from_calibration: tuple[float, float] = field(repr=False)
    calibration: Calibration = field(repr=False)
    per_sample: Tensor = field(repr=False)
    by_class: Tensor | None = field(repr=False, default=None)
    #: Derivative of the value by beta.
    slope: float = field(repr=False, default=0.0)


@dataclass(frozen=True)
class PairedAccuracyDifference:
    """The difference of two estimates on the same pairs.

    Parameters
    ----------
    value, standard_error : float
        Estimated accuracy of the first model minus that of the second.
    interval : tuple of float
        At `level`.
    level : float
        Its coverage.
    first, second : PairedAccuracy
        The two models.
    """

    value: float
    standard_error: float
    interval: tuple[float, float]
    level: float
    first: PairedAccuracy = field(repr=False)
    second: PairedAccuracy = field(repr=False)


@SHARED.fill
def paired_accuracy(
    logits: Any,
    shifted_logits: Any,
    *,
    calibrated_on: tuple[Any, Any],
    level: float = 0.95,
    by_class: Literal["answer", "label"] | None = None,
    probabilities: bool = False,
) -> PairedAccuracy:
    r"""Accuracy under a shift, from pairs without labels and a labelled source.

    .. math:: \frac1N \sum_i p_i(\hat y''_i),

    the mean calibrated probability that the clean input gives to the shifted answer.
    It is unbiased *whatever the shift does* if, among clean inputs with posterior p
    whose shifted answer is k, a share :math:`p_k` has label k. This asks three things:

    - the clean inputs are like the source, for which p is calibrated;
    - the shift leaves the labels as they are;
    - the shifted answer knows no more of the label than p does. An attacker who is
      told the labels violates this, and so does a shift that mends bad pictures.

    The calibration set must not be training data of the model.

    Parameters
    ----------
    {logits, shifted_logits}
    calibrated_on : tuple (logits, labels), shapes (M, K) and (M,)
        Of labelled source samples, not among the pairs: :func:`calibrate_beta`.
    {level}
    by_class : "answer" or "label", optional
        Also estimate, for each class, the share of its shifted answers that are right
        (precision), or the share of its samples that get it as answer (recall).
    {probabilities}

    Returns
    -------
    PairedAccuracy
        ``value`` and ``interval``, and more.

    {TypeError} {ValueError}

    Warns
    -----
    UserWarning
        If there are fewer than 50 calibration samples, beta is 0 or infinite, or the
        pairs have a class that the source never has.

    Notes
    -----
    The interval is for the accuracy in the population of the pairs. Its two parts are
    added in squares (Newcombe; Zou and Donner): Wilson's interval for N pairs, as wide
    as the contributions vary, and at least as two events would; and the range
    of the estimate over the interval of beta. Measured coverage at 95 %, accuracies of
    .02 to .98, 2 to 1000 classes, 50 to 1000 pairs and 50 to 1000 calibration samples
    of a calibrated model: .93 and above. It takes in no *bias*: where the assumptions
    fail, it fails. Answers that tie share the pair.

    References
    ----------
    The theorem and its limits: the chapter on the right temperature. G. Y. Zou and A.
    Donner, *Construction of confidence limits about effect measures: a general
    approach*, Statistics in Medicine 27, 2008.

    Examples
    --------
    >>> generator = torch.Generator().manual_seed(0)
    >>> source, clean, noise = torch.randn(3, 500, 4, generator=generator)
    >>> labels = source.softmax(1).multinomial(1, generator=generator)[:, 0]
    >>> estimate = paired_accuracy(
    ...     3 * clean, 3 * clean + 3 * noise, calibrated_on=(3 * source, labels)
    ... )
    >>> low, high = estimate.interval
    >>> f"{estimate.value:.2f} ({low:.2f} to {high:.2f})"
    '0.41 (0.38 to 0.43)'
    """
    check_level(level)
    if by_class is not None:
        check_choice("by_class", by_class, ("answer", "label"))
    pair = check_pair(logits, shifted_logits, probabilities)
    calibration = _calibrated(calibrated_on, pair[0], level, probabilities)
    return _estimate(pair, calibration, by_class)


@SHARED.fill
def compare_paired_accuracy(
    logits_a: Any,
    shifted_a: Any,
    logits_b: Any,
    shifted_b: Any,
    *,
    calibrated_on: tuple[Any, Any, Any],
    level: float = 0.95,
    probabilities: bool = False,
) -> PairedAccuracyDifference:
    """Difference of the estimated accuracies of two models on the same pairs.

    Parameters
    ----------
    logits_a, shifted_a : Tensor or array, shape (N, K)
        Logits of model A, clean and shifted.
    logits_b, shifted_b : Tensor or array, shape (N, K)
        Logits of model B on the same inputs.
    calibrated_on : tuple (logits_a, logits_b, labels)
        Of both models on the same labelled source samples.
    {level} {probabilities}

    Returns
    -------
    PairedAccuracyDifference
        A minus B; what pairs and calibration samples have in common cancels.

    {TypeError} {ValueError}

    Examples
    --------
    >>> logits = torch.eye(2).repeat(50, 1)
    >>> labels = (torch.arange(100) + (torch.arange(100) < 20)) % 2
    >>> worse = compare_paired_accuracy(
    ...     logits, logits.flip(0), logits, logits,
    ...     calibrated_on=(logits, logits, labels),
    ... )
    >>> round(worse.value, 3)
    -0.6
    """
    check_level(level)
    names = ("logits_a", "shifted_a"), ("logits_b", "shifted_b")
    pair_a = check_pair(logits_a, shifted_a, probabilities, names[0])
    pair_b = check_pair(logits_b, shifted_b, probabilities, names[1])
    check_paired(("logits_a", "logits_b"), pair_a[0], pair_b[0])
    if not isinstance(calibrated_on, tuple | list) or len(calibrated_on) != 3:
        raise TypeError("calibrated_on: expected (logits_a, logits_b, labels)")
    *sources, labels = calibrated_on
    first, second = (
        _estimate(pair, _calibrated((source, labels), pair[0], level, probabilities))
        for pair, source in zip((pair_a, pair_b), sources, strict=True)
    )
    difference = first.value - second.value
    shared = _covariance(first, second)
    squares = first.standard_error**2 + second.standard_error**2 - 2 * shared
    # As if two more pairs, one each way, had told the models apart: that no pair does
    # is no proof that they are equal (Bonett and Price).
    count = len(pair_a[0])
    quantile = float(student.ppf((1 + level) / 2, max(1, count - 1)))
    common = quantile**2 * (shared - 1 / count**2)
    below, above = (
        (first.value - first.interval[0], second.value - second.interval[0]),
        (first.interval[1] - first.value, second.interval[1] - second.value),
    )
    down = below[0] ** 2 + above[1] ** 2 - 2 * min(common, below[0] * above[1])
    up = below[1] ** 2 + above[0] ** 2 - 2 * min(common, below[1] * above[0])
    interval = (
        max(-1.0, difference - math.sqrt(max(0.0, down))),
        min(1.0, difference + math.sqrt(max(0.0, up))),
    )
    error = math.sqrt(max(0.0, squares))
    return PairedAccuracyDifference(difference, error, interval, level, first, second)


def _calibrated(
    calibrated_on: Any, clean: Tensor, level: float, probabilities: bool
) -> Calibration:
    """Calibrate, and compare the source with the pairs."""
    if not isinstance(calibrated_on, tuple | list) or len(calibrated_on) != 2:
        raise TypeError(
            "calibrated_on: expected (logits, labels) of labelled source samples, got "
            f"{type(calibrated_on).__name__}; without labels, posterior_agreement "
            "compares the pairs"
        )
    source, labels = calibrated_on
    calibration = calibrate_beta(
        source, labels, level=level, probabilities=probabilities
    )
    num_classes = clean.shape[1]
    if len(calibration.counts) != num_classes:
        raise ValueError(
            f"calibrated_on: expected logits of {num_classes} classes, as the pairs "
            f"have, got {len(calibration.counts)}"
        )
    expected = sum(
        log_posterior(clean[rows], calibration.beta).exp().sum(0)
        for rows in row_slices(clean)
    )
    # A Poisson number with this mean is 0 with probability exp(-mean).
    mean = expected * calibration.num_samples / len(clean)
    absent = (calibration.counts == 0) & (mean > 7 + math.log(num_classes))
    if bool(absent.any()):
        classes = absent.nonzero()[:, 0].tolist()
        more = " and others" if len(classes) > 5 else ""
        warnings.warn(
            f"calibration: class {', '.join(map(str, classes[:5]))}{more} is frequent "
            "in the pairs and absent from the calibration labels; the estimate assumes "
            "that clean inputs are like the source",
            stacklevel=3,
        )
    return calibration


def _estimate(
    pair: tuple[Tensor, Tensor], calibration: Calibration, by: str | None = None
) -> PairedAccuracy:
    clean, shifted = pair
    beta, level = calibration.beta, calibration.level
    value, ends, own, other = accuracy_interval(pair, calibration, None)
    slope = _slope(pair, beta)
    per_sample = posterior_overlap(clean, shifted, beta=beta, shifted_beta=math.inf)
    squares = float(per_sample.var()) / len(clean) if len(clean) > 1 else math.nan
    if 0 < beta < math.inf:
        squares += (slope * calibration.standard_error) ** 2
    classes = None
    if by is not None:
        values, ends_by_class, _, _ = accuracy_interval(pair, calibration, by)
        classes = torch.from_numpy(np.column_stack([values, ends_by_class.T]))
    return PairedAccuracy(
        value=float(value[0]),
        standard_error=math.sqrt(squares),
        interval=_pair(ends),
        level=level,
        from_pairs=_pair(own),
        from_calibration=_pair(other),
        calibration=calibration,
        per_sample=per_sample,
        by_class=classes,
        slope=slope,
    )


def _pair(ends: Array) -> tuple[float, float]:
    return float(ends[0, 0]), float(ends[1, 0])


def _slope(pair: tuple[Tensor, Tensor], beta: float) -> float:
    if not 0 < beta < math.inf:
        return 0.0
    low, high = beta * (1 - 1e-4), beta * (1 + 1e-4)
    first, second = (
        float(posterior_overlap(*pair, beta=at, shifted_beta=math.inf).mean())
        for at in (low, high)
    )
    return (second - first) / (high - low)


def _covariance(first: PairedAccuracy, second: PairedAccuracy) -> float:
    """Of two estimates: what they owe to the same pairs and calibration samples."""
    one, other = first.per_sample, second.per_sample
    count = len(one)
    if count < 2:
        return 0.0
    total = float(((one - one.mean()) * (other - other.mean())).sum())
    total /= (count - 1) * count
    a, b = first.calibration, second.calibration
    if first.slope and second.slope:
        scores = a.scores - a.scores.mean(), b.scores - b.scores.mean()
        common = float((scores[0] * scores[1]).sum()) / (a.num_samples - 1)
        common *= first.slope * second.slope / (a.information * b.information)
        total += common / a.num_samples
    return total
