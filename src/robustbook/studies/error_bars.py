"""How often the intervals of the package hold the truth, cell by cell.

Each cell is one kind of interval in one regime, nominally of 95 %. Hard answers are
counted, number by number of changed ones; everything else is drawn again and again from
a distribution whose truth is known, or measured on a very large sample.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from scipy import stats
from torch import Tensor

from robustbook._comparison import paired_means, paired_rates
from robustbook.agreement import (
    compare_agreement,
    posterior_agreement,
    symmetric_channel_capacity,
)
from robustbook.average_case import monte_carlo
from robustbook.margins import (
    detection_scores,
    estimate_robust_accuracy,
    margin_consistency,
)
from robustbook.studies._integration_coverage import integration_cells
from robustbook.studies.run import Row, Run, Setting

Array = npt.NDArray[Any]
Interval = tuple[float, float]
#: An interval, and the normal one around the same estimate, if there is one.
Pair = tuple[Interval, Interval | None]
Draw = Callable[[np.random.Generator], Pair]

_NOMINAL: Final = 0.95
_Z: Final = 1.959964
#: The 95 % quantile of the brittle scores.
_AT_95: Final = float(stats.norm.ppf(0.95))
_PRIOR: Final = torch.tensor([0.3, 0.2, *[0.0625] * 8], dtype=torch.float64)


@dataclass(frozen=True, kw_only=True)
class CoverageSetting(Setting):
    """How many samples are drawn for each cell, and whether of all sizes."""

    kind: ClassVar[str] = "made up"
    draws: int
    full: bool


SETTINGS: Final = {
    "quick": (CoverageSetting(dataset="", draws=10, full=False),),
    "full": (CoverageSetting(dataset="", draws=400, full=True),),
}


class Cell(NamedTuple):
    """An interval in a regime, the truth there, and how to draw a sample of n."""

    measure: str
    regime: str
    n: int
    truth: float
    draw: Draw


def parts(run: Run[CoverageSetting]) -> list[tuple[str]]:
    """The families of intervals, by name."""
    return [(name,) for name in ("hard answers", *_FAMILIES, "integration")]


def measure(run: Run[CoverageSetting], name: str) -> Iterator[Row]:
    """Yield a row for each cell of a family.

    Columns ``measure``, ``regime``, ``n`` (samples), ``nominal``, ``coverage``, its
    Monte Carlo ``error``, 0 where it is counted, and ``before``: the coverage of
    ± 1.96 standard errors, of the integration that of all constraints together; with
    ``width_ratio``, the mean width over that one's. Both None where there is none.
    """
    setting = run.setting
    if name == "hard answers":
        yield from _counted(setting)
    elif name == "integration":
        draws = max(5, setting.draws // 4)  # they take a tenth of a second
        yield from integration_cells(run.seed, draws, setting.full)
    else:
        for cell in _FAMILIES[name](setting.full):
            yield _simulated(cell, setting.draws, run.seed)


def _counted(setting: CoverageSetting) -> Iterator[Row]:
    """Rows of one-hot answers, of which a share differs: by the binomial law."""
    sizes = [(2, 10), (2, 200), (10, 10), (10, 30), (10, 200)]
    more = [(2, 30), (2, 1000), (10, 1000), (1000, 30), (1000, 200)]
    rates = (0.0, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.35, 0.5)
    for classes, n in [*sizes, *more] if setting.full else sizes:
        clean, numbers, pairs = torch.zeros(n, classes), np.arange(n + 1), []
        clean[:, 0] = 1
        for changed in numbers:
            shifted = clean.clone()
            shifted[:changed, :2] = torch.tensor([0.0, 1.0])
            pairs.append(_with_normal(posterior_agreement(clean, shifted), "pa"))
        for rate in rates:
            truth = symmetric_channel_capacity(rate, classes)
            regime = f"K = {classes}, {rate:.1%} change"
            chance = stats.binom.pmf(numbers, n, rate)
            yield _row("PA, hard answers", regime, n, truth, pairs, chance)


def _simulated(cell: Cell, draws: int, seed: int) -> Row:
    random = np.random.default_rng([seed, *f"{cell[:3]}".encode()])
    return _row(*cell[:4], [cell.draw(random) for _ in range(draws)])


def _row(
    measure: str,
    regime: str,
    n: int,
    truth: float,
    pairs: list[Pair],
    chance: Array | None = None,
) -> Row:
    """How often intervals hold the truth: each with its chance, or drawn alike."""

    def mean(values: Array) -> float:
        return float(values.mean() if chance is None else chance @ values)

    def coverage_and_width(ends: Array) -> tuple[float, float]:
        held = (ends[:, 0] - 1e-8 <= truth) & (truth <= ends[:, 1] + 1e-8)
        return min(1.0, mean(held)), mean(np.ptp(ends, axis=1))

    share, width = coverage_and_width(np.array([ends for ends, _ in pairs]))
    row: Row = {"measure": measure, "regime": regime, "n": n, "nominal": _NOMINAL}
    variance = (share * (1 - share) + 1 / len(pairs)) / len(pairs)
    row |= {"coverage": share, "error": 0.0 if chance is not None else variance**0.5}
    normal = np.array([ends for _, ends in pairs if ends is not None])
    before = usual = None
    if len(normal):
        before, usual = coverage_and_width(normal)
    return row | {
        "before": before,
        "width_ratio": width / usual if usual is not None and usual > 1e-9 else None,
    }


def _with_normal(estimate: Any, value: str = "value") -> Pair:
    """The interval of an estimate, and the one of 1.96 standard errors around it."""
    ends, error = estimate.interval, estimate.standard_error
    half = 0.0 if math.isnan(error) else _Z * error
    centre = getattr(estimate, value)
    return (ends() if callable(ends) else ends), (centre - half, centre + half)


# ------------------------------------------------------------------- agreement


def _views(
    random: np.random.Generator, n: int, changes: float, views: int = 2
) -> list[Tensor]:
    """Logits of ten classes; a share changes to another confident answer."""
    label = random.integers(10, size=n)
    clean = random.normal(size=(n, 10))
    clean[np.arange(n), label] += random.choice([4.0, 8.0], size=n)
    made = [clean]
    for _ in range(views - 1):
        shifted = clean + 0.5 * random.normal(size=(n, 10))
        changed = np.flatnonzero(random.random(n) < changes)
        shifted[changed] = random.normal(size=(len(changed), 10))
        shifted[changed, (label[changed] + 1) % 10] += 8
        made.append(shifted)
    return [torch.tensor(view) for view in made]


def _true_agreement(
    full: bool, changes: float, views: int = 2, prior: Tensor | None = None
) -> float:
    """Return the agreement of a sample so large that its error is negligible."""
    random = np.random.default_rng(7)
    many = _views(random, 200_000 if full else 20_000, changes, views)
    return posterior_agreement(*many, prior=prior, tol=1e-7).pa


def _agreement(
    n: int,
    changes: float,
    views: int,
    prior: Tensor | None,
    random: np.random.Generator,
) -> Pair:
    made = _views(random, n, changes, views)
    return _with_normal(posterior_agreement(*made, prior=prior, tol=1e-6), "pa")


def _soft_answers(full: bool) -> Iterator[Cell]:
    views_of = {"soft answers": 2, "three views": 3, "with a prior": 2}
    for kind, views in views_of.items():
        prior = _PRIOR if kind == "with a prior" else None
        for changes in (0.003, 0.01, 0.05, 0.3) if full else (0.01, 0.3):
            truth = _true_agreement(full, changes, views, prior)
            for n in (30, 100, 300, 1000) if full else (30, 300):
                draw = partial(_agreement, n, changes, views, prior)
                yield Cell(f"PA, {kind}", f"{changes:.1%} change", n, truth, draw)


def _comparison(
    n: int, changes: tuple[float, float], random: np.random.Generator
) -> Pair:
    made = [view for share in changes for view in _views(random, n, share)]
    return _with_normal(compare_agreement(*made, tol=1e-6))


def _comparisons(full: bool) -> Iterator[Cell]:
    regimes = {"both change 1%": (0.01, 0.01), "both change 10%": (0.1, 0.1)}
    regimes["one changes 5%, one nothing"] = (0.05, 0.0)
    for regime, (first, second) in regimes.items():
        truth = _true_agreement(full, first) - _true_agreement(full, second)
        for n in (30, 100, 300, 1000) if full else (30, 300):
            draw = partial(_comparison, n, (first, second))
            yield Cell("difference of PA", regime, n, truth, draw)


# ------------------------------------------------------------- rates and survival


def _two_rates(n: int, rates: Interval, random: np.random.Generator) -> Pair:
    first, second = (torch.tensor(random.random(n) < rate) for rate in rates)
    return _with_normal(paired_rates(first, second))


def _two_means(n: int, random: np.random.Generator) -> Pair:
    first, second = (torch.tensor(random.gamma(0.5, size=n)) for _ in range(2))
    return _with_normal(paired_means(first, second))


def _survival(n: int, failure: float, random: np.random.Generator) -> Pair:
    """Of a linear model of two classes, counted."""
    x = torch.tensor([[-float(stats.norm.ppf(failure))]], dtype=torch.float64)
    seed, label = int(random.integers(2**31)), torch.tensor([0])
    model = torch.nn.ConstantPad1d((0, 1), 0.0).eval()
    result = monte_carlo(model, x, 1.0, labels=label, samples=n, seed=seed)
    low, high = (float(end) for end in result.interval())
    share = float(result.probability)
    half = _Z * math.sqrt(share * (1 - share) / n)
    return (low, high), (share - half, share + half)


def _rates(full: bool) -> Iterator[Cell]:
    for n in (30, 100, 1000) if full else (30, 100):
        for first, second in ((0.99, 0.99), (0.99, 0.9), (0.6, 0.5)):
            regime, gap = f"{first:g} and {second:g}", first - second
            draw = partial(_two_rates, n, (first, second))
            yield Cell("difference of two rates", regime, n, gap, draw)
        draw = partial(_two_means, n)
        yield Cell("difference of two means", "long tails", n, 0.0, draw)
        for failure in (1e-4, 1e-2, 0.1, 0.4):
            regime, draw = f"{failure:g} fail", partial(_survival, n, failure)
            yield Cell("survival, counted", regime, n, 1 - failure, draw)


# --------------------------------------------------------------------- margins


def _detected(n: int, apart: float, name: str, random: np.random.Generator) -> Pair:
    """Scores of two normal distributions; one tenth of the decisions is brittle."""
    brittle = np.arange(n) < min(n - 1, max(1, random.binomial(n, 0.1)))
    scores = random.normal(size=n) + apart * ~brittle
    detected = detection_scores(scores, 1.0 - brittle, 0.5, resamples=100)
    ends: Interval = getattr(detected, f"{name}_interval")
    return ends, None


def _detection(full: bool) -> Iterator[Cell]:
    for apart in (1.0, 2.0, 4.0):
        # Precision of the threshold t, over the brittle decisions that lie below it.
        t = stats.norm.ppf((np.arange(100_000) + 0.5) / 100_000)
        true, false = 0.1 * stats.norm.cdf(t), 0.9 * stats.norm.cdf(t - apart)
        truths = {
            "AUROC": ("auroc", float(stats.norm.cdf(apart / math.sqrt(2)))),
            "average precision": ("aupr", float((true / (true + false)).mean())),
            "FPR at 95% TPR": ("fpr", float(stats.norm.cdf(_AT_95 - apart))),
        }
        for n in (100, 200, 400, 1000) if full else (100, 400):
            for title, (name, truth) in truths.items():
                regime = f"scores {apart:g} standard deviations apart"
                yield Cell(title, regime, n, truth, partial(_detected, n, apart, name))


def _tau(n: int, correlation: float, random: np.random.Generator) -> Pair:
    x, other = random.normal(size=(2, n))
    y = correlation * x + math.sqrt(1 - correlation**2) * other
    # Input margins are not negative; ranks are all that counts.
    return _with_normal(margin_consistency(x, np.exp(y)), "tau")


def _consistency(full: bool) -> Iterator[Cell]:
    for n in (5, 10, 30, 100, 500) if full else (10, 100):
        for correlation in (0.0, 0.7, 0.95):
            truth = 2 / math.pi * math.asin(correlation)
            draw = partial(_tau, n, correlation)
            yield Cell("Kendall's τ", f"correlation {correlation:g}", n, truth, draw)


class _TestSet(NamedTuple):
    scores: Array
    correct: Array
    margins: Array
    eps: float


def _sampled(n: int, data: _TestSet, name: str, random: np.random.Generator) -> Pair:
    """From n margins of a test set of 10 000."""
    chosen = random.permutation(len(data.scores))[:n]
    seed, margins = int(random.integers(2**31)), data.margins[chosen]
    result = estimate_robust_accuracy(*data[:2], chosen, margins, data.eps, seed=seed)
    return _with_normal(getattr(result, name))


def _robust_accuracy(full: bool) -> Iterator[Cell]:
    random = np.random.default_rng(10)
    margins = random.gamma(2, size=10_000)
    scores = margins + 0.3 * random.normal(size=10_000)
    correct = random.random(10_000) < 0.9
    for brittle in (0.005, 0.05, 0.4):
        eps = float(np.quantile(margins, brittle))
        data = _TestSet(scores, correct, margins, eps)
        truth = float((correct & (margins > eps)).mean())
        for n in (50, 200, 1000) if full else (50, 200):
            for title, name in (("plain", "plain"), ("difference", "design_based")):
                draw = partial(_sampled, n, data, name)
                title = f"robust accuracy, {title}"
                yield Cell(title, f"{brittle:.1%} brittle", n, truth, draw)


_FAMILIES: Final[dict[str, Callable[[bool], Iterator[Cell]]]] = {
    "soft answers": _soft_answers,
    "comparisons": _comparisons,
    "rates": _rates,
    "detection": _detection,
    "consistency": _consistency,
    "robust accuracy": _robust_accuracy,
}
