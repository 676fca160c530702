"""Estimates by linearization: at the input, or on average under the noise."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from robustbook._checks.arguments import check_count
from robustbook._checks.models import Model
from robustbook.average_case._cdf import (
    Cdf,
    apply_cdf,
    check_cdf,
    check_integration,
    summarize,
)
from robustbook.average_case._linearize import Linearization, linearize
from robustbook.average_case._noise import LINEARIZE, input_noise
from robustbook.average_case._problem import Problem, set_up
from robustbook.average_case._result import Robustness


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
    model : callable
        Returns logits (n, K) of inputs (n, ...); must be differentiable.
    x : Tensor or array, shape (N, ...)
        Inputs, float32 or float64.
    sigma : float or sequence
        Standard deviations of the noise, in units of `x`.
    cdf : {"mvn", "mv_sigmoid"}, default "mvn"
        The normal distribution function, or the paper's stand-in.
    label : Tensor or array, shape (N,), optional
        The class whose probability to compute; the prediction by default.
    points : int, default 128
        Points of each of 8 scrambles, from four classes on: standard errors of
        about 1e-4, well below what the linearization gets wrong.
    seed : int, default 0
        Seed of the scrambles.
    batch_size : int, optional
        Inputs at once without a gradient; chosen by memory by default.
    device : str or torch.device, optional
        Where to run; where the model is by default.

    Returns
    -------
    Robustness
        Its standard error is that of the integration.

    Warns
    -----
    UserWarning
        If the model is in training mode, or does not tell classes apart.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described, or logits or gradients are not finite.

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
    check_cdf(cdf)
    check_integration(points, seed)
    problem = set_up(model, x, sigma, label, batch_size, device)
    parts = [
        apply_cdf(cdf, part.margins, part.gram, problem.sigmas, points, seed)
        for part in linearize(problem)
    ]
    return _collect(problem, parts, _name("taylor", cdf), problem.num_classes)


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
    model : callable
        Returns logits (n, K) of inputs (n, ...); must be differentiable.
    x : Tensor or array, shape (N, ...)
        Inputs, float32 or float64.
    sigma : float or sequence
        Standard deviations of the noise, in units of `x`; all share one noise.
    samples : int, default 10
        Noisy inputs to average over. An even number makes pairs of them all.
    antithetic : bool, default True
        Noise in pairs, η and -η; of an odd number the last one has no partner.
        False: independent noise, the estimator of the paper.
    cdf : {"mvn", "mv_sigmoid"}, default "mvn"
        The normal distribution function, or the paper's stand-in.
    label : Tensor or array, shape (N,), optional
        The class whose probability to compute; the prediction by default.
    points : int, default 128
        Points of each of 8 scrambles, from four classes on: standard errors of
        about 1e-4, well below what the linearization gets wrong.
    seed : int, default 0
        Seed of the noise and of the scrambles.
    batch_size : int, optional
        Inputs at once without a gradient; chosen by memory by default.
    device : str or torch.device, optional
        Where to run; where the model is by default.

    Returns
    -------
    Robustness
        Its standard error is that of the integration, not of the averages.

    Warns
    -----
    UserWarning
        If the model is in training mode, or does not tell classes apart.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described, or logits or gradients are not finite.

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
    check_cdf(cdf)
    check_integration(points, seed)
    check_count("samples", samples)
    if not isinstance(antithetic, bool):
        raise TypeError(f"antithetic: expected True or False, got {antithetic!r}")
    problem = set_up(model, x, sigma, label, batch_size, device)
    rows_of_sigma = []
    for position in range(len(problem.sigmas)):
        one = problem.sigmas[position : position + 1]
        parts = [
            apply_cdf(cdf, part.margins, part.gram, one, points, seed)
            for part in mmse_linearizations(
                problem, float(one), samples, seed, antithetic=antithetic
            )
        ]
        rows_of_sigma.append(
            [torch.cat(values, dim=1) for values in zip(*parts, strict=True)]
        )
    stacked = [torch.cat(values) for values in zip(*rows_of_sigma, strict=True)]
    return _collect(
        problem,
        [(stacked[0], stacked[1])],
        _name("mmse", cdf),
        samples * problem.num_classes,
    )


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
        found = sigma * input_noise(seed, LINEARIZE, rows, drawn, problem.inputs)
        return torch.cat([found, -found[:, : samples - drawn]], dim=1)

    return linearize(problem, noise=noise, samples=samples, keep=keep)


def _collect(
    problem: Problem, parts: list[tuple[Tensor, Tensor]], method: str, calls: int
) -> Robustness:
    probability, error = (
        torch.cat(values, dim=1) for values in zip(*parts, strict=True)
    )
    return summarize(
        probability, error, problem.labels, problem.sigma, method, calls, problem.home
    )


def _name(method: str, cdf: Cdf) -> str:
    return method if cdf == "mvn" else f"{method}_{cdf}"
