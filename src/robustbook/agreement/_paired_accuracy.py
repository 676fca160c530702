"""Accuracy under a shift, from a calibrated temperature and pairs without labels."""

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
from scipy.optimize import brentq
from scipy.stats import t as student
from torch import Tensor

from robustbook._checks.arguments import (
    check_labels,
    check_level,
    check_logit_pair,
    check_logits,
)
from robustbook._intervals import normal_quantile, wilson
from robustbook.agreement._temperatures import (
    log_posterior,
    log_probabilities,
    posterior_overlap,
    row_slices,
)

#: Contributions that vary little count as if this many right and wrong answers were
#: among them, because a few pairs do not show rare ones.
_PRIOR_EVENTS = 2.0


@dataclass(frozen=True)
class Calibration:
    """An inverse temperature, calibrated on labelled samples.

    Attributes
    ----------
    beta : float
        In units of 1 / logit; ``inf`` if all labels are the answers, 0 if the logits
        say nothing of the labels.
    interval, level : (float, float), float
        Interval of `beta`, whose upper end may be ``inf``, and its coverage.
    standard_error : float
        Of `beta`, by the sandwich formula; NaN if it is 0 or infinite.
    cross_entropy : float
        Mean of -log p(label) at `beta`, in nats.
    counts : Tensor, shape (K,)
        How often each class is a label.
    """

    beta: float
    interval: tuple[float, float]
    level: float
    standard_error: float
    cross_entropy: float
    counts: Tensor = field(repr=False)

    @property
    def num_samples(self) -> int:
        """The number of labelled samples."""
        return int(self.counts.sum())


@dataclass(frozen=True)
class PairedAccuracy:
    """An estimate of the accuracy under a shift.

    Attributes
    ----------
    value, standard_error : float
        The accuracy, in [0, 1], and its error by pairs and calibration together. Where
        few answers are wrong (or right), or beta is infinite, the error is too small,
        and the interval is not.
    interval, level : (float, float), float
        Confidence interval, and its coverage if the assumptions hold.
    from_pairs, from_calibration : (float, float)
        The interval if only one of the two varied.
    calibration, per_sample : Calibration, Tensor of shape (N,)
        The probability of each shifted answer at ``calibration.beta``.
    """

    value: float
    standard_error: float
    interval: tuple[float, float]
    level: float
    from_pairs: tuple[float, float] = field(repr=False)
    from_calibration: tuple[float, float] = field(repr=False)
    calibration: Calibration = field(repr=False)
    per_sample: Tensor = field(repr=False)


def paired_accuracy(
    logits: Any,
    shifted_logits: Any,
    *,
    calibrated_on: tuple[Any, Any],
    level: float = 0.95,
    probabilities: bool = False,
) -> PairedAccuracy:
    r"""Accuracy under a shift, from pairs without labels and a labelled source.

    .. math:: \frac1N \sum_i p_i(\hat y''_i),

    the mean calibrated probability that the clean input gives to the shifted answer.
    It is unbiased *whatever the shift does* if, among clean inputs with posterior p
    whose shifted answer is k, a share :math:`p_k` has label k. This asks three things:

    - the clean inputs are like the source, for which p is calibrated;
    - the shift leaves the labels as they are;
    - the shifted answer knows no more of the label than p does. An attacker who knows
      the labels violates this, and so does a shift that mends bad pictures.

    Parameters
    ----------
    logits, shifted_logits : Tensor or array, shape (N, K)
        Logits of the clean and of the shifted inputs.
    calibrated_on : tuple (logits, labels), shapes (M, K) and (M,)
        Of labelled source samples that are neither among the pairs nor training data
        of the model: :func:`calibrate_beta`.
    level : float, default 0.95
        Coverage of the interval, strictly between 0 and 1.
    probabilities : bool, default False
        Whether the arrays hold probabilities: :func:`log_probabilities`.

    Returns
    -------
    PairedAccuracy
        ``value``, its ``interval`` and more. Warnings say if the calibration is poor,
        or the pairs have a class that the source never has.

    Notes
    -----
    The interval is for the accuracy in the population of the pairs. It adds two parts
    in squares (Zou and Donner, *Statistics in Medicine* 27, 2008): Wilson's interval
    for N pairs, scaled by how much the contributions vary, and the range of the
    estimate over the interval of beta. Measured coverage at 95 %, accuracies of .02 to
    .98, 2 to 1000 classes, 50 to 1000 pairs and 50 to 1000 calibration samples of a
    calibrated model: .93 and above. It includes no *bias*: where the assumptions fail,
    it fails. Answers that tie share the pair. The theorem and its limits are in the
    chapter on the right temperature.

    Examples
    --------
    >>> generator = torch.Generator().manual_seed(0)
    >>> source, clean, noise = torch.randn(3, 500, 4, generator=generator)
    >>> labels = source.softmax(1).multinomial(1, generator=generator)[:, 0]
    >>> estimate = paired_accuracy(
    ...     3 * clean, 3 * clean + 3 * noise, calibrated_on=(3 * source, labels)
    ... )
    >>> "{:.2f} ({:.2f} to {:.2f})".format(estimate.value, *estimate.interval)
    '0.41 (0.38 to 0.43)'
    """
    level = check_level(level)
    if probabilities:
        logits = log_probabilities(logits, name="logits")
        shifted_logits = log_probabilities(shifted_logits, name="shifted_logits")
    clean, shifted = check_logit_pair(logits, shifted_logits)

    def per_sample(beta: float) -> Tensor:
        return posterior_overlap(clean, shifted, beta=beta, shifted_beta=math.inf)

    if not isinstance(calibrated_on, tuple | list) or len(calibrated_on) != 2:
        raise TypeError(
            "calibrated_on: expected (logits, labels) of labelled source samples, got "
            f"{type(calibrated_on).__name__}; without labels, posterior_agreement "
            "compares the pairs"
        )
    source, labels = calibrated_on
    if probabilities:
        source = log_probabilities(source, name="calibration logits")
    calibration = calibrate_beta(source, labels, level=level)
    _check_source(calibration, clean)
    beta = calibration.beta
    values = per_sample(beta)
    value = float(values.mean())
    count, from_pairs, squares = len(values), (0.0, 1.0), math.nan
    if count > 1:
        squares = float(values.var()) / count
        # Wilson's interval, for contributions that vary less than right and wrong do.
        most = count * value * (1 - value)
        share = (count**2 * squares + _PRIOR_EVENTS) / (most + _PRIOR_EVENTS)
        quantile = float(student.ppf((1 + level) / 2, count - 1))
        trials = (normal_quantile(level) / quantile) ** 2 * count / share
        from_pairs = wilson(value * trials, trials, level)
    others = [value, *(float(per_sample(at).mean()) for at in _grid(calibration))]
    from_calibration = min(others), max(others)
    if 0 < beta < math.inf:
        low, high = (float(per_sample(beta * at).mean()) for at in (1 - 1e-4, 1 + 1e-4))
        squares += ((high - low) / (2e-4 * beta) * calibration.standard_error) ** 2
    ends = zip(from_pairs, from_calibration, strict=True)
    below, above = (math.hypot(*(end - value for end in pair)) for pair in ends)
    interval = max(0.0, value - below), min(1.0, value + above)
    parts = from_pairs, from_calibration, calibration, values
    return PairedAccuracy(value, math.sqrt(squares), interval, level, *parts)


def _grid(calibration: Calibration) -> list[float]:
    """Inverse temperatures over the interval, its ends included."""
    (low, high), best = calibration.interval, calibration.beta
    unit = best if 0 < best < math.inf else low or 1.0
    first, last = (1 / (1 + unit / end) if end else 0.0 for end in (low, high))
    shares = np.linspace(first, last, 7).tolist()
    return [math.inf if t == 1 else unit * t / (1 - t) for t in shares]


def _check_source(calibration: Calibration, clean: Tensor) -> None:
    """Warn of classes that are frequent in the pairs and absent from the source."""
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
        first, *others = absent.nonzero()[:, 0].tolist()
        _warn(
            f"class {first}{' and others' * bool(others)} is frequent in the pairs and "
            "absent from the calibration labels; the estimate assumes that clean "
            "inputs are like the source"
        )


def calibrate_beta(
    logits: Any, labels: Any, *, level: float = 0.95, probabilities: bool = False
) -> Calibration:
    r"""Inverse temperature of least cross-entropy on labelled samples.

    Temperature scaling (Guo, Pleiss, Sun and Weinberger, ICML 2017). At the optimum the
    labels' logits are, on average, equal to their expectation under the posterior. The
    interval inverts Rao's score test, with the variance that the posterior forecasts,
    times the factor (at least 1) by which the scores vary more than that: White's
    sandwich. So it has a lower end also where all samples are classified correctly and
    :math:`\beta` is infinite.

    Parameters
    ----------
    logits, labels : Tensor or array, shapes (M, K) and (M,)
        Of samples that the model was not trained on; labels from 0 to K - 1.
    level, probabilities
        As :func:`paired_accuracy` takes them.

    Returns
    -------
    Calibration
        ``beta``, its ``interval`` and more. A warning says if there are fewer than 50
        samples, or `beta` is 0 or infinite.

    Examples
    --------
    >>> logits = torch.tensor([[2.0, 0.0]]).repeat(100, 1)
    >>> labels = torch.arange(100) >= 80  # 20 of 100 answers are wrong
    >>> found = calibrate_beta(logits, labels.long())
    >>> round(found.beta, 4)  # log(80 / 20) / 2
    0.6931
    """
    coverage, name = check_level(level), "calibration logits"
    if probabilities:
        logits = log_probabilities(logits, name=name)
    scores = check_logits(name, logits)
    count, num_classes = scores.shape
    shape = {"length": count, "num_classes": num_classes}
    truth = check_labels("calibration labels", labels, **shape).to(scores.device)
    if count < 2:
        raise ValueError(
            f"{name}: expected two samples or more, better some hundreds, got {count}"
        )
    if bool((scores == scores[:, :1]).all()):
        raise ValueError(f"{name}: expected logits that differ, got constant rows")
    moments = partial(_moments, scores, truth)
    start = 1 / float((scores.amax(1) - scores.amin(1)).double().mean())
    beta = _root(lambda at: float(moments(at)[0].mean()), start)
    at_beta, information, loss = moments(beta)
    misfit, error = 1.0, math.nan
    if 0 < beta < math.inf and information > 0:
        misfit = max(1.0, float(at_beta.var()) / information)
        error = math.sqrt(misfit / information / count)
    quantile = float(student.ppf((1 + coverage) / 2, count - 1))
    best = scores.topk(2, dim=1).values.double()
    one_error = float((best[:, 0] - best[:, 1]).mean()) / count

    def end(side: int) -> float:
        """Where the mean score is as far from 0 as its variance there allows."""

        def excess(at: float) -> float:
            each, variance, _ = moments(at)
            # One error more or less than expected is no evidence.
            error = quantile * math.sqrt(misfit * variance / count)
            return float(each.mean()) + side * math.hypot(error, one_error)

        return _root(excess, start)

    interval = end(-1), end(1)
    if count < 50:
        ends = f"{interval[0]:.3g} to {interval[1]:.3g}".replace("inf", "∞")
        _warn(f"{count} samples leave β anywhere in {ends}; use hundreds")
    if math.isinf(beta):
        least = f"β infinite (at least {interval[0]:.3g})"
        _warn(f"all {count} answers are right, which leaves {least}; use more samples")
    if beta == 0:
        _warn(
            "the logits say nothing of the labels, so β is 0; do rows and classes fit?"
        )
    counts = torch.bincount(truth, minlength=num_classes)
    return Calibration(beta, interval, coverage, error, loss, counts)


def _moments(
    logits: Tensor, labels: Tensor, beta: float
) -> tuple[Tensor, float, float]:
    """Scores d log p(label) / d beta (M,), mean variance of logits, cross-entropy."""
    scores, variance, loss = [], 0.0, 0.0
    for rows in row_slices(logits):
        log_p = log_posterior(logits[rows], beta)
        values = logits[rows].double()
        values = values - values.amax(1, keepdim=True)
        p, label = log_p.exp(), labels[rows, None]
        mean = (p * values).sum(1, keepdim=True)
        variance += float((p * (values - mean) ** 2).sum())
        scores.append((values.gather(1, label) - mean)[:, 0])
        loss -= float(log_p.gather(1, label).sum())
    return torch.cat(scores), variance / len(logits), loss / len(logits)


def _root(function: Callable[[float], float], start: float) -> float:
    """Where a function that falls with beta is 0: 0 or infinity if it has one sign."""
    if function(0.0) <= 0:
        return 0.0
    if function(math.inf) >= 0:
        return math.inf
    low = high = start
    while function(high) > 0:
        low, high = high, 4 * high
    while function(low) < 0:
        low, high = low / 4, low
    return float(brentq(function, low, high, xtol=1e-12 * low, rtol=1e-12))


def _warn(message: str) -> None:
    warnings.warn(f"calibration: {message}", stacklevel=3)
