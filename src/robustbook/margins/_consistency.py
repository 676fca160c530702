"""Margin consistency: the rank correlation of two margins."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from scipy import stats

from robustbook._checks.arguments import check_count
from robustbook.margins._arrays import Vector, check_level, check_vector
from robustbook.margins._docs import DOCS
from robustbook.margins._kendall import ranks, tau_b

Interval = Literal["asymptotic", "bootstrap"]


@dataclass(frozen=True)
class Consistency:
    """How well one margin orders samples as another does.

    Attributes
    ----------
    tau : float
        Kendall's τ-b, in [-1, 1].
    interval : tuple of float
        Confidence interval for it.
    standard_error : float
        Of ``tau``. 0 where all pairs agree: then no disagreement was seen, which is
        no proof that there is none.
    spearman : float
        Spearman's ρ.
    num_samples : int
        N.
    level : float
        Coverage of the interval.
    method : {"asymptotic", "bootstrap"}
        How the interval was made.
    """

    tau: float
    interval: tuple[float, float]
    standard_error: float
    spearman: float
    num_samples: int
    level: float
    method: Interval


@DOCS.fill
def margin_consistency(
    logit_margin: Any,
    input_margin: Any,
    *,
    level: float = 0.95,
    method: Interval = "asymptotic",
    resamples: int = 1000,
    seed: int = 0,
) -> Consistency:
    """Kendall's τ-b of two margins, with a confidence interval.

    Parameters
    ----------
    {logit_margin} {input_margin} {level}
    method : {"asymptotic", "bootstrap"}, default "asymptotic"
        The delta method for U-statistics, ties counted, on the scale of Fisher's z;
        or percentiles over resamples.
    {resamples} {seed}

    Returns
    -------
    Consistency
        τ-b, its interval and standard error; Spearman's ρ.

    Raises
    ------
    {TypeError, ValueError}
    ValueError
        If there are fewer than three samples, or all values of one margin are equal.

    Notes
    -----
    The interval is for the sampling of inputs. That measured margins are upper
    bounds is not in it.

    References
    ----------
    Margin paper, section 2.2. Chapter 23 of this book.

    Examples
    --------
    >>> result = margin_consistency([1.0, 2.0, 4.0, 3.0], [0.1, 0.2, 0.3, 0.3])
    >>> round(result.tau, 4)
    0.9129
    """
    x = check_vector("logit_margin", logit_margin)
    y = check_vector("input_margin", input_margin, length=len(x))
    check_level(level)
    check_count("resamples", resamples, minimum=100)
    check_count("seed", seed, minimum=0)
    if method not in ("asymptotic", "bootstrap"):
        raise ValueError(
            f"method: expected 'asymptotic' or 'bootstrap', got {method!r}"
        )
    if len(x) < 3:
        raise ValueError(f"logit_margin: expected at least three samples, got {len(x)}")
    for name, values in (("logit_margin", x), ("input_margin", y)):
        if (values == values[0]).all():
            raise ValueError(
                f"{name}: expected at least two different values, got {values[0]:g} "
                f"{len(values)} times; a rank correlation is not defined"
            )
    tau, error = tau_b(x, y)
    if method == "asymptotic":
        interval = _fisher(tau, error, len(x), level)
    else:
        interval, error = _bootstrap(x, y, level, resamples, seed)
    # Of ranks: differences of infinite margins are not numbers.
    spearman = float(stats.pearsonr(stats.rankdata(x), stats.rankdata(y)).statistic)
    return Consistency(tau, interval, error, spearman, len(x), level, method)


def _fisher(tau: float, error: float, count: int, level: float) -> tuple[float, float]:
    """Symmetric on the scale of atanh, so it stays within [-1, 1]."""
    if abs(tau) == 1 or error == 0:
        return tau, tau
    half = float(stats.t.ppf(0.5 + level / 2, count - 1)) * error / (1 - tau**2)
    return math.tanh(math.atanh(tau) - half), math.tanh(math.atanh(tau) + half)


def _bootstrap(
    x: Vector, y: Vector, level: float, resamples: int, seed: int
) -> tuple[tuple[float, float], float]:
    random = np.random.default_rng(seed)
    first, second = ranks(x), ranks(y)
    taus = []
    for _ in range(resamples):
        rows = random.integers(len(x), size=len(x))
        taus.append(stats.kendalltau(first[rows], second[rows]).statistic)
    # A resample of equal values has no correlation.
    low, high = np.nanquantile(taus, [(1 - level) / 2, (1 + level) / 2])
    return (float(low), float(high)), float(np.nanstd(taus, ddof=1))
