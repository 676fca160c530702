"""Columns of rows on margins: shares, orders and detection, with their intervals."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

import numpy as np
from scipy.stats import binomtest
from torch import Tensor

from robustbook.margins import concordance, detection_scores, margin_consistency, ranks
from robustbook.studies._statistics import interval_row
from robustbook.studies.margins.settings import MarginSetting
from robustbook.studies.run import Row

#: With fewer brittle or fewer other decisions, detection is not measured.
FEWEST: Final = 5


def exact_share(name: str, mask: Tensor) -> Row:
    """A share with its exact 95 % interval, in columns named after `name`."""
    hits, count = int(mask.sum()), len(mask)
    ends = binomtest(hits, count).proportion_ci()
    return interval_row(name, hits / count, (float(ends.low), float(ends.high)))


def paired_tau_difference(
    first: Tensor, second: Tensor, margins: Tensor
) -> tuple[float, float]:
    """Difference of how well two scores order margins, and its standard error.

    Kendall's τ-b of the first with the margins minus that of the second; its standard
    error is by the asymptotic theory of U-statistics: from the differences, sample by
    sample, of the shares of concordant pairs.
    """
    by_margin = ranks(margins.double().numpy())
    parts, taus = [], []
    for score in (first, second):
        by_score = ranks(score.double().numpy())
        signs = concordance(by_score, by_margin)
        untied = [
            float(len(signs) ** 2 - np.square(np.bincount(order)).sum())
            for order in (by_score, by_margin)
        ]
        scale = math.sqrt(untied[0] * untied[1])
        taus.append(float(signs.sum()) / scale)
        parts.append(signs * len(signs) / scale)
    spread = float(np.std(parts[0] - parts[1], ddof=1))
    return taus[0] - taus[1], 2 * spread / math.sqrt(len(first))


def tau_row(name: str, scores: Tensor, margins: Tensor) -> Row:
    """How well scores order margins: τ, in columns named after `name`."""
    order = margin_consistency(scores, margins)
    return interval_row(name, order.tau, order.interval)


def difference_row(first: Tensor, second: Tensor, margins: Tensor) -> Row:
    """By how much the first scores order margins better, with a 95 % interval."""
    difference, error = paired_tau_difference(first, second, margins)
    ends = difference - 1.96 * error, difference + 1.96 * error
    return interval_row("tau_difference", difference, ends)


def detection_row(values: Tensor, bounds: Tensor, eps: float) -> Row:
    """How well a score detects brittle decisions, with 95 % intervals.

    Columns ``auroc``, ``aupr``, both also with ``_low`` and ``_high``, and ``fpr95``;
    None where fewer than five decisions are brittle, or fewer than five are not.
    """
    brittle = int((bounds <= eps).sum())
    known = FEWEST <= brittle <= len(bounds) - FEWEST
    scores = detection_scores(values, bounds, eps, resamples=400) if known else None
    row: Row = {}
    for name in ("auroc", "aupr"):
        ends = getattr(scores, f"{name}_interval", (None, None))
        row |= interval_row(name, getattr(scores, name, None), ends)
    return {**row, "fpr95": getattr(scores, "fpr", None)}


def detections(values: Tensor, bounds: Tensor, setting: MarginSetting) -> Iterator[Row]:
    """How well a score detects brittle decisions at every bound of a setting."""
    for eps in setting.eps:
        yield {
            "what": "detection",
            "eps": eps,
            "usual": eps == setting.focus,
            "brittle": float((bounds <= eps).double().mean()),
            **detection_row(values, bounds, eps),
        }


def robust_rows(
    correct: Tensor, bounds: Tensor, setting: MarginSetting
) -> Iterator[Row]:
    """Robust accuracy and the share of brittle decisions at every bound."""
    for eps in setting.eps:
        yield {
            "what": "robust",
            "eps": eps,
            "usual": eps == setting.focus,
            **exact_share("robust_accuracy", correct & (bounds > eps)),
            "brittle": float((bounds <= eps).double().mean()),
        }
