r"""Other discrepancies between clean and shifted outputs, to compare agreement with.

Two kinds. Between *posteriors*, from paired logits at one inverse temperature:
:func:`kl_divergence`, :func:`jensen_shannon`, :func:`total_variation`,
:func:`wasserstein`. Between *features*, what a network computes before its last
linear layer: :func:`cosine_similarity`, :func:`centroid_distance`, :func:`mmd`,
:func:`frechet_distance`. Each is one float for the whole data set. Where it is a mean
over samples, ``reduction="none"`` returns the N terms, for standard errors and groups.

Unlike posterior agreement, the posterior discrepancies depend on the scale of the
logits, unless beta is 0 or ``inf``, and some of the others on that of the features.
Source: the thesis, end of section 4.2 (Figures 4.12, B.14 and B.15); Chapter 11.
"""

import math
from typing import Any, Final, Literal

import numpy as np
import torch
from scipy.stats import wasserstein_distance
from torch import Tensor
from torch.nn import functional

from robustbook._checks.arguments import (
    LARGEST_LOGIT,
    check_choice,
    check_feature_sets,
    check_logit_pair,
    check_non_negative,
    check_paired,
    check_positive,
    check_together,
)
from robustbook._docs import SharedDocs
from robustbook.agreement import gibbs_posterior

__all__ = [
    "centroid_distance",
    "cosine_similarity",
    "frechet_distance",
    "jensen_shannon",
    "kl_divergence",
    "mmd",
    "total_variation",
    "wasserstein",
]

#: Rows of a block of kernel values: 1024 x 1024 numbers are 8 MB.
_BLOCK: Final = 1024
#: Features of each side from which the median distance is taken.
_MEDIAN_SAMPLE: Final = 500

Ground = Literal["discrete", "index", "confidence"]
Reduction = Literal["mean", "none"]


class _Shared:
    """Entries of the docstrings.

    logits, shifted_logits : Tensor or array, shape (N, K)
        Paired logits.
    beta : float, default 1
        Inverse temperature, at least 0; may be ``inf``.
    features, shifted_features : Tensor or array, shape (N, D)
        Paired features.
    features : Tensor or array, shape (N, D)
        Features of the clean inputs.
    shifted_features : Tensor or array, shape (M, D)
        Features of the shifted inputs.
    reduction : {"mean", "none"}, default "mean"
        The mean, a float, or the term of every sample or pair: Tensor of shape (N,).
    relative : bool, default False
        Divide by the total variance of the clean features (the trace of their
        covariance; by its root, for a distance that is no square), so that the unit
        of the features drops out. Do not compare networks without.
    TypeError
        If an argument is of another kind than described.
    ValueError
        If shapes do not fit together, a number is not finite, an option is out of
        range, or what is divided by is 0.
    """


_SHARED = SharedDocs(_Shared.__doc__)


@_SHARED.fill
def kl_divergence(
    logits: Any,
    shifted_logits: Any,
    *,
    beta: float = 1.0,
    reduction: Reduction = "mean",
) -> float | Tensor:
    r"""Kullback-Leibler divergence from shifted to clean posteriors.

    .. math:: \mathrm{KL}(p'_i \| p''_i)
        = \sum_j p'_i(j) \log \frac{p'_i(j)}{p''_i(j)}

    Large where the clean model is sure of a class to which the shifted one gives almost
    nothing. Source: the thesis, end of section 4.2; Chapter 11.

    Parameters
    ----------
    {logits, shifted_logits} {beta} {reduction}

    Returns
    -------
    float, or Tensor of shape (N,)
        Nats, at least 0; ``inf`` where the shifted posterior excludes a class that the
        clean one does not, which takes ``beta=inf``. By Pinsker's inequality at least
        twice the squared :func:`total_variation`.

    {TypeError} {ValueError}

    Examples
    --------
    >>> clean, shifted = [[0.0, 0.0]], [[math.log(3.0), 0.0]]
    >>> round(kl_divergence(clean, shifted), 4)  # log 2 - log(3) / 2
    0.1438
    """
    clean, shifted = _log_posteriors(logits, shifted_logits, beta)
    return _reduced(_kl(clean, shifted), reduction)


@_SHARED.fill
def jensen_shannon(
    logits: Any,
    shifted_logits: Any,
    *,
    beta: float = 1.0,
    reduction: Reduction = "mean",
) -> float | Tensor:
    r"""Jensen-Shannon divergence between paired posteriors.

    .. math:: \tfrac12 \mathrm{KL}(p'_i \| q_i) + \tfrac12 \mathrm{KL}(p''_i \| q_i),
        \qquad q_i = \tfrac12 (p'_i + p''_i)

    The information that a class, drawn from one of the two posteriors after a fair
    coin, gives about the coin. Source: Chapter 11; not in the papers.

    Parameters
    ----------
    {logits, shifted_logits} {beta} {reduction}

    Returns
    -------
    float, or Tensor of shape (N,)
        Nats, in [0, log 2]: at most log 2 times the :func:`total_variation`.

    {TypeError} {ValueError}

    Examples
    --------
    >>> far = jensen_shannon([[900.0, 0.0]], [[0.0, 900.0]])
    >>> abs(far - math.log(2)) < 1e-12
    True
    """
    clean, shifted = _log_posteriors(logits, shifted_logits, beta)
    middle = torch.logaddexp(clean, shifted) - math.log(2.0)
    terms = 0.5 * (_kl(clean, middle) + _kl(shifted, middle))
    return _reduced(terms.clamp(0.0, math.log(2.0)), reduction)


@_SHARED.fill
def total_variation(
    logits: Any,
    shifted_logits: Any,
    *,
    beta: float = 1.0,
    reduction: Reduction = "mean",
) -> float | Tensor:
    r"""Total variation distance between paired posteriors; Chapter 11.

    .. math:: \tfrac12 \sum_j |p'_i(j) - p''_i(j)|

    Parameters
    ----------
    {logits, shifted_logits} {beta} {reduction}

    Returns
    -------
    float, or Tensor of shape (N,)
        In [0, 1]. With ``beta=inf``, and without ties, the mean is the mismatch rate.

    {TypeError} {ValueError}

    Examples
    --------
    >>> clean, shifted = [[0.0, 0.0]], [[math.log(3.0), 0.0]]
    >>> round(total_variation(clean, shifted), 12)
    0.25
    """
    clean, shifted = _posteriors(logits, shifted_logits, beta)
    return _reduced(_variation(clean, shifted), reduction)


@_SHARED.fill
def wasserstein(
    logits: Any,
    shifted_logits: Any,
    *,
    beta: float = 1.0,
    ground: Ground = "discrete",
    reduction: Reduction = "mean",
) -> float | Tensor:
    """1-Wasserstein distance, which needs a distance between outcomes first.

    The thesis (end of section 4.2, Figure 4.12) does not say which. Three answers:

    ``"discrete"``
        Two different classes are at distance 1: classes have no order. Then it *is* the
        :func:`total_variation`, the mass that has to move.
    ``"index"``
        Classes j and k are at distance ``abs(j - k)``: it depends on how the classes
        happen to be numbered, so it measures nothing by itself.
    ``"confidence"``
        The distance between two distributions over the *data set*, of the largest
        probability before and after the shift: samples and classes are forgotten.

    Parameters
    ----------
    {logits, shifted_logits} {beta}
    ground : {"discrete", "index", "confidence"}, default "discrete"
        Distance between outcomes.
    reduction : {"mean", "none"}, default "mean"
        The mean over samples, or every sample's value, which
        ``ground="confidence"`` does not have.

    Returns
    -------
    float, or Tensor of shape (N,)
        In [0, 1]; for ``ground="index"`` in [0, K - 1].

    {TypeError} {ValueError}

    Examples
    --------
    >>> clean, shifted = [[900.0, 0.0, 0.0]], [[0.0, 0.0, 900.0]]
    >>> for ground in ("discrete", "index", "confidence"):
    ...     print(ground, wasserstein(clean, shifted, ground=ground))
    discrete 1.0
    index 2.0
    confidence 0.0
    """
    check_choice("ground", ground, ("discrete", "index", "confidence"))
    clean, shifted = _posteriors(logits, shifted_logits, beta)
    if ground == "discrete":
        return _reduced(_variation(clean, shifted), reduction)
    if ground == "index":
        # On the line, the distance is the area between the distribution functions.
        area = (clean - shifted).cumsum(1)[:, :-1].abs().sum(1)
        return _reduced(area, reduction)
    if reduction != "mean":
        raise ValueError(
            f"reduction: expected 'mean' with ground='confidence', which compares two "
            f"data sets and has no value for a sample; got {reduction!r}"
        )
    before, after = (side.amax(1).cpu().numpy() for side in (clean, shifted))
    return float(wasserstein_distance(before, after))


@_SHARED.fill
def cosine_similarity(
    features: Any, shifted_features: Any, *, reduction: Reduction = "mean"
) -> float | Tensor:
    """Cosine of the angle between paired features.

    Features after a ReLU are non-negative, and so is their cosine. Source: the thesis,
    end of section 4.2; Chapter 11.

    Parameters
    ----------
    {features, shifted_features} {reduction}

    Returns
    -------
    float, or Tensor of shape (N,)
        In [-1, 1]. A similarity: larger is more alike, unlike all else in this module.

    {TypeError} {ValueError}

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
    # Unit vectors of any scale: squares of tiny features would underflow.
    clean = clean / clean.abs().amax(1, keepdim=True)
    shifted = shifted / shifted.abs().amax(1, keepdim=True)
    cosines = functional.cosine_similarity(clean, shifted, dim=1).clamp(-1.0, 1.0)
    return _reduced(cosines, reduction)


@_SHARED.fill
def centroid_distance(
    features: Any, shifted_features: Any, *, relative: bool = False
) -> float:
    """Euclidean distance between the means of two sets of features.

    Source: the thesis, end of section 4.2; Chapter 11.

    Parameters
    ----------
    {features} {shifted_features} {relative}

    Returns
    -------
    float
        At least 0, in the unit of the features; without unit if relative.

    {TypeError} {ValueError}

    Examples
    --------
    >>> clean = [[0.0, 0.0], [2.0, 0.0]]
    >>> centroid_distance(clean, [[1.0, 3.0], [1.0, 5.0]])
    4.0
    """
    clean, shifted = _feature_sets(features, shifted_features)
    distance = float(torch.linalg.vector_norm(clean.mean(0) - shifted.mean(0)))
    return distance / math.sqrt(_total_variance(clean)) if relative else distance


@_SHARED.fill
def mmd(
    features: Any,
    shifted_features: Any,
    *,
    bandwidth: float | None = None,
    reduction: Reduction = "mean",
) -> float | Tensor:
    r"""Squared maximum mean discrepancy with a Gaussian kernel, without bias.

    With :math:`k(u, v) = \exp(-\|u - v\|^2 / 2\sigma^2)` and pairs
    :math:`(u_i, v_i)`, the mean over :math:`i \ne l` of

    .. math:: k(u_i, u_l) + k(v_i, v_l) - k(u_i, v_l) - k(u_l, v_i) .

    The two members of a pair never meet, so the estimate is unbiased although they
    depend on each other. Time grows with N², memory does not. Source: the thesis, end
    of section 4.2; Gretton et al., "A kernel two-sample test", JMLR 13 (2012), Lemma 6;
    Chapter 11.

    Parameters
    ----------
    features, shifted_features : Tensor or array, shape (N, D)
        Features; N at least 2. Pairs matter for the bias only.
    bandwidth : float, optional
        The kernel's σ, in the unit of the features. By default the median distance
        between points of both sets together (at most 500 of each, evenly spaced);
        then the result does not depend on the scale of the features.
    reduction : {"mean", "none"}, default "mean"
        The estimate, or the N terms whose mean it is: the mean over l for each i.
        Its standard error is ``2 * terms.std() / sqrt(N)`` where the distributions
        differ (where they are equal, the error falls faster, like 1/N).

    Returns
    -------
    float, or Tensor of shape (N,)
        The square, in [-2, 2]: the truth is in [0, 2], but where distributions are
        equal, an estimate without bias falls below 0 about half of the time.

    {TypeError} {ValueError}

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
    # Distances do not change, and their computation loses fewer digits.
    origin = (clean.mean(0) + shifted.mean(0)) / 2.0
    clean, shifted = clean - origin, shifted - origin
    if bandwidth is None:
        width = _median_distance(clean, shifted)
    else:
        width = check_positive("bandwidth", bandwidth)
    clean, shifted = clean / width, shifted / width
    if not bool(clean.isfinite().all() & shifted.isfinite().all()):
        raise ValueError(
            f"bandwidth: expected a number on the scale of the features, got {width:g}"
        )
    sums = torch.zeros(count, dtype=torch.float64, device=clean.device)
    for start in range(0, count, _BLOCK):
        rows = slice(start, start + _BLOCK)
        for other in range(0, count, _BLOCK):
            columns = slice(other, other + _BLOCK)
            cross = _kernel(clean[rows], shifted[columns])
            if start == other:
                cross.fill_diagonal_(0.0)
            sums[rows] -= cross.sum(1)
            sums[columns] -= cross.sum(0)
            if other < start:
                continue  # the kernel within a set is symmetric
            inner = _kernel(clean[rows], clean[columns])
            inner += _kernel(shifted[rows], shifted[columns])
            if start == other:
                inner.fill_diagonal_(0.0)
            else:
                sums[columns] += inner.sum(0)
            sums[rows] += inner.sum(1)
    return _reduced(sums / (count - 1), reduction)


@_SHARED.fill
def frechet_distance(
    features: Any, shifted_features: Any, *, relative: bool = False
) -> float:
    r"""Fréchet distance between Gaussians fitted to two sets of features (squared).

    With means :math:`\mu` and covariances :math:`\Sigma` of the two sets,

    .. math:: \|\mu' - \mu''\|^2 + \operatorname{tr}\bigl(\Sigma' + \Sigma''
        - 2 (\Sigma'^{1/2} \Sigma'' \Sigma'^{1/2})^{1/2}\bigr) .

    Biased upwards, the more the larger D / N is. On the features of an Inception
    network it is the *Fréchet inception distance* (FID). Source: the thesis, end of
    section 4.2 and Figure 4.12; Dowson and Landau, "The Fréchet distance between
    multivariate normal distributions", 1982; Chapter 11.

    Parameters
    ----------
    features : Tensor or array, shape (N, D)
        Features of the clean inputs, N > D.
    shifted_features : Tensor or array, shape (M, D)
        Features of the shifted inputs, M > D.
    {relative}

    Returns
    -------
    float
        The squared 2-Wasserstein distance of the two Gaussians, in the squared unit of
        the features; without unit if relative.

    {TypeError} {ValueError}

    Examples
    --------
    >>> clean = [[-1.0], [0.0], [1.0]]
    >>> shifted = [[1.0], [4.0], [7.0]]  # mean 4 not 0, standard deviation 3 not 1
    >>> round(frechet_distance(clean, shifted), 9)
    20.0
    """
    clean, shifted = _feature_sets(features, shifted_features)
    for name, values in (("features", clean), ("shifted_features", shifted)):
        count, dimension = values.shape
        if count <= dimension:
            raise ValueError(
                f"{name}: expected more samples than features, or the covariance has "
                f"no full rank, got shape {(count, dimension)}; take more samples or "
                f"fewer features (principal components, say), or use mmd"
            )
    # A power of two, which changes no digit, keeps squares from over- or underflow.
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


def _reduced(terms: Tensor, reduction: Reduction) -> float | Tensor:
    check_choice("reduction", reduction, ("mean", "none"))
    return float(terms.mean()) if reduction == "mean" else terms


def _posteriors(logits: Any, shifted_logits: Any, beta: float) -> tuple[Tensor, Tensor]:
    clean, shifted = check_logit_pair(logits, shifted_logits)
    return gibbs_posterior(clean, beta), gibbs_posterior(shifted, beta)


def _log_posteriors(
    logits: Any, shifted_logits: Any, beta: float
) -> tuple[Tensor, Tensor]:
    """Logarithms that stay finite where the posteriors underflow."""
    if math.isinf(check_non_negative("beta", beta, infinite=True)):
        first, second = _posteriors(logits, shifted_logits, beta)
        return first.log(), second.log()
    first, second = (
        # The largest logit becomes 0 first, so that no product is +inf.
        functional.log_softmax(beta * (x - x.amax(1, keepdim=True)), dim=1)
        for x in map(Tensor.double, check_logit_pair(logits, shifted_logits))
    )
    return first, second


def _kl(log_p: Tensor, log_q: Tensor) -> Tensor:
    terms = functional.kl_div(log_q, log_p, log_target=True, reduction="none")
    # Classes that p excludes count nothing, whatever q says.
    terms = terms.masked_fill(log_p.exp() == 0.0, 0.0)
    return terms.sum(1).clamp_min(0.0)


def _variation(p: Tensor, q: Tensor) -> Tensor:
    return ((p - q).abs().sum(1) / 2.0).clamp_max(1.0)


def _feature_sets(features: Any, shifted_features: Any) -> tuple[Tensor, Tensor]:
    """Two sets of features whose squares can be summed, on one device."""
    first, second = check_feature_sets(features, shifted_features)
    for name, values in (("features", first), ("shifted_features", second)):
        size = float(values.abs().max())
        if size > LARGEST_LOGIT:
            raise ValueError(
                f"{name}: expected features within ±{LARGEST_LOGIT:g}, got {size:g}"
            )
    check_together(("features", "shifted_features"), first, second)
    return first, second


def _paired_features(features: Any, shifted_features: Any) -> tuple[Tensor, Tensor]:
    first, second = _feature_sets(features, shifted_features)
    check_paired(("features", "shifted_features"), first, second)
    return first, second


def _total_variance(clean: Tensor) -> float:
    """Trace of the covariance of the clean features."""
    total = float(clean.var(0, correction=1).sum()) if len(clean) > 1 else 0.0
    if total == 0.0:
        raise ValueError(
            "features: expected features that vary, as relative=True divides by their "
            "variance, got the same vector for all samples"
        )
    return total


def _kernel(first: Tensor, second: Tensor) -> Tensor:
    """Gaussian kernel of width 1, all rows against all rows."""
    squares = torch.addmm(first.square().sum(1)[:, None], first, second.T, alpha=-2.0)
    squares += second.square().sum(1)[None, :]
    return squares.clamp_min_(0.0).mul_(-0.5).exp_()


def _median_distance(clean: Tensor, shifted: Tensor) -> float:
    """Median distance between points of both sets, from evenly spaced rows."""
    rows = np.unique(np.linspace(0, len(clean) - 1, _MEDIAN_SAMPLE).round())
    index = torch.from_numpy(rows.astype(np.int64)).to(clean.device)
    width = float(torch.pdist(torch.cat([clean[index], shifted[index]])).median())
    if width == 0.0:
        raise ValueError(
            "features: expected points that differ, got a median distance of 0; pass "
            "`bandwidth`"
        )
    return width
