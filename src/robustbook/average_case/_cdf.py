"""From margins and their covariance to probabilities, by either function."""

from __future__ import annotations

from typing import Final, Literal

import torch
from torch import Tensor

from robustbook._checks.arguments import check_count
from robustbook.average_case._linearize import linear_probability, standardized_margins
from robustbook.average_case._result import Robustness, squeeze
from robustbook.average_case._sigmoid import mv_sigmoid

Cdf = Literal["mvn", "mv_sigmoid"]
CDFS: Final = ("mvn", "mv_sigmoid")


def check_cdf(cdf: str) -> None:
    """Refuse another name."""
    if cdf not in CDFS:
        raise ValueError(f"cdf: expected one of {', '.join(CDFS)}; got {cdf!r}")


def check_integration(points: int, seed: int) -> None:
    """Refuse what is no power of 2, or no seed."""
    check_count("points", points)
    if points & (points - 1):
        raise ValueError(f"points: expected a power of 2, got {points}")
    check_count("seed", seed, minimum=0)


def apply_cdf(
    cdf: Cdf, margins: Tensor, gram: Tensor, sigmas: Tensor, points: int, seed: int
) -> tuple[Tensor, Tensor]:
    """Probabilities (S, n) and their standard errors."""
    if cdf == "mv_sigmoid":
        probability = mv_sigmoid(standardized_margins(margins, gram, sigmas))
        return probability, torch.zeros_like(probability)
    found = linear_probability(margins, gram, sigmas, seed=seed, points=points)
    return found.probability, found.standard_error


def summarize(
    probability: Tensor,
    error: Tensor,
    labels: Tensor,
    sigma: Tensor,
    method: str,
    calls: int,
    home: torch.device,
) -> Robustness:
    """The result, on the caller's device; with one sigma without its dimension."""
    probability = squeeze(probability, sigma).to(home)
    return Robustness(
        probability=probability,
        standard_error=squeeze(error, sigma).to(home),
        labels=labels.to(home),
        sigma=sigma,
        method=method,
        calls=torch.full_like(probability, calls, dtype=torch.int64),
    )
