"""Bounds on the error of a linearization: as printed, and as they hold.

At the input, the margins to the other classes are quadratic in the noise,
g_i(ε) = c_i + u_iᵀε + εᵀA_iε with ε normal, σ in every coordinate, D coordinates. The
Taylor estimate leaves out εᵀA_iε; the MMSE estimate (with infinitely many samples)
replaces it by its mean, σ² tr A_i.
"""

import math
from typing import Any, Literal

import torch
from torch import Tensor

from robustbook._checks.arguments import as_real, check_choice
from robustbook.average_case.parts import check_positives, squeeze

Estimator = Literal["taylor", "mmse"]
_DENSITY = 1 / math.sqrt(2 * math.pi)


def printed_bound(
    eigenvalues: Any, gradients: Any, sigma: Any, *, estimator: Estimator = "taylor"
) -> Tensor:
    """The bound of the paper's Propositions 3.2 and 3.4. It is false.

    k s^(K-1) Π_i r_i with s = σ √D, r_i = λ_max(A_i) / ‖u_i‖ for Taylor and
    (λ_max(A_i) - λ_mean(A_i)) / ‖u_i‖ for MMSE, and k the greatest density of a normal
    vector with the correlations of the u_i. The proof bounds a union by a product, and
    loses a factor of √D: with two classes it is false already. Chapter 19.

    Parameters
    ----------
    eigenvalues : Tensor or array, shape (K - 1, D)
        Eigenvalues of the symmetric matrices A_i, of any sign.
    gradients : Tensor or array, shape (K - 1, D)
        The vectors u_i.
    sigma : float or sequence
        Standard deviations of the noise in every coordinate, in units of the input.
    estimator : {"taylor", "mmse"}, default "taylor"
        The linearization that errs: the expansion at the input, or the best fit.

    Returns
    -------
    Tensor, shape () or (S,)
        Float64; infinite where the u_i are linearly dependent and no ratio is 0.

    Raises
    ------
    TypeError
        If an argument does not hold real numbers.
    ValueError
        If shapes do not fit together, a value is out of range or not finite, or a
        gradient is 0.

    Examples
    --------
    >>> curved = torch.tensor([[1.0, 1.0], [0.0, 0.0]])  # the second is linear
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
    if int(torch.linalg.matrix_rank(unit)) < count:
        volume = torch.zeros_like(volume)  # which rounding would hide
    product = (ratios / norms).prod() * _DENSITY**count
    bound = sigmas.reshape(-1) ** count * size ** (count / 2) * product / volume
    bound = torch.where(product == 0, torch.zeros_like(bound), bound)
    return squeeze(bound, sigmas)


def corrected_bound(
    eigenvalues: Any, gradients: Any, sigma: Any, *, estimator: Estimator = "taylor"
) -> Tensor:
    """A bound that holds (Chapter 19): a sum over classes, of order σ.

    √(2/π) σ Σ_i (‖A_i‖_* + √5 ‖A_i‖) / ‖u_i‖ for Taylor, with the nuclear and the
    spectral norm, and √(2/π) σ Σ_i (√2 ‖A_i‖_F + 3 ‖A_i‖) / ‖u_i‖ for MMSE.

    Parameters
    ----------
    eigenvalues, gradients, sigma, estimator
        As for :func:`printed_bound`, which raises the same exceptions.

    Returns
    -------
    Tensor, shape () or (S,)
        Float64, in [0, 1].

    Examples
    --------
    >>> curved = torch.tensor([[1.0, 1.0], [0.0, 0.0]])
    >>> bounds = corrected_bound(curved, torch.eye(2), [0.001, 0.002])
    >>> round(float(bounds[1] / bounds[0]), 6)
    2.0
    """
    values, vectors, sigmas = _check(eigenvalues, gradients, sigma, estimator)
    norms = torch.linalg.vector_norm(vectors, dim=1)
    largest = values.abs().amax(dim=1)
    if estimator == "taylor":
        sizes = values.abs().sum(dim=1) + math.sqrt(5) * largest
    else:
        sizes = math.sqrt(2) * torch.linalg.vector_norm(values, dim=1) + 3 * largest
    bound = 2 * _DENSITY * sigmas.reshape(-1) * (sizes / norms).sum()
    return squeeze(bound.clamp(max=1.0), sigmas)


def _check(
    eigenvalues: Any, gradients: Any, sigma: Any, estimator: str
) -> tuple[Tensor, Tensor, Tensor]:
    values = as_real("eigenvalues", eigenvalues).cpu()
    vectors = as_real("gradients", gradients).cpu()
    sigmas = check_positives("sigma", sigma)
    check_choice("estimator", estimator, ("taylor", "mmse"))
    matrices = values.ndim == 2 and values.shape == vectors.shape and values.numel()
    finite = bool(torch.isfinite(values).all() and torch.isfinite(vectors).all())
    if not (matrices and finite and bool(vectors.any(dim=1).all())):
        raise ValueError(
            "eigenvalues, gradients: expected finite numbers of one shape (K - 1, D), "
            "and no gradient of 0, without whose slope there is no bound; got shapes "
            f"{tuple(values.shape)} and {tuple(vectors.shape)}"
        )
    return values, vectors, sigmas
