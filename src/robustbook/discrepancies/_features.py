"""Discrepancies between sets of features."""

import math
from typing import Final

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from robustbook._checks.arguments import (
    ArrayLike,
    check_feature_sets,
    check_paired,
    check_positive,
)
from robustbook.discrepancies._posteriors import Reduction, reduced

#: Entries of a block of kernel values, 8 MB.
_BLOCK: Final = 1 << 20
#: Features of each side from which the median distance is taken.
_MEDIAN_SAMPLE: Final = 500


def cosine_similarity(
    features: ArrayLike, shifted_features: ArrayLike, *, reduction: Reduction = "mean"
) -> float | Tensor:
    """Cosine of the angle between paired features.

    Features after a ReLU are non-negative, and so is their cosine. Source: the thesis,
    end of section 4.2; Chapter 12.

    Parameters
    ----------
    features, shifted_features : Tensor or array, shape (N, D)
        Paired features.
    reduction : {"mean", "none"}, default "mean"
        The mean, a float, or the term of every sample: Tensor of shape (N,).

    Returns
    -------
    float, or Tensor of shape (N,)
        In [-1, 1]. It is a similarity: unlike all others in this module, it is larger
        the more alike the features are.

    Raises
    ------
    TypeError, ValueError
        If shapes differ, a number is not finite, or an option is out of range.

    Examples
    --------
    >>> cosine_similarity([[1.0, 0.0], [0.0, 2.0]], [[0.0, 3.0], [0.0, 1.0]])
    0.5
    """
    clean, shifted = _paired_features(features, shifted_features)
    for name, values in (("features", clean), ("shifted_features", shifted)):
        empty = (values == 0).all(dim=1)
        if bool(empty.any()):
            raise ValueError(
                f"{name}: expected vectors that have a direction, got all zeros at "
                f"row {int(empty.nonzero()[0])}; leave such pairs out"
            )
    # Scaled first, as squares of tiny features would underflow.
    clean = clean / clean.abs().amax(1, keepdim=True)
    shifted = shifted / shifted.abs().amax(1, keepdim=True)
    cosines = functional.cosine_similarity(clean, shifted, dim=1).clamp(-1.0, 1.0)
    return reduced(cosines, reduction)


def centroid_distance(
    features: ArrayLike, shifted_features: ArrayLike, *, relative: bool = False
) -> float:
    """Euclidean distance between the means of two sets of features.

    Source: the thesis, end of section 4.2; Chapter 12.

    Parameters
    ----------
    features : Tensor or array, shape (N, D)
        Features of the clean inputs.
    shifted_features : Tensor or array, shape (M, D)
        Features of the shifted inputs.
    relative : bool, default False
        Divide by the root of the total variance of the clean features, the trace of
        their covariance, so that the unit cancels, as comparisons of networks need.

    Returns
    -------
    float
        At least 0, in the unit of the features; without a unit if relative.

    Raises
    ------
    TypeError, ValueError
        If shapes differ, a number is not finite, or an option is out of range.

    Examples
    --------
    >>> clean = [[0.0, 0.0], [2.0, 0.0]]
    >>> centroid_distance(clean, [[1.0, 3.0], [1.0, 5.0]])
    4.0
    """
    clean, shifted = check_feature_sets(features, shifted_features)
    distance = float(torch.linalg.vector_norm(clean.mean(0) - shifted.mean(0)))
    return distance / math.sqrt(_total_variance(clean)) if relative else distance


def mmd(
    features: ArrayLike,
    shifted_features: ArrayLike,
    *,
    bandwidth: float | None = None,
    reduction: Reduction = "mean",
) -> float | Tensor:
    r"""Unbiased squared maximum mean discrepancy with a Gaussian kernel.

    With :math:`k(u, v) = \exp(-\|u - v\|^2 / 2\sigma^2)` and pairs
    :math:`(u_i, v_i)`, the mean over :math:`i \ne l` of

    .. math:: k(u_i, u_l) + k(v_i, v_l) - k(u_i, v_l) - k(u_l, v_i) .

    The two members of a pair are never compared with each other, so the estimate is
    unbiased although they depend on each other. Time grows with N², memory does not.
    Source: the thesis, end of section 4.2; Gretton et al., "A kernel two-sample test",
    JMLR 13 (2012), Lemma 6; Chapter 12.

    Parameters
    ----------
    features, shifted_features : Tensor or array, shape (N, D)
        Features of at least 2 inputs; row i of both is one pair.
    bandwidth : float, optional
        The kernel's σ, in the unit of the features. By default, it is the median
        distance between points of both sets together (at most 500 of each, evenly
        spaced), and the result does not depend on the scale of the features.
    reduction : {"mean", "none"}, default "mean"
        The estimate, or the N terms whose mean it is: the mean over l for each i.
        Its standard error is ``2 * terms.std() / sqrt(N)`` where the distributions
        differ (where they are equal, the error falls faster, like 1/N).

    Returns
    -------
    float, or Tensor of shape (N,)
        The square, in [-2, 2]. The true value is in [0, 2], but where distributions are
        equal, an unbiased estimate falls below 0 about half of the time.

    Raises
    ------
    TypeError, ValueError
        If shapes differ, a number is not finite, or an option is out of range.

    Examples
    --------
    >>> points = torch.randn(200, 3, generator=torch.Generator().manual_seed(0))
    >>> mmd(points, points + 1.0) > 0.1 > mmd(points, points.flip(0))
    True
    """
    clean, shifted = _paired_features(features, shifted_features)
    count = len(clean)
    if count < 2:
        raise ValueError(f"features: expected at least 2 samples, got {count}")
    # Centered features have the same distances, which lose fewer digits.
    origin = (clean.mean(0) + shifted.mean(0)) / 2.0
    clean, shifted = clean - origin, shifted - origin
    if bandwidth is None:
        width = _median_distance(clean, shifted)
    else:
        width = check_positive("bandwidth", bandwidth)
    clean, shifted = clean / width, shifted / width
    sums = torch.zeros(count, dtype=torch.float64, device=clean.device)
    for rows in torch.split(torch.arange(count), max(1, _BLOCK // count)):
        cross = _kernel(clean[rows], shifted)
        within = _kernel(clean[rows], clean) + _kernel(shifted[rows], shifted)
        for values in (cross, within):  # No point is compared with its own pair.
            values[torch.arange(len(rows)), rows] = 0.0
        sums[rows] += within.sum(1) - cross.sum(1)
        sums -= cross.sum(0)
    return reduced(sums / (count - 1), reduction)


def frechet_distance(
    features: ArrayLike, shifted_features: ArrayLike, *, relative: bool = False
) -> float:
    r"""Fréchet distance between Gaussians fitted to two sets of features (squared).

    With means :math:`\mu` and covariances :math:`\Sigma` of the two sets,

    .. math:: \|\mu' - \mu''\|^2 + \operatorname{tr}\bigl(\Sigma' + \Sigma''
        - 2 (\Sigma'^{1/2} \Sigma'' \Sigma'^{1/2})^{1/2}\bigr) .

    It is biased upwards, the more so the larger D / N is. On features of an Inception
    network, it is the *Fréchet inception distance* (FID). Source: the thesis, end of
    section 4.2 and Figure 4.12; Dowson and Landau, "The Fréchet distance between
    multivariate normal distributions", 1982; Chapter 12.

    Parameters
    ----------
    features : Tensor or array, shape (N, D)
        Features of the clean inputs, N > D.
    shifted_features : Tensor or array, shape (M, D)
        Features of the shifted inputs, M > D.
    relative : bool, default False
        Divide by the total variance of the clean features, the trace of their
        covariance, so that the unit cancels, as comparisons of networks need.

    Returns
    -------
    float
        The squared 2-Wasserstein distance of the two Gaussians, in the squared unit of
        the features; without a unit if relative.

    Raises
    ------
    TypeError, ValueError
        If shapes differ, a number is not finite, or an option is out of range.

    Examples
    --------
    >>> clean = [[-1.0], [0.0], [1.0]]
    >>> shifted = [[1.0], [4.0], [7.0]]  # mean 4 not 0, standard deviation 3 not 1
    >>> round(frechet_distance(clean, shifted), 9)
    20.0
    """
    clean, shifted = check_feature_sets(features, shifted_features)
    for name, values in (("features", clean), ("shifted_features", shifted)):
        count, dimension = values.shape
        if count <= dimension:
            raise ValueError(
                f"{name}: expected more samples than features, or the covariance has "
                f"no full rank, got shape {(count, dimension)}; take more samples or "
                f"fewer features (principal components, say), or use mmd"
            )
    # Division by a power of two is exact and keeps squares from over- or underflow.
    largest = float(torch.maximum(clean.abs().amax(), shifted.abs().amax()))
    unit = 2.0 ** math.frexp(largest)[1]
    clean, shifted = clean / unit, shifted / unit
    means = (clean.mean(0) - shifted.mean(0)).square().sum()
    first, second = (torch.cov(x.T).reshape(2 * x.shape[1:]) for x in (clean, shifted))
    values, vectors = torch.linalg.eigh(first)
    root = (vectors * values.clamp_min(0.0).sqrt()) @ vectors.T
    product = torch.linalg.eigvalsh(root @ second @ root).clamp_min(0.0)
    spread = first.trace() + second.trace() - 2.0 * product.sqrt().sum()
    distance = max(float(means + spread), 0.0)
    return distance / _total_variance(clean) if relative else distance * unit * unit


def _paired_features(
    features: ArrayLike, shifted_features: ArrayLike
) -> tuple[Tensor, Tensor]:
    pair = check_feature_sets(features, shifted_features)
    check_paired(("features", "shifted_features"), *pair)
    return pair


def _total_variance(clean: Tensor) -> float:
    """Return the trace of the covariance of the clean features."""
    total = float(clean.var(0, correction=1).sum()) if len(clean) > 1 else 0.0
    if total == 0.0:
        raise ValueError(
            "features: expected features that vary, as relative=True divides by their "
            "variance, got the same vector for all samples"
        )
    return total


def _kernel(first: Tensor, second: Tensor) -> Tensor:
    """Return the Gaussian kernel of width 1, all rows against all rows."""
    squares = torch.addmm(first.square().sum(1)[:, None], first, second.T, alpha=-2.0)
    squares += second.square().sum(1)[None, :]
    return squares.clamp_min_(0.0).mul_(-0.5).exp_()


def _median_distance(clean: Tensor, shifted: Tensor) -> float:
    """Return the median distance between evenly spaced points of both sets."""
    rows = np.unique(np.linspace(0, len(clean) - 1, _MEDIAN_SAMPLE).round())
    index = torch.from_numpy(rows.astype(np.int64)).to(clean.device)
    width = float(torch.pdist(torch.cat([clean[index], shifted[index]])).median())
    if width == 0.0:
        raise ValueError(
            "features: expected points that differ, got a median distance of 0; pass "
            "`bandwidth`"
        )
    return width
