"""Linear models, whose robustness is known."""

from __future__ import annotations

from typing import Any, Final

import torch
from torch import Tensor

from robustbook._checks.arguments import check_labels, check_logits
from robustbook.average_case._cdf import (
    Cdf,
    apply_cdf,
    check_integration,
)
from robustbook.average_case._docs import SHARED
from robustbook.average_case._linearize import break_ties, margins_of, other_classes
from robustbook.average_case._problem import as_real, check_inputs, check_sigmas
from robustbook.average_case._result import Robustness, squeeze

#: Its square is a normal number.
_SMALLEST: Final = 1e-150


@SHARED.fill
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
    {label} {cdf}
    points : int, default 1024
        Points of each of 8 scrambles, from four classes on.
    {seed}

    Returns
    -------
    Robustness
        ``calls`` are 0.

    Raises
    ------
    {TypeError} {ValueError}

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
    matrix = as_real("weights", weights)
    if matrix.ndim != 2 or len(matrix) < 2 or matrix.shape[1] != flat.shape[1]:
        raise ValueError(
            f"weights: expected shape (K, {flat.shape[1]}), as x has coordinates, "
            f"with K of at least 2, got {tuple(matrix.shape)}"
        )
    offset = as_real("bias", bias)
    if offset.shape != matrix.shape[:1]:
        raise ValueError(
            f"bias: expected shape ({len(matrix)},), got {tuple(offset.shape)}"
        )
    logits = check_logits("logits", flat @ matrix.T + offset)
    if (sigma is None) == (covariance is None):
        raise ValueError("sigma, covariance: expected exactly one of them")
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
    check_integration(cdf, points, seed)
    others = other_classes(labels, logits.shape[1])
    # Units in which squares of the weights do not vanish.
    unit = matrix.abs().amax().clamp_min(_SMALLEST)
    matrix, logits = matrix / unit, logits / unit
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
    probability, error = apply_cdf(cdf, margins, gram, sigmas.reshape(-1), points, seed)
    shown = sigmas if covariance is None else torch.full_like(sigmas, torch.nan)
    home = inputs.device
    return Robustness(
        probability=squeeze(probability, shown).to(home),
        standard_error=squeeze(error, shown).to(home),
        labels=labels.to(home),
        sigma=shown,
        method="linear_exact",
        calls=torch.zeros_like(squeeze(probability, shown), dtype=torch.int64).to(home),
    )


def _check_covariance(value: Any, flat: Tensor) -> Tensor:
    spread = as_real("covariance", value).to(flat)
    size = flat.shape[1]
    if spread.shape not in ((size,), (size, size)):
        raise ValueError(
            f"covariance: expected shape ({size},) or ({size}, {size}), got "
            f"{tuple(spread.shape)}"
        )
    if not bool(torch.isfinite(spread).all()):
        raise ValueError("covariance: expected finite numbers, got NaN or infinity")
    if spread.ndim == 1:
        if bool((spread < 0).any()):
            raise ValueError("covariance: expected variances of at least 0")
        return spread
    if not torch.allclose(spread, spread.T, rtol=1e-6, atol=1e-12):
        raise ValueError(
            "covariance: expected a symmetric matrix; symmetrize it: (C + C.T) / 2"
        )
    values = torch.linalg.eigvalsh(spread)
    if float(values[0]) < -1e-8 * float(values[-1].abs()):
        raise ValueError(
            "covariance: expected a positive semidefinite matrix, got an eigenvalue "
            f"of {float(values[0]):g}"
        )
    return spread
