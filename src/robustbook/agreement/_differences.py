"""Two models on the same pairs: how much they differ, and how many pairs show it."""

import math
from collections.abc import Callable
from typing import Any

import torch

from robustbook._checks.arguments import (
    check_fraction,
    check_level,
    check_logit_pair,
    check_paired,
    check_positive,
)
from robustbook._intervals import Difference, normal_quantile, student_quantile
from robustbook.agreement._measure import posterior_agreement
from robustbook.agreement._paired_accuracy import PairedAccuracy, paired_accuracy
from robustbook.agreement._result import Agreement
from robustbook.agreement._uncertainty import standard_error_of_mean


def compare_agreement(
    logits_a: Any,
    shifted_a: Any,
    logits_b: Any,
    shifted_b: Any,
    *,
    level: float = 0.95,
    prior: Any = None,
    tol: float = 1e-9,
) -> Difference[Agreement]:
    """Compare the posterior agreement of two models on the same pairs.

    Source: Chapter 7 (envelope theorem); not in the papers.

    Parameters
    ----------
    logits_a, shifted_a, logits_b, shifted_b : tensor or array, shape (N, K)
        Logits of models A and B on the same samples in the same order.
    level : float, default 0.95
        Coverage of the confidence interval, strictly between 0 and 1.
    prior, tol
        As :func:`posterior_agreement` takes them.

    Returns
    -------
    Difference of Agreement
        ``value`` = PA(A) - PA(B) in nats, with a paired standard error and an
        ``interval``, in which the samples that are hard for both cancel; and the
        measurements of A and B, ``first`` and ``second``.

    Examples
    --------
    >>> clean = torch.tensor([[1.0, 0.0], [0.0, 1.0], [2.0, 0.0], [0.0, 2.0]])
    >>> worse = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 2.0], [0.0, 2.0]])
    >>> compare_agreement(clean, clean, clean, worse).value > 0
    True
    """
    pair_a = check_logit_pair(logits_a, shifted_a, names=("logits_a", "shifted_a"))
    pair_b = check_logit_pair(logits_b, shifted_b, names=("logits_b", "shifted_b"))
    check_paired(("logits_a", "logits_b"), pair_a[0], pair_b[0])
    coverage = check_level(level)
    a, b = (
        posterior_agreement(*pair, prior=prior, tol=tol) for pair in (pair_a, pair_b)
    )
    error = standard_error_of_mean(a.per_sample - b.per_sample)
    low, high = interval_of_difference(a, b, coverage)
    return Difference(a.pa - b.pa, error, (low, high), coverage, a, b)


def interval_of_difference(
    a: Agreement, b: Agreement, level: float = 0.95
) -> tuple[float, float]:
    """Confidence interval for ``a.pa - b.pa``, by Zou's method.

    Each side of it joins one side of the two intervals of the models, as far as their
    contributions do not vary together. Unlike Student's interval of the paired
    contributions, it has a width where no sample distinguishes the models.

    Parameters
    ----------
    a, b : Agreement
        Measurements of two models on the same samples in the same order.
    level : float, default 0.95
        Coverage, strictly between 0 and 1.

    Returns
    -------
    (float, float)
        Its ends, in nats per sample.

    References
    ----------
    G. Y. Zou, *Toward using confidence intervals to compare correlations*,
    Psychological Methods 12, 2007.

    Examples
    --------
    >>> from robustbook.agreement import posterior_agreement
    >>> clean = torch.eye(4).repeat(50, 1)
    >>> changed = torch.cat([clean[:20].roll(1, 0), clean[20:]])
    >>> a, b = (posterior_agreement(clean, shifted) for shifted in (clean, changed))
    >>> "{:.2f} to {:.2f}".format(*interval_of_difference(a, b))
    '0.27 to 0.59'
    """
    contributions = [result.per_sample for result in (a, b)]
    if contributions[0].shape != contributions[1].shape:
        raise ValueError(
            "b: expected a result for the same samples as a, "
            f"{len(contributions[0])} of them, got {len(contributions[1])}"
        )
    deviations = torch.stack(contributions)
    deviations -= deviations.mean(1, keepdim=True)
    products = (deviations @ deviations.T).cpu()
    correlation = float(products[0, 1] / products.diagonal().prod().sqrt())
    if math.isnan(correlation):
        correlation = 0.0  # The contributions of one of them do not vary.
    return _zou_interval(
        *(a.pa, a.interval(level)),
        *(b.pa, b.interval(level)),
        lambda x, y: correlation * x * y,
    )


def _zou_interval(
    first: float,
    interval: tuple[float, float],
    second: float,
    other_interval: tuple[float, float],
    shared: Callable[[float, float], float],
) -> tuple[float, float]:
    """Interval of a difference, from those of the two values.

    `shared` is the covariance of two half-widths.
    """

    def joined(x: float, y: float) -> float:
        return math.sqrt(max(0.0, x**2 + y**2 - 2 * shared(x, y)))

    (low, high), (other_low, other_high) = interval, other_interval
    value = first - second
    below = joined(first - low, other_high - second)
    return value - below, value + joined(high - first, second - other_low)


def compare_paired_accuracy(
    logits_a: Any,
    shifted_a: Any,
    logits_b: Any,
    shifted_b: Any,
    *,
    calibrated_on: tuple[Any, Any, Any],
    level: float = 0.95,
    probabilities: bool = False,
) -> Difference[PairedAccuracy]:
    """Difference of the estimated accuracies of two models on the same pairs.

    Variation that the models share, in pairs and calibration samples, cancels.

    Parameters
    ----------
    logits_a, shifted_a, logits_b, shifted_b : Tensor or array, shape (N, K)
        Logits of models A and B for the same clean and shifted inputs.
    calibrated_on : tuple (logits_a, logits_b, labels)
        Of both models on the same labeled source samples, which are neither among the
        pairs nor training data of the models.
    level, probabilities
        As :func:`paired_accuracy` takes them.

    Returns
    -------
    Difference of PairedAccuracy
        A minus B: ``value``, its ``interval`` and more, and the estimates for A and B,
        ``first`` and ``second``.

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
            "calibrated_on: expected (logits_a, logits_b, labels) of labeled source "
            f"samples, got {type(calibrated_on).__name__}"
        )
    pairs = (
        check_logit_pair(logits_a, shifted_a, names=("logits_a", "shifted_a")),
        check_logit_pair(logits_b, shifted_b, names=("logits_b", "shifted_b")),
    )
    check_paired(("logits_a", "logits_b"), pairs[0][0], pairs[1][0])
    *sources, labels = calibrated_on
    first, second = (
        paired_accuracy(
            *pair,
            calibrated_on=(source, labels),
            level=level,
            probabilities=probabilities,
        )
        for pair, source in zip(pairs, sources, strict=True)
    )
    count, shared = len(pairs[0][0]), _covariance(first, second)
    quantile = student_quantile(level, max(1, count - 1))
    common = quantile**2 * (shared - 1 / count**2)
    low, high = _zou_interval(
        *(first.value, first.interval),
        *(second.value, second.interval),
        lambda x, y: min(common, x * y),
    )
    squares = first.standard_error**2 + second.standard_error**2 - 2 * shared
    return Difference(
        value=first.value - second.value,
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


def pairs_needed(
    difference: float, deviation: float, *, level: float = 0.95, power: float = 0.8
) -> int:
    r"""Number of pairs that tell two models apart, if they differ by `difference`.

    Parameters
    ----------
    difference : float
        The smallest difference of the two means that matters, in nats for posterior
        agreement; only its size counts.
    deviation : float
        Standard deviation of the paired differences, sample by sample, as a pilot shows
        it: that of ``a.per_sample - b.per_sample``. For two models whose contributions
        are uncorrelated and vary like those of one, it is :math:`\sqrt2` times theirs.
    level, power : float, defaults 0.95 and 0.8
        Coverage of the interval, and the probability that it excludes 0.

    Returns
    -------
    int
        At least 2.

    Notes
    -----
    The mean of n differences is about normal around :math:`\Delta`, with error
    :math:`\sigma / \sqrt n`. With q the quantile for `level`, its interval excludes 0
    on the right side with probability :math:`\Phi(\sqrt n\,\Delta / \sigma - q)`. That
    is `power` at

    .. math:: n = (q + z)^2 \sigma^2 / \Delta^2 + q^2 / 2

    with z the quantile of `power`. The last term pays for Student's quantile (W. C.
    Guenther, *The American Statistician* 35, 1981). Where fewer than some ten answers
    tell the models apart, the mean is not normal, and the power is not what was asked.

    Examples
    --------
    >>> pairs_needed(0.05, 0.5)
    787
    """
    change = check_positive("difference", abs(difference))
    spread = check_positive("deviation", deviation)
    quantile = normal_quantile(check_level(level))
    chance = check_fraction("power", power)
    if not 0.5 <= chance < 1:
        raise ValueError(f"power: expected a number from 0.5 to below 1, got {power}")
    total = quantile + normal_quantile(2 * chance - 1)
    return max(2, math.ceil((total * spread / change) ** 2 + quantile**2 / 2))
