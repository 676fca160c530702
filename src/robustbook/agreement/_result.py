"""The result of a measurement, with its interval and its picture."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from torch import Tensor

from robustbook._checks.arguments import check_level
from robustbook._checks.extras import extra
from robustbook.agreement._uncertainty import (
    hard_agreement,
    interval_of_two_views,
    lower_end,
    student_half_width,
)
from robustbook.agreement.solver import SearchTrace, open_kernel

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from pandas import DataFrame

#: A plot evaluates J at these inverse temperatures, times the scale of the logits.
_PLOTTED: Final = [10 ** (step / 6) for step in range(-9, 16)]


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
        of ``per_sample``, by the envelope theorem; NaN for a single sample. It is zero
        when no contribution was seen to vary, and too small near chance and where fewer
        than some twenty answers change (Chapter 8): use :meth:`interval`.
    contradiction_loss : float
        How much a contradiction, a sample of negative contribution, costs compared with
        the others, in nats: the mean over contradictions, each weighted by its cost.
        One more contradiction than was seen is counted, at the cost that it has among
        hard answers. The lower end of :meth:`interval` depends on it.
    trace : SearchTrace
        Every step of the search.

    Examples
    --------
    >>> import torch
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
        """The papers' scale: N (pa - (m - 1) log K) for m views."""
        most = (self.num_views - 1) * math.log(self.num_classes)
        return self.num_samples * (self.pa - most)

    @property
    def confidence_part(self) -> float:
        """``pa - hard_part``: the contribution of confidences, of either sign."""
        return self.pa - self.hard_part

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Confidence interval for ``pa`` over the sampling of samples, in nats.

        For hard answers of two views it is Wilson's interval for the mismatch, mapped
        by :func:`symmetric_channel_capacity` and as much wider as Student's quantile is
        than the normal one. It has a width even where no answer changed. For soft
        answers it is a heuristic, whose coverage Chapter 42 measures. The upper half is
        that of hard answers, scaled by how much the contributions vary compared with
        theirs; for more views or with a prior it is Student's. The lower half is of
        Wilson's kind: the more contradictions it supposes, each at a cost of
        ``contradiction_loss``, the more their number may vary.

        Parameters
        ----------
        level : float, default 0.95
            Coverage, strictly between 0 and 1.

        Returns
        -------
        (float, float)
            At least 0, and at most (m - 1) log K for a uniform prior.

        References
        ----------
        Wilson, 1927; Brown, Cai and DasGupta, *Statistical Science*, 2001; Chapter 8.

        Examples
        --------
        No answer of a hundred changed, which is no proof that none does:

        >>> import torch
        >>> from robustbook.agreement import posterior_agreement
        >>> answers = torch.eye(2).repeat(50, 1)
        >>> result = posterior_agreement(answers, answers)
        >>> "{:.2f} to {:.2f}".format(*result.interval())
        '0.53 to 0.69'
        """
        coverage = check_level(level)
        most = (self.num_views - 1) * math.log(self.num_classes)
        hard = hard_agreement(self.mismatch, self.num_classes)
        count, loss = self.num_samples, self.contradiction_loss
        if self.num_views == 2 and math.isclose(hard, self.hard_part, abs_tol=1e-12):
            changes = self.mismatch, count, self.num_classes
            error = self.standard_error
            low, high = interval_of_two_views(self.pa, error, *changes, coverage, loss)
        else:
            low = lower_end(self.pa, self.standard_error, count, coverage, loss)
            high = self.pa + student_half_width(self.standard_error, count, coverage)
            most = max(most, high)
        if math.isnan(low) or math.isnan(high):
            return 0.0, most
        return max(0.0, low), min(most, high)

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
            The logits that were measured, for a finer curve. Without them it goes
            through the points that the search evaluated, most of them at the optimum.
        prior : tensor or array, shape (K,), optional
            The prior that was passed to the measurement.
        ax : matplotlib.axes.Axes, optional
            Where to draw; a new figure by default.

        Returns
        -------
        figure : matplotlib.figure.Figure
        axes : matplotlib.axes.Axes
        """
        if ax is None:
            with extra("plot"):
                import matplotlib.pyplot as plt
            _, ax = plt.subplots()
        start = self.trace.value_at_zero
        points = {step.beta: (step.value, step.slope) for step in self.trace.steps}
        if logits is not None or shifted_logits is not None:
            kernel = open_kernel(logits, shifted_logits, *more, prior=prior)
            measured = len(self.per_sample), self.num_classes
            given = kernel.num_samples, kernel.num_classes
            if given != measured:
                raise ValueError(
                    f"logits: expected shape {measured}, as in the result, got {given}"
                )
            if math.isinf(self.beta):
                value = -math.inf if kernel.limit is None else kernel.mean(kernel.limit)
            else:
                value = kernel.evaluate(self.beta).value
            if not math.isclose(value, self.pa, rel_tol=1e-6, abs_tol=1e-6):
                raise ValueError(
                    "logits: expected the logits and the prior that were measured, "
                    f"with J = {self.pa:g} at beta={self.beta:g}, got {value:g}"
                )
            for beta in (at / kernel.scale for at in _PLOTTED):
                point = kernel.evaluate(beta)
                points[beta] = point.value, point.slope
        points.pop(0.0, None)
        if points:
            _draw_curve(ax, start, points, start - 0.3 * max(self.pa - start, 1e-3))
        if math.isinf(self.beta):
            label = f"PA = {self.pa:.4g} for β to infinity"
            ax.axhline(self.pa, color="C1", linestyle="--", label=label)
        else:
            label = f"PA = {self.pa:.4g} at β = {self.beta:.3g}"
            ax.plot([self.beta], [self.pa], "o", color="C1", label=label)
        ax.set_xlabel("inverse temperature β (1 / logit)")
        ax.set_ylabel("agreement J (nats per sample)")
        ax.legend()
        return ax.get_figure(), ax  # type: ignore[return-value]

    def to_frame(self) -> DataFrame:
        """Return the scalars as one row of a pandas table, to concatenate."""
        with extra("plot"):
            from pandas import DataFrame
        names = (
            *("pa", "standard_error", "beta", "upper_bound", "gap", "log_pa"),
            *("mismatch", "hard_part", "confidence_part"),
            *("num_samples", "num_classes", "evaluations"),
        )
        return DataFrame([{name: getattr(self, name) for name in names}])


def _draw_curve(
    axes: Axes, start: float, points: dict[float, tuple[float, float]], floor: float
) -> None:
    """Draw J through its values and slopes at `points`, as far as it is above `floor`.

    The axis and the interpolation are linear in asinh(beta / width), in which peaks
    look alike at every scale.
    """
    from scipy.interpolate import CubicHermiteSpline

    betas = np.array([0.0, *sorted(points)])
    values, slopes = np.array([points[beta] for beta in betas[1:]]).T
    width = betas[1]
    # Without a prior J starts flat.
    rise = 0.0 if start == 0.0 else (values[0] - start) / width
    values, slopes = np.append(start, values), np.append(rise, slopes)
    places = np.arcsinh(betas / width)
    spline = CubicHermiteSpline(places, values, slopes * np.hypot(betas, width))
    grid = np.linspace(0, places[-1], 800)
    curve = spline(grid)
    shown = curve > floor
    axes.plot(width * np.sinh(grid[shown]), curve[shown], color="C0", label="J(β)")
    shown = values[1:] > floor
    axes.plot(betas[1:][shown], values[1:][shown], "o", color="C0", markersize=3)
    axes.set_xscale("asinh", linear_width=float(width))
    low, high = np.log10(betas[[1, -1]])
    axes.set_xticks([0.0, *10.0 ** np.arange(np.ceil(low + 0.3), high)])
    axes.set_xlim(left=0.0)
    axes.set_ylim(bottom=floor)
