"""The inverse temperature that labels of the source ask for, with its interval."""

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from scipy.optimize import brentq
from scipy.stats import t as student
from torch import Tensor

from robustbook._checks.arguments import check_labels, check_level, check_logits
from robustbook.agreement._docs import SHARED
from robustbook.agreement._temperatures import (
    log_posterior,
    log_probabilities,
    row_slices,
)

#: Calibration sets below this are remarked.
FEW_SAMPLES = 50


@dataclass(frozen=True)
class Calibration:
    """An inverse temperature, calibrated on labelled samples.

    Parameters
    ----------
    beta : float
        In units of 1 / logit; ``inf`` if all labels are the answers, 0 if the logits
        say nothing of the labels.
    interval : tuple of float
        Of `beta`, at `level`; its upper end may be ``inf``.
    level : float
        Its coverage.
    cross_entropy : float
        Mean of -log p(label) at `beta`, in nats.
    counts : Tensor, shape (K,)
        How often each class is a label.
    scores : Tensor, shape (M,)
        Derivatives of log p(label) by beta, of each sample, at `beta`.
    information : float
        Mean variance of the logits under p: the curvature of the cross-entropy.
    misfit : float
        Variance of the scores over `information`, at least 1: 1 where the model of
        one temperature is right.
    """

    beta: float
    interval: tuple[float, float]
    level: float
    cross_entropy: float
    counts: Tensor = field(repr=False)
    scores: Tensor = field(repr=False)
    information: float = field(repr=False)
    misfit: float = field(repr=False)

    @property
    def temperature(self) -> float:
        """1 / beta."""
        return math.inf if self.beta == 0 else 1 / self.beta

    @property
    def num_samples(self) -> int:
        """Labelled samples."""
        return len(self.scores)

    @property
    def standard_error(self) -> float:
        """Of beta, by the sandwich formula; NaN at an end of the range."""
        if not 0 < self.beta < math.inf:
            return math.nan
        return math.sqrt(self.misfit / self.information / self.num_samples)


@SHARED.fill
def calibrate_beta(
    logits: Any, labels: Any, *, level: float = 0.95, probabilities: bool = False
) -> Calibration:
    r"""Inverse temperature of least cross-entropy on labelled samples.

    Temperature scaling. The optimum is where the labels' logits are, on average, what
    the posterior expects them to be; posteriors of largest entropy under this quota
    are Gibbs posteriors at this :math:`\beta`. Its interval inverts Rao's score test,
    with the variance that the posterior forecasts, times the factor (at least 1) by
    which the scores vary more than that: White's sandwich. So it has a lower end also
    where all samples are classified correctly and :math:`\beta` is infinite.

    One number is enough for :func:`paired_accuracy`: on this book's networks for digits
    and CIFAR-10, class-wise scaling and isotonic regression did not lessen its error.

    Parameters
    ----------
    logits : Tensor or array, shape (M, K)
        Of labelled samples that the model was not trained on; an overfitted model is
        too sure of its training samples.
    labels : Tensor or array, shape (M,)
        True classes, integers from 0 to K - 1.
    {level} {probabilities}

    Returns
    -------
    Calibration
        ``beta``, its ``interval`` and more.

    {TypeError} {ValueError}

    Warns
    -----
    UserWarning
        If there are fewer than 50 samples, or `beta` is 0 or infinite.

    References
    ----------
    C. Guo, G. Pleiss, Y. Sun and K. Q. Weinberger, *On calibration of modern neural
    networks*, ICML 2017.

    Examples
    --------
    >>> logits = torch.tensor([[2.0, 0.0]]).repeat(100, 1)
    >>> labels = torch.arange(100) >= 80  # 20 of 100 answers are wrong
    >>> found = calibrate_beta(logits, labels.long())
    >>> round(found.beta, 4)  # log(80 / 20) / 2
    0.6931
    """
    coverage = check_level(level)
    name = "calibration logits"
    if probabilities:
        logits = log_probabilities(logits, name=name)
    scores = check_logits(name, logits)
    count, num_classes = scores.shape
    truth = check_labels(
        "calibration labels", labels, length=count, num_classes=num_classes
    ).to(scores.device)
    if count < 2:
        raise ValueError(
            f"{name}: expected two samples or more, better some hundreds, got {count}"
        )
    if bool((scores == scores[:, :1]).all()):
        raise ValueError(f"{name}: expected logits that differ, got constant rows")
    moments = partial(_moments, scores, truth)
    beta = _least_cross_entropy(moments, scores)
    at_beta, variance, loss = moments(beta)
    information = float(variance)
    misfit = 1.0
    if 0 < beta < math.inf and information > 0:
        misfit = max(1.0, float(at_beta.var()) / information)
    quantile = float(student.ppf((1 + coverage) / 2, count - 1))
    best = scores.topk(2, dim=1).values.double()
    one_error = float((best[:, 0] - best[:, 1]).mean()) / count

    def half_width(variance: float) -> float:
        """Of the mean score; one error more or less than expected is no evidence."""
        return math.hypot(quantile * math.sqrt(misfit * variance / count), one_error)

    interval = _score_interval(moments, beta, half_width)
    if count < FEW_SAMPLES:
        _warn(f"{count} samples leave β anywhere in {_words(interval)}; use hundreds")
    if math.isinf(beta):
        _warn(
            f"all {count} answers are right, which leaves β infinite (at least "
            f"{interval[0]:.3g}); use more samples"
        )
    if beta == 0:
        _warn(
            "the logits say nothing of the labels, so that β is 0; is row i of both "
            "the same sample, and are classes numbered alike?"
        )
    counts = torch.bincount(truth, minlength=num_classes)
    return Calibration(
        beta, interval, coverage, loss, counts, at_beta, information, misfit
    )


Moments = Callable[[float], tuple[Tensor, float, float]]


def _moments(
    logits: Tensor, labels: Tensor, beta: float
) -> tuple[Tensor, float, float]:
    """Scores (M,), mean variance of the logits, cross-entropy."""
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


def _least_cross_entropy(moments: Moments, logits: Tensor) -> float:
    """Where the mean score, which falls with beta, is 0."""

    def mean_score(beta: float) -> float:
        return float(moments(beta)[0].mean())

    if mean_score(0.0) <= 0:
        return 0.0
    if mean_score(math.inf) >= 0:  # nobody's label has less than the largest logit
        return math.inf
    spread = float((logits.amax(1) - logits.amin(1)).double().mean())
    low = high = 1 / spread
    while mean_score(high) > 0:
        low, high = high, 4 * high
    while mean_score(low) < 0:
        low, high = low / 4, low
    return float(brentq(mean_score, low, high, xtol=1e-12 * low, rtol=1e-12))


def _score_interval(
    moments: Moments, beta: float, half_width: Callable[[float], float]
) -> tuple[float, float]:
    """Where the mean score is as near to 0 as its variance there allows."""

    def excess(at: float, sign: int) -> float:
        """Above 0 inside; below 0 where `at` is too small (1) or too large (-1)."""
        scores, variance, _ = moments(at)
        return half_width(variance) - sign * float(scores.mean())

    low = high = beta
    if beta > 0 and excess(0.0, 1) < 0:
        start = beta
        if math.isinf(beta):
            start = 1.0
            while excess(start, 1) < 0:
                start *= 2
        low = start / 2
        while excess(low, 1) > 0:
            start, low = low, low / 2
        low = float(brentq(excess, low, start, args=(1,), xtol=1e-12 * low))
    elif beta > 0:
        low = 0.0
    if excess(math.inf, -1) >= 0:
        high = math.inf
    else:
        start = beta
        if beta == 0:
            scale = float(moments(0.0)[1]) ** -0.5
            start = 1e-6 * scale
            if excess(start, -1) < 0:
                return 0.0, start
        high = 2 * start
        while excess(high, -1) > 0:
            start, high = high, 2 * high
        high = float(brentq(excess, start, high, args=(-1,), xtol=1e-12 * start))
    return low, high


def _words(interval: tuple[float, float]) -> str:
    return f"{interval[0]:.3g} to {interval[1]:.3g}".replace("inf", "∞")


def _warn(message: str) -> None:
    warnings.warn(f"calibration: {message}", stacklevel=3)
