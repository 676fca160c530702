"""Inverse temperature by labeled samples of the source, with its interval."""

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor

from robustbook._checks.arguments import check_labels, check_level, check_logits
from robustbook._intervals import student_quantile
from robustbook.agreement._temperatures import (
    log_posterior,
    log_probabilities,
    row_slices,
)


@dataclass(frozen=True)
class Calibration:
    """An inverse temperature, calibrated on labeled samples.

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
    counts, influence : Tensor, shapes (K,) and (M,)
        How often each class is a label, and how far each sample moves `beta`, times M:
        zeros if it is 0 or infinite.
    """

    beta: float
    interval: tuple[float, float]
    level: float
    standard_error: float
    cross_entropy: float
    counts: Tensor = field(repr=False)
    influence: Tensor = field(repr=False)

    @property
    def num_samples(self) -> int:
        """The number of labeled samples."""
        return int(self.counts.sum())


def calibrate_beta(
    logits: Any, labels: Any, *, level: float = 0.95, probabilities: bool = False
) -> Calibration:
    r"""Inverse temperature of least cross-entropy on labeled samples.

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
    moments = cache(partial(_moments, scores, truth))
    start = 1 / float((scores.amax(1) - scores.amin(1)).double().mean())
    beta = _root(lambda at: float(moments(at)[0].mean()), start)
    at_beta, information, loss = moments(beta)
    misfit, error, influence = 1.0, math.nan, torch.zeros_like(at_beta)
    if 0 < beta < math.inf and information > 0:
        misfit = max(1.0, float(at_beta.var()) / information)
        error = math.sqrt(misfit / information / count)
        influence = at_beta / information
    quantile = student_quantile(coverage, count - 1)
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

    interval = low, high = end(-1), end(1)
    if count < 50:
        ends = f"{low:.3g} to {high:.3g}".replace("inf", "∞")
        warn_of_calibration(f"{count} samples leave β anywhere in {ends}; use hundreds")
    if math.isinf(beta):
        warn_of_calibration(
            f"all {count} answers are right, which leaves β infinite (at least "
            f"{low:.3g}); use more samples"
        )
    if beta == 0:
        warn_of_calibration(
            "the logits say nothing of the labels, so β is 0; do rows and classes fit?"
        )
    counts = torch.bincount(truth, minlength=num_classes)
    return Calibration(beta, interval, coverage, error, loss, counts, influence)


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
    from scipy.optimize import brentq

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


def warn_of_calibration(message: str) -> None:
    warnings.warn(f"calibration: {message}", stacklevel=3)
