"""Difference of two models' accuracies under a shift, from pairs without labels."""

import math
from dataclasses import dataclass, field
from typing import Any

import torch
from scipy.stats import t as student
from torch import Tensor

from robustbook._checks.arguments import check_level, check_logits, check_paired
from robustbook.agreement._paired_accuracy import PairedAccuracy, paired_accuracy
from robustbook.agreement._temperatures import log_probabilities


@dataclass(frozen=True)
class PairedAccuracyDifference:
    """The difference of two estimates on the same pairs.

    Attributes
    ----------
    value, standard_error : float
        Estimated accuracy of model A minus that of model B, and its error.
    interval, level : (float, float), float
        Confidence interval, and its coverage if the assumptions hold.
    first, second : PairedAccuracy
        The estimates for A and B.
    """

    value: float
    standard_error: float
    interval: tuple[float, float]
    level: float
    first: PairedAccuracy = field(repr=False)
    second: PairedAccuracy = field(repr=False)


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

    Variation that the models share, in pairs and calibration samples, cancels.

    Parameters
    ----------
    logits_a, shifted_a, logits_b, shifted_b : Tensor or array, shape (N, K)
        Logits of models A and B for the same clean and shifted inputs.
    calibrated_on : tuple (logits_a, logits_b, labels)
        Of both models on the same labelled source samples, which are neither among the
        pairs nor training data of the models.
    level, probabilities
        As :func:`paired_accuracy` takes them.

    Returns
    -------
    PairedAccuracyDifference
        A minus B: ``value``, its ``interval`` and more.

    Notes
    -----
    The interval joins those of the two models as :func:`interval_of_difference` does,
    with a covariance as if two more pairs, one each way, had distinguished the models
    (Bonett and Price, 2012): models that no pair distinguishes need not be equal.

    Examples
    --------
    >>> logits = torch.eye(2).repeat(50, 1)
    >>> labels = (torch.arange(100) + (torch.arange(100) < 20)) % 2
    >>> worse = compare_paired_accuracy(
    ...     *(logits, logits.flip(0), logits, logits),
    ...     calibrated_on=(logits, logits, labels),
    ... )
    >>> round(worse.value, 3)
    -0.6
    """
    level = check_level(level)
    if not isinstance(calibrated_on, tuple | list) or len(calibrated_on) != 3:
        raise TypeError(
            "calibrated_on: expected (logits_a, logits_b, labels) of labelled source "
            f"samples, got {type(calibrated_on).__name__}"
        )

    def read(name: str, value: Any) -> Tensor:
        if probabilities:
            return log_probabilities(value, name=name)
        return check_logits(name, value)

    clean_a, clean_b = read("logits_a", logits_a), read("logits_b", logits_b)
    moved_a, moved_b = read("shifted_a", shifted_a), read("shifted_b", shifted_b)
    check_paired(("logits_a", "shifted_a"), clean_a, moved_a)
    check_paired(("logits_a", "logits_b"), clean_a, clean_b)
    check_paired(("logits_b", "shifted_b"), clean_b, moved_b)
    *sources, labels = calibrated_on
    first, second = (
        paired_accuracy(*pair, calibrated_on=(read(name, source), labels), level=level)
        for pair, name, source in (
            ((clean_a, moved_a), "calibration logits of A", sources[0]),
            ((clean_b, moved_b), "calibration logits of B", sources[1]),
        )
    )
    count, shared = len(clean_a), _covariance(first, second)
    quantile = float(student.ppf((1 + level) / 2, max(1, count - 1)))
    common = quantile**2 * (shared - 1 / count**2)

    def joined(x: float, y: float) -> float:
        return math.sqrt(max(0.0, x**2 + y**2 - 2 * min(common, x * y)))

    value = first.value - second.value
    (low_a, high_a), (low_b, high_b) = first.interval, second.interval
    low = value - joined(first.value - low_a, high_b - second.value)
    high = value + joined(high_a - first.value, second.value - low_b)
    squares = first.standard_error**2 + second.standard_error**2 - 2 * shared
    return PairedAccuracyDifference(
        value=value,
        standard_error=math.sqrt(max(squares, 0.0)),
        interval=(max(-1.0, low), min(1.0, high)),
        level=level,
        first=first,
        second=second,
    )


def _covariance(first: PairedAccuracy, second: PairedAccuracy) -> float:
    """Covariance of two estimates by their common pairs and calibration samples."""
    results = first, second
    if len(first.per_sample) < 2:
        return 0.0
    pairs = torch.stack([result.per_sample for result in results])
    moves = torch.stack([r.slope * r.calibration.influence for r in results])
    return sum(float(torch.cov(each)[0, 1]) / each.shape[1] for each in (pairs, moves))
