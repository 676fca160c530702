"""Pictures of agreement. They need matplotlib, which only they import."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from scipy.interpolate import CubicHermiteSpline
from torch import Tensor

from robustbook._checks.extras import extra

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from robustbook.agreement._result import Agreement

#: Points of a curve, and how far below zero it is followed, in units of its height.
_POINTS = 400
_BELOW = 0.3


def plot_kernel(
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
    pa = torch.stack([values["pa"] for values in measurements]).cpu()
    error = torch.stack([values["standard_error"] for values in measurements]).cpu()
    axes.errorbar(
        np.arange(len(pa)), pa, yerr=1.96 * error.nan_to_num(), marker="o", capsize=3
    )
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
