"""Estimates without sampling: linear models and linearized models."""

from collections.abc import Iterable
from typing import Final, Literal

import torch
from torch import Tensor

from robustbook._checks.arguments import (
    ArrayLike,
    as_real,
    check_choice,
    check_count,
    check_logits,
    check_power_of_two,
)
from robustbook._checks.images import check_inputs
from robustbook._checks.models import Model, keeping_generators
from robustbook.average_case import _problem
from robustbook.average_case._linearize import (
    break_ties,
    linear_probability,
    linearize,
    margins_of,
    other_classes,
)
from robustbook.average_case._normal import check_covariance
from robustbook.average_case._result import Robustness, make_result
from robustbook.average_case._sigmoid import mv_sigmoid

Cdf = Literal["mvn", "mv_sigmoid"]
#: A number whose square does not underflow.
_SMALLEST: Final = 1e-150


@keeping_generators()
def taylor(
    model: Model,
    images: ArrayLike,
    sigma: ArrayLike,
    *,
    cdf: Cdf = "mvn",
    labels: ArrayLike | None = None,
    points: int = 128,
    seed: int = 0,
    batch_size: int = _problem.BATCH,
    device: str | torch.device | None = None,
) -> Robustness:
    """Estimate robustness by the model linearized at the input.

    One Jacobian serves all sigmas. The error is of order σ times the curvature of the
    boundaries, summed over classes; Chapter 19 proves a bound. Source: the average-case
    paper, Proposition 3.1; Chapter 19.

    Parameters
    ----------
    model : callable
        Returns logits (n, K) of inputs (n, ...), with a gradient.
    images : Tensor or array, shape (N, ...)
        Inputs of any range, float32 or float64 as the model's parameters.
    sigma : float or sequence
        Standard deviations of the noise in every coordinate, in units of the input.
    cdf : {"mvn", "mv_sigmoid"}, default "mvn"
        The normal distribution function, or the paper's substitute for it.
    points : int, default 128
        Points in each of 8 scrambles, which are used for four classes or more: the
        standard errors are about 1e-4.
    seed : int, default 0
        Seed of what is drawn.
    labels, batch_size, device : optional
        As for :func:`monte_carlo`.

    Returns
    -------
    Robustness
        The standard error is that of the integration.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described, or logits or gradients are not finite.

    Examples
    --------
    >>> x = torch.tensor([[0.0, 1.0]])
    >>> taylor(lambda x: x, x, [0.5, 1.0]).probability.round(decimals=4)
    tensor([[0.9214],
            [0.7602]], dtype=torch.float64)
    """
    _check_integration(cdf, points, seed)
    problem = _problem.set_up(model, images, sigma, labels, batch_size, device)
    estimates = join(
        _apply_cdf(cdf, part.margins, part.gram, problem.sigmas, points, seed)
        for part in linearize(problem)
    )
    name = "taylor" if cdf == "mvn" else f"taylor_{cdf}"
    return problem.summarize(name, problem.num_classes, **estimates)


@keeping_generators()
def mmse(
    model: Model,
    images: ArrayLike,
    sigma: ArrayLike,
    *,
    samples: int = 10,
    antithetic: bool = True,
    cdf: Cdf = "mvn",
    labels: ArrayLike | None = None,
    points: int = 128,
    seed: int = 0,
    batch_size: int = _problem.BATCH,
    device: str | torch.device | None = None,
) -> Robustness:
    """Estimate robustness by the linear model that fits best under the noise.

    The least-squares fit to the model on noisy inputs has the mean logits as its value
    and, by Stein's lemma, the mean gradient as its slope. Both are averaged over
    `samples` noisy inputs. Sampling error makes the mean gradient too long, which
    biases probabilities towards 1/2. Source: the average-case paper, Proposition 3.3;
    Chapter 19.

    Parameters
    ----------
    model, images, sigma
        As for :func:`taylor`.
    samples : int, default 10
        Noisy inputs to average over. Of an odd number, the last has no partner.
    antithetic : bool, default True
        Draw noise in pairs, η and -η, so that linear terms cancel and a linear model is
        fitted exactly. If False, the noise is independent, as in the paper, and the
        sampling error of the mean logits dominates.
    cdf, labels, points, seed, batch_size, device : optional
        As for :func:`taylor`.

    Returns
    -------
    Robustness
        The standard error is that of the integration, not of the averages.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described, or logits or gradients are not finite.

    Examples
    --------
    >>> x = torch.tensor([[0.0, 1.0]])
    >>> mmse(lambda x: x, x, 0.5, samples=2).probability.round(decimals=4)
    tensor([0.9214], dtype=torch.float64)
    """
    _check_integration(cdf, points, seed)
    check_count("samples", samples)
    if not isinstance(antithetic, bool):
        raise TypeError(f"antithetic: expected True or False, got {antithetic!r}")
    problem = _problem.set_up(model, images, sigma, labels, batch_size, device)
    rows = (
        join(
            _apply_cdf(cdf, part.margins, part.gram, sigma, points, seed)
            for part in linearize(
                problem, float(sigma), samples, seed, antithetic=antithetic
            )
        )
        for sigma in problem.sigmas[:, None]
    )
    name = "mmse" if cdf == "mvn" else f"mmse_{cdf}"
    return problem.summarize(name, samples * problem.num_classes, **join(rows, dim=0))


def join(parts: Iterable[dict[str, Tensor]], dim: int = 1) -> dict[str, Tensor]:
    """Concatenate the estimates (S, n) of several inputs, or of several sigmas."""
    listed = list(parts)
    return {key: torch.cat([part[key] for part in listed], dim) for key in listed[0]}


def linear_exact(
    weights: ArrayLike,
    bias: ArrayLike,
    images: ArrayLike,
    sigma: ArrayLike | None = None,
    *,
    covariance: ArrayLike | None = None,
    labels: ArrayLike | None = None,
    cdf: Cdf = "mvn",
    points: int = 1024,
    seed: int = 0,
) -> Robustness:
    """Compute the robustness of a linear classifier, exact but for the integration.

    The margins to the other classes, f_t - f_i, are jointly normal under Gaussian
    noise, so the probability that all are positive is an orthant probability. Source:
    the average-case paper, Lemmas 3.1 and A.3 (which print unions for intersections);
    Chapter 18.

    Parameters
    ----------
    weights : Tensor or array, shape (K, D)
        A row for each class.
    bias : Tensor or array, shape (K,)
        A number for each class.
    images : Tensor or array, shape (N, ...)
        Inputs of D coordinates.
    sigma : float or sequence
        Standard deviations of isotropic noise, in units of the input.
    covariance : Tensor or array, shape (D,) or (D, D), optional
        Variances or covariance matrix of the noise, instead of `sigma`.
    labels : Tensor or array, shape (N,), optional
        The classes whose probability to estimate; the predictions by default.
    cdf : {"mvn", "mv_sigmoid"}, default "mvn"
        The normal distribution function, or the paper's substitute for it.
    points : int, default 1024
        Points in each of 8 scrambles, which are used for four classes or more.
    seed : int, default 0
        Seed of what is drawn.

    Returns
    -------
    Robustness
        ``calls`` are 0.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described, or shapes do not fit together.

    Examples
    --------
    >>> x = torch.tensor([[0.0, 1.0]])
    >>> result = linear_exact(torch.eye(2), torch.zeros(2), x, sigma=0.5)
    >>> result.labels, result.probability.round(decimals=4)
    (tensor([1]), tensor([0.9214], dtype=torch.float64))
    """
    inputs = check_inputs(images)
    flat = inputs.flatten(1).double()
    matrix = as_real("weights", weights)
    if matrix.ndim != 2 or len(matrix) < 2 or matrix.shape[1] != flat.shape[1]:
        raise ValueError(
            f"weights: expected shape (K, {flat.shape[1]}), as images have so many "
            f"coordinates, with K of at least 2, got {tuple(matrix.shape)}"
        )
    offset = as_real("bias", bias)
    if offset.shape != matrix.shape[:1]:
        raise ValueError(
            f"bias: expected shape ({len(matrix)},), got {tuple(offset.shape)}"
        )
    logits = check_logits("logits", flat @ matrix.T + offset)
    if (sigma is None) == (covariance is None):
        raise ValueError("sigma, covariance: expected exactly one of them")
    sigmas = _problem.check_positives("sigma", 1.0 if sigma is None else sigma)
    classes = _problem.labels_or_predictions(labels, logits)
    _check_integration(cdf, points, seed)
    others = other_classes(classes, logits.shape[1])
    if covariance is not None:
        root = _noise_root(covariance, flat)
        matrix = matrix * root if root.ndim == 1 else matrix @ root
    # In these units, squares of the weights do not underflow.
    unit = matrix.abs().amax().clamp_min(_SMALLEST)
    matrix, logits = matrix / unit, logits / unit
    margins = margins_of(logits, classes)
    gram = margins.new_empty(*margins.shape, margins.shape[1])
    for label in torch.unique(classes):
        rows = classes == label
        steps = matrix[label] - matrix[others[rows][0]]
        gram[rows] = steps @ steps.T
    margins = break_ties(margins, gram.diagonal(dim1=1, dim2=2), classes)
    estimates = _apply_cdf(cdf, margins, gram, sigmas.reshape(-1), points, seed)
    no_calls = torch.zeros_like(estimates["probability"], dtype=torch.int64)
    shown = sigmas if covariance is None else torch.full_like(sigmas, torch.nan)
    return make_result(
        "linear_exact", classes, shown, inputs.device, calls=no_calls, **estimates
    )


def _noise_root(covariance: ArrayLike, flat: Tensor) -> Tensor:
    """Return the root of variances (D,) or of a covariance matrix (D, D)."""
    spread = as_real("covariance", covariance).to(flat)
    size = flat.shape[1]
    if spread.shape not in ((size,), (size, size)):
        raise ValueError(
            f"covariance: expected shape ({size},) or ({size}, {size}), got "
            f"{tuple(spread.shape)}"
        )
    check_covariance(spread[:, None, None] if spread.ndim == 1 else spread)
    if spread.ndim == 1:
        return spread.sqrt()
    values, vectors = torch.linalg.eigh(spread)
    if float(values[0]) < -1e-8 * float(values[-1].abs()):
        raise ValueError(
            "covariance: expected a positive semidefinite matrix, got an eigenvalue "
            f"of {float(values[0]):g}"
        )
    return vectors * values.clamp_min(0).sqrt()


def _check_integration(cdf: str, points: int, seed: int) -> None:
    check_choice("cdf", cdf, ("mvn", "mv_sigmoid"))
    check_power_of_two("points", points)
    check_count("seed", seed, minimum=0)


def _apply_cdf(
    cdf: Cdf, margins: Tensor, gram: Tensor, sigmas: Tensor, points: int, seed: int
) -> dict[str, Tensor]:
    """Return probabilities (S, n), standard errors, and probabilities of failure."""
    if cdf == "mv_sigmoid":
        # Margins that no noise moves are infinite.
        norms = gram.diagonal(dim1=1, dim2=2).sqrt()
        scale = sigmas.to(margins.device)[:, None, None] * norms
        probability = mv_sigmoid(margins / scale)
        error = torch.zeros_like(probability)
        return {"probability": probability, "standard_error": error}
    return vars(linear_probability(margins, gram, sigmas, seed=seed, points=points))
