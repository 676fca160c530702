"""How often the error bars of the integration hold the truth, cell by cell.

The margins of each cell have one common factor, so that the truth is an integral over
one variable. Each draw is another seed of the points; no two problems are pooled.
"""

import math
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor

from robustbook.average_case import mmse, orthant_probability, taylor
from robustbook.average_case.parts import joint_probability

_NOMINAL: Final = 0.95
_SCRAMBLES: Final = 8
#: The size of a variance of 0 after rounding.
_TOLERANCE: Final = 1e-13
#: Points of each scramble by default.
_POINTS: Final = {"orthant_probability": 1024, "taylor": 128, "mmse": 128}


class Cell(NamedTuple):
    """Margins in standard deviations, and their loadings on the common factor."""

    regime: str
    limits: Tensor
    loadings: Tensor

    @property
    def correlation(self) -> Tensor:
        """Correlations of the margins (D, D)."""
        return (self.loadings[:, None] * self.loadings).fill_diagonal_(1)

    def failure(self) -> float:
        """Probability that at least one margin is negative, by the trapezoidal rule."""
        factor = torch.linspace(-12, 12, 96_001, dtype=torch.float64)
        spread = (1 - self.loadings.square()).sqrt()[:, None]
        means = self.limits[:, None] + self.loadings[:, None] * factor
        kept = torch.special.log_ndtr(means / spread).sum(dim=0)
        density = torch.exp(-factor.square() / 2) / math.sqrt(2 * math.pi)
        return float(torch.trapezoid(-torch.expm1(kept) * density, factor))

    def logits(self, x: Tensor) -> Tensor:
        """Logits (n, D + 1) of the linear model with these margins at x = 0."""
        independent = (1 - self.loadings.square()).sqrt()
        margins = self.limits + self.loadings * x[:, :1] + independent * x[:, 1:]
        return torch.cat([torch.zeros_like(margins[:, :1]), -margins], dim=1)


def cells(dimension: int) -> list[Cell]:
    """Cells of one dimension: ordinary, correlated, nearly singular and rare ones."""
    steps = torch.linspace(0, 1, dimension, dtype=torch.float64)
    generator = torch.Generator().manual_seed(dimension)
    mixed = torch.rand(dimension, generator=generator, dtype=torch.float64) * 2 - 1
    settings = {
        "ordinary": (0.5 + 2 * steps, 0.5),
        "correlated": (1.5 + 0.3 * steps, 0.9),
        "nearly singular": (2 + 0 * steps, 0.9999),
        "rare, correlated": (3.3 + steps, 0.9),
        "rare, nearly singular": (3 + 0.3 * steps, 0.99),
        "very rare": (3.8 + 0.3 * steps, 0.973),
    }
    made = [
        Cell(f"{regime}, {dimension} constraints", h, torch.full_like(h, rho).sqrt())
        for regime, (h, rho) in settings.items()
    ]
    regime = f"mixed signs, {dimension} constraints"
    return [*made, Cell(regime, 2 + steps, 0.99 * mixed)]


def integration_cells(seed: int, draws: int, full: bool) -> list[dict[str, Any]]:
    """Coverage of ``failure`` ± 1.96 standard errors over `draws` seeds of the points.

    ``before`` is that of all constraints integrated together, as before the failures
    were taken apart, with the same points; ``width_ratio`` compares the median widths.
    """
    rows = []
    for measure, points in _POINTS.items():
        sizes = (3, 9, 30) if measure == "orthant_probability" else (3, 9)
        for dimension in sizes if full else sizes[:2]:
            for cell in cells(dimension)[:: 1 if full else 2]:
                rows.append(_row(measure, cell, points, seed, draws))
    return rows


def _row(
    measure: str, cell: Cell, points: int, seed: int, draws: int
) -> dict[str, Any]:
    truth, problem = cell.failure(), (cell.limits[None], cell.correlation[None])
    now, before = [], []
    for draw in range(seed * draws, (seed + 1) * draws):
        now.append(_estimate(measure, cell, points, draw))
        kept, error = joint_probability(*problem, points, draw, _TOLERANCE)
        before.append((1 - float(kept), float(error)))
    coverage, width = _coverage(now, truth)
    earlier, earlier_width = _coverage(before, truth)
    return {
        "measure": measure,
        "regime": cell.regime,
        "n": _SCRAMBLES * points,
        "nominal": _NOMINAL,
        "coverage": coverage,
        "error": math.sqrt((coverage * (1 - coverage) + 1 / draws) / draws),
        "width_ratio": width / earlier_width if earlier_width else math.nan,
        "before": earlier,
    }


def _estimate(measure: str, cell: Cell, points: int, seed: int) -> tuple[float, float]:
    result: Any
    x = torch.zeros(1, 1 + len(cell.limits), dtype=torch.float64)
    options: dict[str, Any] = {"seed": seed, "batch_size": 8}
    if measure == "orthant_probability":
        problem = cell.limits, cell.correlation
        result = orthant_probability(*problem, points=points, seed=seed)
    elif measure == "taylor":
        result = taylor(cell.logits, x, 1.0, **options)
    else:  # A pair of opposite noise fits a linear model exactly.
        result = mmse(cell.logits, x, 1.0, samples=2, **options)
    return float(result.failure), float(result.standard_error)


def _coverage(
    estimates: list[tuple[float, float]], truth: float
) -> tuple[float, float]:
    """Share of the intervals that hold the truth, and the median standard error."""
    values, errors = torch.tensor(estimates, dtype=torch.float64).unbind(dim=1)
    inside = (values - truth).abs() <= 1.959964 * errors + 1e-9 * truth
    return float(inside.double().mean()), float(errors.median())
