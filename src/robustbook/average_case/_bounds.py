"""Bounds on the error of a linearization: as printed, and as they hold.

The setting. At the input, the margins to the other classes are quadratic in the
noise, g_i(ε) = c_i + u_iᵀε + εᵀA_iε with ε normal, σ in every coordinate, D
coordinates. The Taylor estimate leaves out εᵀA_iε; the MMSE estimate (with infinitely
many samples) replaces it by its mean, σ² tr A_i.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import torch
from torch import Tensor

from robustbook._validation import as_tensor
from robustbook.average_case._problem import check_sigmas
from robustbook.average_case._result import squeeze

Estimator = Literal["taylor", "mmse"]
_DENSITY = 1 / math.sqrt(2 * math.pi)


def printed_bound(
    eigenvalues: Any,
    gradients: Any,
    sigma: Any,
    *,
    estimator: Estimator = "taylor",
) -> Tensor:
    """The bound of the paper's Propositions 3.2 and 3.4. It is false.

    k s^(K-1) Π_i r_i with s = σ √D, r_i = λ_max(A_i) / ‖u_i‖ for Taylor and
    (λ_max(A_i) - λ_mean(A_i)) / ‖u_i‖ for MMSE, and k the greatest density of a
    normal vector with the correlations of the u_i. The proof bounds a union by a
    product, so one linear boundary makes the bound 0. It also forgets that u_iᵀε has
    variance s² ‖u_i‖² / D, not s² ‖u_i‖²: with two classes it is false already.

    Parameters
    ----------
    eigenvalues : Tensor or array, shape (K - 1, D)
        Eigenvalues of the symmetric matrices A_i.
    gradients : Tensor or array, shape (K - 1, D)
        The vectors u_i.
    sigma : float or sequence
        Standard deviation of the noise in each coordinate.
    estimator : {"taylor", "mmse"}, default "taylor"

    Returns
    -------
    Tensor, shape () or (S,)
        Float64; infinite where the u_i are linearly dependent and no ratio is 0.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described.

    See Also
    --------
    corrected_bound

    References
    ----------
    Average-case paper, Propositions 3.2, 3.4, A.2 and A.4. Chapter 20 of this book.

    Examples
    --------
    One boundary is linear, so the printed bound is 0, whatever the other is:

    >>> curved = torch.tensor([[1.0, 1.0], [0.0, 0.0]])
    >>> float(printed_bound(curved, torch.eye(2), 0.1))
    0.0
    """
    values, vectors, sigmas = _check(eigenvalues, gradients, sigma, estimator)
    count, size = values.shape
    norms = torch.linalg.vector_norm(vectors, dim=1)
    ratios = values.amax(dim=1)
    if estimator == "mmse":
        ratios = (ratios - values.mean(dim=1)).abs()
    unit = vectors / norms[:, None]
    volume = torch.linalg.det(unit @ unit.T).clamp_min(0).sqrt()
    product = (ratios / norms).prod() * _DENSITY**count
    bound = sigmas.reshape(-1) ** count * size ** (count / 2) * product / volume
    bound = torch.where(product == 0, torch.zeros_like(bound), bound)
    return squeeze(bound, sigmas)


def corrected_bound(
    eigenvalues: Any,
    gradients: Any,
    sigma: Any,
    *,
    estimator: Estimator = "taylor",
) -> Tensor:
    """A bound that holds: a sum over classes, of order σ.

    Estimate and truth differ only where some boundary is on the other side: a union,
    so the error is at most the sum over i of P[|c'_i + u_iᵀε| ≤ |q_i|], where c'_i is
    the constant of the linear margin and q_i = εᵀA_iε less what the estimate puts in
    its place. Two bounds hold for each term; the function takes the smaller.

    1. For every t > 0, |q_i| ≤ b_i(t) = σ² (m_i + 2 ‖A_i‖_F √t + 2 ‖A_i‖ t) but for a
       probability of 2 exp(-t) (Laurent and Massart), with m_i = |tr A_i| for Taylor
       and 0 for MMSE. A normal variable of standard deviation σ‖u_i‖ falls into an
       interval of length 2b with probability at most 2b / (σ ‖u_i‖ √(2π)). So the
       term is at most 2 b_i(t) / (σ ‖u_i‖ √(2π)) + 2 exp(-t).
    2. With s the component of ε/σ along u_i, |q_i| ≤ σ² (|ω| + 2 |s| |β| + |s|² ‖A_i‖)
       with ω and β independent of s. Where k ≤ |s| < k + 1, the density is at most
       that at k. Summed over k, the term is at most
       σ (2.81 E|ω| + 8.51 ‖A_i‖ √(2/π) + 7.71 ‖A_i‖) / ‖u_i‖, which is of order σ.

    Parameters
    ----------
    eigenvalues : Tensor or array, shape (K - 1, D)
        Eigenvalues of the symmetric matrices A_i, of any sign.
    gradients : Tensor or array, shape (K - 1, D)
        The vectors u_i.
    sigma : float or sequence
        Standard deviation of the noise in each coordinate.
    estimator : {"taylor", "mmse"}, default "taylor"

    Returns
    -------
    Tensor, shape () or (S,)
        Float64, in [0, 1].

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described.

    See Also
    --------
    printed_bound

    References
    ----------
    Laurent and Massart, Adaptive estimation of a quadratic functional by model
    selection (2000), Lemma 1. Proof and counterexample in Chapter 20 of this book.

    Examples
    --------
    >>> curved = torch.tensor([[1.0, 1.0], [0.0, 0.0]])
    >>> bounds = corrected_bound(curved, torch.eye(2), [0.001, 0.002])
    >>> round(float(bounds[1] / bounds[0]), 1)
    1.9
    """
    values, vectors, sigmas = _check(eigenvalues, gradients, sigma, estimator)
    norms = torch.linalg.vector_norm(vectors, dim=1)
    frobenius = torch.linalg.vector_norm(values, dim=1)
    largest = values.abs().amax(dim=1)
    trace = values.sum(dim=1).abs()
    mean = trace if estimator == "taylor" else torch.zeros_like(trace)
    scale = sigmas.reshape(-1, 1) / norms
    # exp(-t) from 1 to what no double tells from 0.
    t = torch.logspace(-1, math.log10(40.0), 200, dtype=torch.float64)[:, None, None]
    spread = mean + 2 * frobenius * t.sqrt() + 2 * largest * t
    tails = 2 * _DENSITY * scale * spread + 2 * torch.exp(-t)
    # A boundary without curvature has no error, and no tail.
    curved = largest > 0
    first = tails.amin(dim=0)
    around = 2**0.5 * frobenius + largest
    omega = (mean.square() + 2 * frobenius.square()).sqrt() + largest
    middle = omega if estimator == "taylor" else around
    constants = _band_constants()
    second = scale * (
        constants[0] * middle
        + constants[1] * math.sqrt(2 / math.pi) * largest
        + constants[2] * largest
    )
    terms = torch.where(curved, torch.minimum(first, second), 0.0)
    return squeeze(terms.sum(dim=1).clamp(max=1.0), sigmas)


def _band_constants() -> tuple[float, float, float]:
    """4 Σ φ(k), 4 Σ φ(k) 2(k + 1), 4 Σ φ(k) (k + 1)², over k from 0."""
    density = [_DENSITY * math.exp(-k * k / 2) for k in range(40)]
    return (
        4 * sum(density),
        4 * sum(2 * (k + 1) * d for k, d in enumerate(density)),
        4 * sum((k + 1) ** 2 * d for k, d in enumerate(density)),
    )


def _check(
    eigenvalues: Any, gradients: Any, sigma: Any, estimator: str
) -> tuple[Tensor, Tensor, Tensor]:
    values = as_tensor("eigenvalues", eigenvalues).double().cpu()
    vectors = as_tensor("gradients", gradients).double().cpu()
    sigmas = check_sigmas(sigma)
    if estimator not in ("taylor", "mmse"):
        raise ValueError(f"estimator: expected one of taylor, mmse; got {estimator!r}.")
    if values.ndim != 2 or values.shape != vectors.shape or not values.numel():
        raise ValueError(
            "eigenvalues, gradients: expected one shape (K - 1, D), got "
            f"{tuple(values.shape)} and {tuple(vectors.shape)}."
        )
    if not bool((torch.isfinite(values) & torch.isfinite(vectors)).all()):
        raise ValueError(
            "eigenvalues, gradients: expected finite numbers, got NaN or infinity."
        )
    if not bool((torch.linalg.vector_norm(vectors, dim=1) > 0).all()):
        raise ValueError(
            "gradients: expected vectors other than 0; without a slope there is no "
            "bound."
        )
    return values, vectors, sigmas
