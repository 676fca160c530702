"""Estimates without sampling of the prediction: exact, linearized, softmax."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import torch
from torch import Tensor

from robustbook._classifier import Model
from robustbook._validation import (
    as_tensor,
    check_count,
    check_labels,
    check_logits,
    check_positive,
)
from robustbook.average_case._linearize import (
    Linearization,
    break_ties,
    linear_probability,
    linearize,
    margins_of,
    other_classes,
    standardized_margins,
)
from robustbook.average_case._noise import LINEARIZE, input_noise
from robustbook.average_case._problem import (
    Problem,
    check_inputs,
    check_sigmas,
    set_up,
)
from robustbook.average_case._result import Robustness, squeeze

Cdf = Literal["mvn", "mv_sigmoid"]
CDFS = ("mvn", "mv_sigmoid")


def mv_sigmoid(values: Any, *, scale: float = 1.0) -> Tensor:
    """The multivariate sigmoid, 1 / (1 + Σ_i exp(-s v_i)) with s the `scale`.

    The paper's stand-in for the normal distribution function: it needs no
    covariance. Of the logit differences it is the softmax.

    It is itself a probability. With independent standard Gumbel variables
    G_t, G_1, ..., G_D it is P[s v_i + G_t - G_i ≥ 0 for all i]. So it takes the
    margins for logistic ones, of standard deviation π / √3 ≈ 1.81 and correlations
    of 1/2, where the noise makes normal ones of standard deviation 1. A scale of
    1.702 mends the spread: a logistic function that steep is within 0.0095 of the
    normal distribution function everywhere. The source that the paper takes the
    function from has this factor, the paper leaves it out.

    Parameters
    ----------
    values : Tensor or array, shape (..., D)
        Standardized margins; infinite ones are allowed.
    scale : float, default 1
        Positive; what the margins are multiplied by. 1 is the paper's, 1.702 is
        closer to the normal distribution function.

    Returns
    -------
    Tensor, shape (...)
        Float64, in [0, 1].

    Raises
    ------
    ValueError
        If there is no last dimension, an entry is NaN, or `scale` is not positive.

    References
    ----------
    Average-case paper, section 3.2.3; Hendrycks and Gimpel, Gaussian error linear
    units (2016), for 1.702. Chapter 20 of this book.

    Examples
    --------
    >>> round(float(mv_sigmoid([0.0, 0.0])), 4)
    0.3333

    Its distance from Φ(1) = 0.8413, as printed and with the factor:

    >>> [round(float(mv_sigmoid([1.0], scale=s)), 4) for s in (1, 1.702)]
    [0.7311, 0.8458]
    """
    check_positive("scale", scale)
    margins = as_tensor("values", values).double() * scale
    if margins.ndim == 0:
        raise ValueError("values: expected shape (..., D), got a single number.")
    if bool(margins.isnan().any()):
        raise ValueError("values: expected numbers, got NaN.")
    zero = torch.zeros_like(margins[..., :1])
    return torch.exp(-torch.logsumexp(torch.cat([zero, -margins], dim=-1), dim=-1))


def softmax_proxy(
    model: Model,
    x: Any,
    *,
    temperature: Any = 1.0,
    label: Any = None,
    batch_size: int | None = None,
    device: str | torch.device | None = None,
) -> Tensor:
    """Softmax probability of the prediction: what is often taken for robustness.

    It knows no gradient, so it cannot know how far a boundary is. For a linear model
    whose class differences all have norm k, it is the mv-sigmoid estimate at
    σ = `temperature` / k.

    Parameters
    ----------
    model : callable
        Returns logits (n, K) of inputs (n, ...).
    x : Tensor or array, shape (N, ...)
        Inputs, float32 or float64.
    temperature : float or sequence, default 1
        Positive; what the logits are divided by. Several share the work.
    label : Tensor or array, shape (N,), optional
        Classes; the predictions by default.
    batch_size : int, optional
        Inputs at once; chosen by memory by default.
    device : str or torch.device, optional
        Where to run; where the model is by default.

    Returns
    -------
    Tensor, shape (N,) or (T, N)
        Probabilities, float64.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described, or the logits are not finite.

    References
    ----------
    Average-case paper, section 3.2.3 and Lemma A.4. Chapters 20 and 22 of this book.

    Examples
    --------
    >>> x = torch.tensor([[0.0, 0.0, 2.0]])
    >>> softmax_proxy(lambda x: x, x).round(decimals=3)
    tensor([0.7870], dtype=torch.float64)
    """
    temperatures = as_tensor("temperature", temperature).double().cpu()
    for value in temperatures.reshape(-1).tolist():
        check_positive("temperature", value)
    if temperatures.ndim > 1 or not temperatures.numel():
        raise ValueError(
            "temperature: expected one number or a sequence of them, got shape "
            f"{tuple(temperatures.shape)}."
        )
    problem = set_up(model, x, None, label, batch_size, device)
    margins = margins_of(problem.logits, problem.labels)
    scale = temperatures.reshape(-1, 1, 1).to(margins.device)
    return squeeze(mv_sigmoid(margins / scale), temperatures).to(problem.home)


def linear_exact(
    weights: Any,
    bias: Any,
    x: Any,
    sigma: Any = None,
    *,
    covariance: Any = None,
    label: Any = None,
    cdf: Cdf = "mvn",
    points: int = 1024,
    seed: int = 0,
) -> Robustness:
    """Robustness of a linear classifier, exact but for the integration.

    The margins to the other classes, f_t - f_i, are jointly normal under Gaussian
    noise, so the probability that all are positive is one orthant probability.

    Parameters
    ----------
    weights : Tensor or array, shape (K, D)
        One row for each class.
    bias : Tensor or array, shape (K,)
    x : Tensor or array, shape (N, ...)
        Inputs of D coordinates.
    sigma : float or sequence
        Standard deviations of isotropic noise, in units of `x`.
    covariance : Tensor or array, shape (D,) or (D, D), optional
        Instead of `sigma`: variances, or a covariance matrix of the noise.
    label : Tensor or array, shape (N,), optional
        The class whose probability to compute; the prediction by default.
    cdf : {"mvn", "mv_sigmoid"}, default "mvn"
        The normal distribution function, or the paper's stand-in.
    points : int, default 1024
        Points of each of 8 scrambles, from four classes on.
    seed : int, default 0
        Seed of the scrambles.

    Returns
    -------
    Robustness
        ``calls`` are 0.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described, or not exactly one of `sigma` and
        `covariance` is given.

    See Also
    --------
    orthant_probability

    References
    ----------
    Average-case paper, Lemmas 3.1 and A.3 (which print unions for intersections).
    Chapter 19 of this book.

    Examples
    --------
    Two classes: the normal distribution function of margin / (σ · norm).

    >>> x = torch.tensor([[0.0, 1.0]])
    >>> result = linear_exact(torch.eye(2), torch.zeros(2), x, sigma=0.5)
    >>> result.labels, result.probability.round(decimals=4)
    (tensor([1]), tensor([0.9214], dtype=torch.float64))
    """
    inputs = check_inputs(x)
    flat = inputs.flatten(1).double()
    matrix = as_tensor("weights", weights).double()
    if matrix.ndim != 2 or len(matrix) < 2 or matrix.shape[1] != flat.shape[1]:
        raise ValueError(
            f"weights: expected shape (K, {flat.shape[1]}), as x has coordinates, "
            f"with K of at least 2, got {tuple(matrix.shape)}."
        )
    offset = as_tensor("bias", bias).double()
    if offset.shape != matrix.shape[:1]:
        raise ValueError(
            f"bias: expected shape ({len(matrix)},), got {tuple(offset.shape)}."
        )
    logits = check_logits("logits", flat @ matrix.T + offset)
    if (sigma is None) == (covariance is None):
        raise ValueError("sigma, covariance: expected exactly one of them.")
    spread = None
    sigmas = torch.ones((), dtype=torch.float64)
    if covariance is None:
        sigmas = check_sigmas(sigma)
    else:
        spread = _check_covariance(covariance, flat)
    labels = logits.argmax(dim=1)
    if label is not None:
        labels = check_labels(
            "label", label, length=len(logits), num_classes=logits.shape[1]
        ).to(logits.device)
    _check_cdf(cdf)
    _check_integration(points, seed)
    others = other_classes(labels, logits.shape[1])
    margins = margins_of(logits, labels)
    gram = torch.empty(*margins.shape, margins.shape[1], dtype=torch.float64)
    gram = gram.to(margins.device)
    for chosen in sorted(set(labels.tolist())):
        rows = labels == chosen
        steps = matrix[chosen] - matrix[others[rows.nonzero()[0, 0]]]
        if spread is None:
            gram[rows] = steps @ steps.T
        elif spread.ndim == 1:
            gram[rows] = (steps * spread) @ steps.T
        else:
            product = steps @ spread @ steps.T
            gram[rows] = (product + product.T) / 2
    margins = break_ties(margins, gram.diagonal(dim1=1, dim2=2), labels)
    probability, error = _apply_cdf(
        cdf, margins, gram, sigmas.reshape(-1), points, seed
    )
    shown = sigmas if covariance is None else torch.full_like(sigmas, torch.nan)
    return _robustness(
        probability, error, labels, shown, "linear_exact", 0, inputs.device
    )


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
    _check_cdf(cdf)
    _check_integration(points, seed)
    problem = set_up(model, x, sigma, label, batch_size, device)
    parts = [
        _apply_cdf(cdf, part.margins, part.gram, problem.sigmas, points, seed)
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
    _check_cdf(cdf)
    _check_integration(points, seed)
    check_count("samples", samples)
    problem = set_up(model, x, sigma, label, batch_size, device)
    rows_of_sigma = []
    for position in range(len(problem.sigmas)):
        one = problem.sigmas[position : position + 1]
        parts = [
            _apply_cdf(cdf, part.margins, part.gram, one, points, seed)
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


def _apply_cdf(
    cdf: Cdf, margins: Tensor, gram: Tensor, sigmas: Tensor, points: int, seed: int
) -> tuple[Tensor, Tensor]:
    """Probabilities (S, n) and their standard errors."""
    if cdf == "mv_sigmoid":
        probability = mv_sigmoid(standardized_margins(margins, gram, sigmas))
        return probability, torch.zeros_like(probability)
    found = linear_probability(margins, gram, sigmas, seed=seed, points=points)
    return found.probability, found.standard_error


def _collect(
    problem: Problem, parts: list[tuple[Tensor, Tensor]], method: str, calls: int
) -> Robustness:
    probability, error = (
        torch.cat(values, dim=1) for values in zip(*parts, strict=True)
    )
    return _robustness(
        probability, error, problem.labels, problem.sigma, method, calls, problem.home
    )


def _robustness(
    probability: Tensor,
    error: Tensor,
    labels: Tensor,
    sigma: Tensor,
    method: str,
    calls: int,
    home: torch.device,
) -> Robustness:
    probability = squeeze(probability, sigma).to(home)
    return Robustness(
        probability=probability,
        standard_error=squeeze(error, sigma).to(home),
        labels=labels.to(home),
        sigma=sigma,
        method=method,
        calls=torch.full_like(probability, calls, dtype=torch.int64),
    )


def _name(method: str, cdf: Cdf) -> str:
    return method if cdf == "mvn" else f"{method}_{cdf}"


def _check_cdf(cdf: str) -> None:
    if cdf not in CDFS:
        raise ValueError(f"cdf: expected one of {', '.join(CDFS)}; got {cdf!r}.")


def _check_integration(points: int, seed: int) -> None:
    check_count("points", points)
    if points & (points - 1):
        raise ValueError(f"points: expected a power of 2, got {points}.")
    check_count("seed", seed, minimum=0)


def _check_covariance(value: Any, flat: Tensor) -> Tensor:
    spread = as_tensor("covariance", value).to(flat)
    size = flat.shape[1]
    if spread.shape not in ((size,), (size, size)):
        raise ValueError(
            f"covariance: expected shape ({size},) or ({size}, {size}), got "
            f"{tuple(spread.shape)}."
        )
    if not bool(torch.isfinite(spread).all()):
        raise ValueError("covariance: expected finite numbers, got NaN or infinity.")
    if spread.ndim == 1:
        if bool((spread < 0).any()):
            raise ValueError("covariance: expected variances of at least 0.")
        return spread
    if not torch.allclose(spread, spread.T, rtol=1e-6, atol=1e-12):
        raise ValueError(
            "covariance: expected a symmetric matrix; symmetrize it: (C + C.T) / 2."
        )
    values = torch.linalg.eigvalsh(spread)
    if float(values[0]) < -1e-8 * float(values[-1].abs()):
        raise ValueError(
            "covariance: expected a positive semidefinite matrix, got an eigenvalue "
            f"of {float(values[0]):g}."
        )
    return spread
