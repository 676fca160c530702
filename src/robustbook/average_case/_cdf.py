"""From margins and their covariance to probabilities, by either function."""

from __future__ import annotations

from typing import Final, Literal

import torch
from torch import Tensor

from robustbook._checks.arguments import check_choice, check_count, check_power_of_two
from robustbook.average_case._linearize import linear_probability, standardized_margins
from robustbook.average_case._problem import Problem
from robustbook.average_case._result import Robustness, squeeze
from robustbook.average_case._sigmoid import mv_sigmoid

Cdf = Literal["mvn", "mv_sigmoid"]
CDFS: Final = ("mvn", "mv_sigmoid")


def check_integration(cdf: str, points: int, seed: int) -> None:
    """Refuse another function, a number that is no power of 2, what is no seed."""
    check_choice("cdf", cdf, CDFS)
    check_power_of_two("points", points)
    check_count("seed", seed, minimum=0)


def apply_cdf(
    cdf: Cdf, margins: Tensor, gram: Tensor, sigmas: Tensor, points: int, seed: int
) -> tuple[Tensor, Tensor]:
    """Probabilities (S, n) and their standard errors."""
    if cdf == "mv_sigmoid":
        probability = mv_sigmoid(standardized_margins(margins, gram, sigmas))
        return probability, torch.zeros_like(probability)
    exact = linear_probability(margins, gram, sigmas, seed=seed, points=points)
    return exact.probability, exact.standard_error


def summarize(
    problem: Problem, probability: Tensor, error: Tensor, method: str, calls: int
) -> Robustness:
    """The result, on the caller's device; with one sigma without its dimension."""
    probability = squeeze(probability, problem.sigma).to(problem.home)
    return Robustness(
        probability=probability,
        standard_error=squeeze(error, problem.sigma).to(problem.home),
        labels=problem.labels.to(problem.home),
        sigma=problem.sigma,
        method=method,
        calls=torch.full_like(probability, calls, dtype=torch.int64),
    )
