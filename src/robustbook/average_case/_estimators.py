"""Estimates by linearization: at the input, or on average under the noise."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import Tensor

from robustbook._checks.arguments import check_count
from robustbook._checks.models import Model
from robustbook.average_case._cdf import (
    Cdf,
    apply_cdf,
    check_integration,
    summarize,
)
from robustbook.average_case._docs import SHARED
from robustbook.average_case._linearize import Linearization, linearize
from robustbook.average_case._noise import LINEARIZE, input_noise
from robustbook.average_case._problem import Problem, set_up
from robustbook.average_case._result import Robustness


@SHARED.fill
def taylor(
    model: Model,
    x: Any,
    sigma: Any,
    *,
    cdf: Cdf = "mvn",
    label: Any = None,
    points: int = 128,
    seed: int = 0,
    batch_size: int | None = None,
    device: str | torch.device | None = None,
) -> Robustness:
    """Robustness of the model linearized at the input.

    The first-order expansion is a linear classifier, whose robustness is known. One
    Jacobian serves all sigmas. The error is of order σ times the curvature of the
    boundaries, summed over classes (:func:`corrected_bound`).

    Parameters
    ----------
    {model} {x} {sigma} {cdf} {label} {points} {seed} {batch_size} {device}

    Returns
    -------
    Robustness
        Its standard error is that of the integration.

    Warns
    -----
    {UserWarning}

    Raises
    ------
    {TypeError} {ValueError}

    References
    ----------
    Average-case paper, Proposition 3.1. Chapter 20 of this book.

    Examples
    --------
    >>> x = torch.tensor([[0.0, 1.0]])
    >>> taylor(lambda x: x, x, [0.5, 1.0]).probability.round(decimals=4)
    tensor([[0.9214],
            [0.7602]], dtype=torch.float64)
    """
    check_integration(cdf, points, seed)
    problem = set_up(model, x, sigma, label, batch_size, device)

    def measure(part: Linearization, sigmas: Tensor) -> tuple[Tensor, Tensor]:
        return apply_cdf(cdf, part.margins, part.gram, sigmas, points, seed)

    probability, error = measure_all(
        problem, lambda _: linearize(problem), measure, shared=True
    )
    calls = problem.num_classes
    return summarize(problem, probability, error, _name("taylor", cdf), calls)


@SHARED.fill
def mmse(
    model: Model,
    x: Any,
    sigma: Any,
    *,
    samples: int = 10,
    antithetic: bool = True,
    cdf: Cdf = "mvn",
    label: Any = None,
    points: int = 128,
    seed: int = 0,
    batch_size: int | None = None,
    device: str | torch.device | None = None,
) -> Robustness:
    """Robustness of the linear model that fits best under the noise.

    The least-squares fit to the model on noisy inputs has the mean logits as its
    value and, by Stein's lemma, the mean gradient as its slope. Both are averages
    over `samples` noisy inputs.

    The paper draws these independently. Then chance in the mean logits dominates the
    error: even for a linear model the standardized margins have a variance of
    1 / `samples`. In pairs of opposite noise, η and -η, what is linear cancels, for
    the same calls: a linear model is then fitted exactly. Chance in the gradients
    remains. It makes the mean gradient too long, which draws probabilities towards
    1/2.

    Parameters
    ----------
    {model} {x} {sigma}
    samples : int, default 10
        Noisy inputs to average over. An even number makes pairs of them all.
    antithetic : bool, default True
        Noise in pairs, η and -η; of an odd number the last one has no partner.
        False: independent noise, the estimator of the paper.
    {cdf} {label} {points} {seed} {batch_size} {device}

    Returns
    -------
    Robustness
        Its standard error is that of the integration, not of the averages.

    Warns
    -----
    {UserWarning}

    Raises
    ------
    {TypeError} {ValueError}

    References
    ----------
    Average-case paper, Proposition 3.3. Chapter 20 of this book.

    Examples
    --------
    For a linear model the fit is the model, from one pair of noisy inputs on:

    >>> x = torch.tensor([[0.0, 1.0]])
    >>> mmse(lambda x: x, x, 0.5, samples=2).probability.round(decimals=4)
    tensor([0.9214], dtype=torch.float64)

    Independent noise leaves chance in its value:

    >>> paper = mmse(lambda x: x, x, 0.5, samples=2, antithetic=False)
    >>> abs(float(paper.probability) - 0.9214) > 0.01
    True
    """
    check_integration(cdf, points, seed)
    check_count("samples", samples)
    if not isinstance(antithetic, bool):
        raise TypeError(f"antithetic: expected True or False, got {antithetic!r}")
    problem = set_up(model, x, sigma, label, batch_size, device)

    def fits(sigma: float) -> Iterator[Linearization]:
        return mmse_linearizations(problem, sigma, samples, seed, antithetic=antithetic)

    def measure(part: Linearization, sigmas: Tensor) -> tuple[Tensor, Tensor]:
        return apply_cdf(cdf, part.margins, part.gram, sigmas, points, seed)

    probability, error = measure_all(problem, fits, measure, shared=False)
    calls = samples * problem.num_classes
    return summarize(problem, probability, error, _name("mmse", cdf), calls)


def measure_all(
    problem: Problem,
    linearizations: Callable[[float], Iterable[Linearization]],
    measure: Callable[[Linearization, Tensor], tuple[Tensor, ...]],
    *,
    shared: bool,
) -> list[Tensor]:
    """What is measured (S, n) of every linearization, put together: (S, N) each.

    One linearization serves all sigmas, or each sigma has its own.
    """
    rows = []
    for sigmas in problem.sigmas[None] if shared else problem.sigmas[:, None]:
        parts = [measure(part, sigmas) for part in linearizations(float(sigmas[0]))]
        rows.append([torch.cat(values, dim=1) for values in zip(*parts, strict=True)])
    return [torch.cat(values) for values in zip(*rows, strict=True)]


def mmse_linearizations(
    problem: Problem,
    sigma: float,
    samples: int,
    seed: int,
    *,
    antithetic: bool,
    keep: bool = False,
) -> Iterator[Linearization]:
    """The least-squares linear fits under noise of one size."""

    def noise(rows: slice) -> Tensor:
        drawn = samples - samples // 2 if antithetic else samples
        half = sigma * input_noise(seed, LINEARIZE, rows, drawn, problem.inputs)
        return torch.cat([half, -half[:, : samples - drawn]], dim=1)

    return linearize(problem, noise=noise, samples=samples, keep=keep)


def _name(method: str, cdf: Cdf) -> str:
    return method if cdf == "mvn" else f"{method}_{cdf}"
