"""The result of a measurement and its pictures, and the difference between two."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from scipy.interpolate import CubicHermiteSpline
from torch import Tensor

from robustbook._checks.arguments import check_level
from robustbook._checks.extras import extra
from robustbook.agreement._docs import SHARED
from robustbook.agreement._hard_decisions import (
    agreement_interval,
    lower_end,
    student_half_width,
    symmetric_channel_capacity,
)
from robustbook.agreement.solver import ALONE, SearchTrace, Shards, open_kernel

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from pandas import DataFrame

#: Inverse temperatures of a plot, around the scale of the logits, in decades.
_DECADES = (-1.5, 2.5)
_PER_DECADE = 6
#: Points of a curve, and how far below zero it is followed, in units of its height.
_POINTS = 400
_BELOW = 0.3


@dataclass(frozen=True, eq=False)
class Agreement:
    """Posterior agreement with its certificate.

    Attributes
    ----------
    pa : float
        Posterior agreement in nats per sample, in [0, (m - 1) log K] for m views and
        a uniform prior.
    beta : float
        Inverse temperature of the maximum, in units of 1/logit; may be ``inf``.
    upper_bound : float
        Upper bound on sup J, in nats per sample, proven in exact arithmetic; with
        an allowance for rounding (Chapter 7).
    evaluations : int
        Inverse temperatures at which the search evaluated the kernel.
    per_sample : Tensor, shape (N,)
        Contribution of every sample at ``beta``, in nats, float64; the mean is
        ``pa``. With a group, those of this process.
    num_samples, num_classes, num_views : int
        N (of all processes), K and m.
    mismatch : float
        Share of samples on which not all predictions (first argmax) coincide.
    hard_part : float
        The agreement of the predictions alone, without confidences (nats): for two
        views without a prior, :func:`symmetric_channel_capacity` at ``mismatch``.
    standard_error : float
        Standard error of ``pa`` over the sampling of samples, in nats: that of the mean
        of ``per_sample``, by the envelope theorem. Zero when all contributions are
        equal: nothing was *seen* to vary, which is no proof that nothing does. No
        interval follows from it near chance, nor where fewer than some twenty answers
        change: of 200 pairs of hard answers of which one in a thousand changes,
        ``pa ± 1.96 standard_error`` holds the truth in 18 % of samples (Chapter 8).
        NaN for a single sample.
    contradiction_loss : float
        How much a contradiction, a sample of negative contribution, costs beside the
        others, in nats: the mean over contradictions, each weighted by its cost. One
        more than were seen counts among them, at the cost that it has among hard
        answers. The lower end of :meth:`interval` needs it.
    trace : SearchTrace
        Every step of the search.

    Examples
    --------
    >>> from robustbook.agreement import posterior_agreement
    >>> result = posterior_agreement(torch.eye(4), torch.eye(4)[[0, 1, 2, 0]])
    >>> result.to_frame()[["pa", "beta", "mismatch"]].round(4)
           pa    beta  mismatch
    0  0.5493  2.9337      0.25
    >>> figure, axes = result.plot()
    """

    pa: float
    beta: float
    upper_bound: float
    evaluations: int
    per_sample: Tensor = field(repr=False)
    num_samples: int
    num_classes: int
    num_views: int
    mismatch: float
    hard_part: float
    standard_error: float
    contradiction_loss: float = field(repr=False)
    trace: SearchTrace = field(repr=False)

    @property
    def passes(self) -> int:
        """Passes over the data: for statistics, and with one or more evaluations."""
        return self.trace.passes

    @property
    def gap(self) -> float:
        """``upper_bound - pa``: at most the ``tol`` that was asked for."""
        return self.upper_bound - self.pa

    @property
    def log_pa(self) -> float:
        """The papers' scale: N (pa - (m - 1) log K) for m views.

        In [-N (m - 1) log K, 0] for a uniform prior.
        """
        most = (self.num_views - 1) * math.log(self.num_classes)
        return self.num_samples * (self.pa - most)

    @property
    def confidence_part(self) -> float:
        """``pa - hard_part``: what confidences add (or, if negative, take away)."""
        return self.pa - self.hard_part

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Confidence interval for ``pa`` over the sampling of samples, in nats.

        For hard answers of two views it is Wilson's interval for the mismatch, mapped
        by :func:`symmetric_channel_capacity` and as much wider as Student's quantile is
        than the normal one. It has a width where no answer changed. For soft answers it
        is a heuristic, whose coverage Chapter 41 measures: the upper half is that of
        hard answers, scaled by how much the contributions vary beside theirs, and for
        more views or with a prior it is Student's; the lower half is of Wilson's kind:
        the more contradictions it supposes, each at a cost of ``contradiction_loss``,
        the more their number may vary.

        Parameters
        ----------
        level : float, default 0.95
            Coverage, strictly between 0 and 1.

        Returns
        -------
        (float, float)
            At least 0, and at most (m - 1) log K for a uniform prior.

        Raises
        ------
        TypeError, ValueError
            If `level` is no number strictly between 0 and 1.

        References
        ----------
        Wilson, 1927; Brown, Cai and DasGupta, *Statistical Science*, 2001; Chapter 8.

        Examples
        --------
        No answer of a hundred changed, which is no proof that none does:

        >>> from robustbook.agreement import posterior_agreement
        >>> answers = torch.eye(2).repeat(50, 1)
        >>> result = posterior_agreement(answers, answers)
        >>> "{:.2f} to {:.2f}".format(*result.interval())
        '0.53 to 0.69'
        """
        coverage = check_level(level)
        most = (self.num_views - 1) * math.log(self.num_classes)
        hard = symmetric_channel_capacity(self.mismatch, self.num_classes)
        count, loss = self.num_samples, self.contradiction_loss
        if self.num_views == 2 and math.isclose(hard, self.hard_part, abs_tol=1e-12):
            low, high = agreement_interval(
                self.pa, self.standard_error, self.mismatch, count,
                self.num_classes, coverage, loss,
            )  # fmt: skip
        else:
            low = lower_end(self.pa, self.standard_error, count, coverage, loss)
            high = self.pa + student_half_width(self.standard_error, count, coverage)
            most = max(most, high)
        if math.isnan(low) or math.isnan(high):
            return 0.0, most
        return max(0.0, low), min(most, high)

    @SHARED.fill
    def plot(
        self,
        logits: Any = None,
        shifted_logits: Any = None,
        *more: Any,
        prior: Any = None,
        ax: Axes | None = None,
    ) -> tuple[Figure, Axes]:
        """Draw the agreement kernel J over beta, and mark its optimum.

        Parameters
        ----------
        logits, shifted_logits, *more : tensor or array, shape (N, K), optional
            What was measured, for a finer curve. Without them it goes through what
            the search evaluated: points that are dense at the optimum only, few or
            none where all predictions agree.
        prior : tensor or array, shape (K,), optional
            As it was measured.
        {ax}

        Returns
        -------
        {figure} {axes}

        Raises
        ------
        {ImportError}
        TypeError, ValueError
            If the logits are not those that were measured.
        """
        points = [(step.beta, step.value, step.slope) for step in self.trace.steps]
        if logits is not None or shifted_logits is not None:
            kernel = open_kernel(logits, shifted_logits, *more, prior=prior)
            check_same_pairs(self, kernel.num_samples, kernel.num_classes)
            low, high = (_PER_DECADE * end for end in _DECADES)
            for place in range(int(low), int(high) + 1):
                beta = 10 ** (place / _PER_DECADE) / kernel.scale
                point = kernel.evaluate(beta)
                if point.value > self.upper_bound:
                    raise ValueError(
                        f"logits: expected those that were measured, with J of at "
                        f"most {self.upper_bound:g}, got {point.value:g} at "
                        f"beta={beta:g}"
                    )
                points.append((beta, point.value, point.slope))
        return _plot_kernel(self, points, ax)

    @SHARED.fill
    def to_frame(self) -> DataFrame:
        """Return the scalars as one row of a pandas table, to concatenate.

        {ImportError}
        """
        with extra("plot"):
            from pandas import DataFrame
        names = (
            "pa", "standard_error", "beta", "upper_bound", "gap", "log_pa", "mismatch",
            "hard_part", "confidence_part", "num_samples", "num_classes", "evaluations",
        )  # fmt: skip
        return DataFrame([{name: getattr(self, name) for name in names}])


@dataclass(frozen=True, eq=False)
class AgreementComparison:
    """Difference in posterior agreement of two models on the same pairs.

    Attributes
    ----------
    a, b : Agreement
        The two measurements.
    difference : float
        ``a.pa - b.pa``, in nats per sample.
    standard_error : float
        Of the difference, from the paired contributions.
    interval : (float, float)
        Confidence interval at `level`, by Zou's method: each side of it joins one side
        of the two intervals of the models, as far as their contributions do not vary
        together (*Psychological Methods*, 2007).
    level : float
        Coverage of the interval.
    """

    a: Agreement
    b: Agreement
    difference: float
    standard_error: float
    interval: tuple[float, float]
    level: float


@dataclass(frozen=True, eq=False)
class CertifiedAgreement:
    """A posterior agreement with its bound.

    Attributes
    ----------
    pa : float
        Posterior agreement, in nats per sample.
    beta : float
        Inverse temperature of the maximum; may be ``inf``.
    upper_bound : float
        Proven upper bound on sup J.
    per_sample : Tensor, shape (N,)
        Contribution of every sample at ``beta``; the mean is ``pa``.
    """

    pa: float
    beta: float
    upper_bound: float
    per_sample: Tensor = field(repr=False)

    @property
    def gap(self) -> float:
        """``upper_bound - pa``: at most ``tol``; 0 where both are infinite."""
        return 0.0 if self.pa == self.upper_bound else self.upper_bound - self.pa

    @property
    def standard_error(self) -> float:
        """Standard error of ``pa`` over the sampling of samples, in nats."""
        return standard_error_of_mean(self.per_sample)


def interval_of_difference(
    a: Agreement, b: Agreement, level: float
) -> tuple[float, float]:
    """Zou's interval for a.pa - b.pa, of two measurements on the same pairs."""
    own = torch.stack([one.per_sample for one in (a, b)])
    correlation = math.nan
    if own.shape[1] > 1:
        own = own - own.mean(1, keepdim=True)
        products = (own @ own.T).cpu()
        correlation = float(products[0, 1] / products.diagonal().prod().sqrt())
    if math.isnan(correlation):
        correlation = 0.0  # one of them does not vary

    def joined(one: float, other: float) -> float:
        square = one**2 + other**2 - 2 * correlation * one * other
        return math.sqrt(max(0.0, square))

    (low_a, high_a), (low_b, high_b) = a.interval(level), b.interval(level)
    value = a.pa - b.pa
    low = value - joined(a.pa - low_a, high_b - b.pa)
    return low, value + joined(high_a - a.pa, b.pa - low_b)


def check_same_pairs(result: Agreement, num_samples: int, num_classes: int) -> None:
    """Refuse logits of other pairs than the measured ones, by their number."""
    measured = len(result.per_sample), result.num_classes
    if (num_samples, num_classes) != measured:
        raise ValueError(
            f"logits: expected shape {measured}, as in the result, got "
            f"{(num_samples, num_classes)}"
        )


def standard_error_of_mean(contributions: Tensor, shards: Shards = ALONE) -> float:
    count, total = shards.reduce(
        lambda: [float(len(contributions)), float(contributions.sum())],
        [math.fsum, math.fsum],
    )
    if count < 2:
        return math.nan
    deviations = contributions - total / count
    (squares,) = shards.reduce(lambda: [float(deviations.square_().sum())])
    return math.sqrt(squares / (count - 1) / count)


def contradiction_loss(
    contributions: Tensor, num_classes: int, num_views: int, shards: Shards = ALONE
) -> float:
    """See :class:`Agreement`."""
    negative = contributions[contributions < 0]
    count, total, number, own, squares = shards.reduce(
        lambda: [
            float(len(contributions)), float(contributions.sum()),
            float(len(negative)), float(negative.sum()), float(negative.square().sum()),
        ],
        [math.fsum] * 5,
    )  # fmt: skip
    others = (total - own) / max(1.0, count - number)
    costs = number * others - own
    squares += number * others**2 - 2 * others * own
    odds = (num_classes - 1) * (count - number - 1) / (number + 1)
    unseen = (num_views - 1) * math.log(odds) if odds > 1 else 0.0
    costs += unseen
    return (squares + unseen**2) / costs if costs > 0 else 0.0


def _plot_kernel(
    result: Agreement, points: Sequence[tuple[float, float, float]], ax: Axes | None
) -> tuple[Figure, Axes]:
    """Draw J over beta through points (beta, J, slope), and mark the optimum."""
    figure, axes = axes_for(ax)
    start = result.trace.value_at_zero
    floor = start - _BELOW * max(result.pa - start, 1e-3)
    # Of equal points one is enough: the interpolation wants betas that grow.
    points = sorted({point[0]: point for point in points if point[0] > 0}.values())
    if points:
        betas, values, slopes = np.array(points).T
        # Without a prior J starts flat. In log beta a peak looks alike at every scale.
        rise = 0.0 if start == 0.0 else (values[0] - start) / betas[0]
        left = CubicHermiteSpline([0, betas[0]], [start, values[0]], [rise, slopes[0]])
        grid = np.linspace(0, betas[0], _POINTS)
        curve = left(grid)
        if len(points) > 1:
            right = CubicHermiteSpline(np.log(betas), values, betas * slopes)
            outer = np.geomspace(betas[0], betas[-1], _POINTS)
            grid = np.append(grid, outer)
            curve = np.append(curve, right(np.log(outer)))
        axes.plot(grid[curve > floor], curve[curve > floor], color="C0", label="J(β)")
        shown = values > floor
        axes.plot(betas[shown], values[shown], "o", color="C0", markersize=3)
        axes.set_xscale("asinh", linear_width=float(betas[0]))
        low, high = np.log10(betas[[0, -1]])
        axes.set_xticks([0.0, *10.0 ** np.arange(np.ceil(low + 0.3), high)])
        axes.set_xlim(left=0.0)
    label = f"PA = {result.pa:.4g} at β = {result.beta:.3g}"
    if np.isinf(result.beta):
        label = f"PA = {result.pa:.4g} for β to infinity"
        axes.axhline(result.pa, color="C1", linestyle="--", label=label)
    else:
        axes.plot([result.beta], [result.pa], "o", color="C1", label=label)
    axes.set_ylim(bottom=floor)
    axes.set_xlabel("inverse temperature β (1 / logit)")
    axes.set_ylabel("agreement J (nats per sample)")
    axes.legend()
    return figure, axes


def plot_measurements(
    measurements: Sequence[Mapping[str, Tensor]], ax: Axes | None
) -> tuple[Figure, Axes]:
    """Draw PA with intervals of 95 % over the steps of training, or one of them."""
    figure, axes = axes_for(ax)
    pa, low, high = (
        torch.stack([values[name] for values in measurements]).cpu()
        for name in ("pa", "low", "high")
    )
    steps = np.arange(len(pa))
    ends = torch.stack([pa - low, high - pa]).clamp(min=0)
    axes.errorbar(steps, pa, yerr=ends, marker="o", capsize=3)
    axes.set_xlabel("step")
    axes.get_xaxis().set_visible(len(pa) > 1)
    axes.set_ylabel("PA (nats per sample)")
    return figure, axes


def axes_for(ax: Axes | None) -> tuple[Any, Axes]:
    """The axes to draw on, and their figure."""
    if ax is not None:
        return ax.get_figure(), ax
    with extra("plot"):
        import matplotlib.pyplot as plt
    return plt.subplots()
