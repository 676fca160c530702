"""Discrepancies between paired posteriors."""

import math
from typing import Literal

import torch
from scipy.stats import wasserstein_distance
from torch import Tensor
from torch.nn import functional

from robustbook._checks.arguments import (
    ArrayLike,
    check_choice,
    check_logit_pair,
    check_non_negative,
)
from robustbook.agreement import log_posterior

Ground = Literal["discrete", "index", "confidence"]
Reduction = Literal["mean", "none"]


def reduced(terms: Tensor, reduction: Reduction) -> float | Tensor:
    """Return the mean of the terms, or the terms."""
    check_choice("reduction", reduction, ("mean", "none"))
    return float(terms.mean()) if reduction == "mean" else terms


def kl_divergence(
    logits: ArrayLike,
    shifted_logits: ArrayLike,
    *,
    beta: float = 1.0,
    reduction: Reduction = "mean",
) -> float | Tensor:
    r"""Kullback-Leibler divergence from shifted to clean posteriors.

    .. math:: \mathrm{KL}(p'_i \| p''_i)
        = \sum_j p'_i(j) \log \frac{p'_i(j)}{p''_i(j)}

    Large where the clean posterior is sure of a class to which the shifted one gives
    almost no probability. Source: the thesis, end of section 4.2; Chapter 12.

    Parameters
    ----------
    logits, shifted_logits : Tensor or array, shape (N, K)
        Paired logits.
    beta : float, default 1
        Inverse temperature, at least 0; may be ``inf``.
    reduction : {"mean", "none"}, default "mean"
        The mean, a float, or the term of every sample: Tensor of shape (N,).

    Returns
    -------
    float, or Tensor of shape (N,)
        Nats, at least 0, and by Pinsker's inequality at least twice the squared
        :func:`total_variation`. With ``beta=inf``, it is ``inf`` where the shifted
        posterior excludes a class that the clean one does not.

    Raises
    ------
    TypeError, ValueError
        If shapes differ, a number is not finite, or an option is out of range.

    Examples
    --------
    >>> clean, shifted = [[0.0, 0.0]], [[math.log(3.0), 0.0]]
    >>> round(kl_divergence(clean, shifted), 4)  # log 2 - log(3) / 2
    0.1438
    """
    clean, shifted = _log_posteriors(logits, shifted_logits, beta)
    return reduced(_kl(clean, shifted), reduction)


def jensen_shannon(
    logits: ArrayLike,
    shifted_logits: ArrayLike,
    *,
    beta: float = 1.0,
    reduction: Reduction = "mean",
) -> float | Tensor:
    r"""Jensen-Shannon divergence between paired posteriors.

    .. math:: \tfrac12 \mathrm{KL}(p'_i \| q_i) + \tfrac12 \mathrm{KL}(p''_i \| q_i),
        \qquad q_i = \tfrac12 (p'_i + p''_i)

    If a fair coin decides from which of the two posteriors a class is drawn, it is the
    information that the class gives about the coin. Source: Chapter 12; not in the
    papers.

    Parameters
    ----------
    logits, shifted_logits, beta, reduction
        As for :func:`kl_divergence`.

    Returns
    -------
    float, or Tensor of shape (N,)
        Nats, in [0, log 2]: at most log 2 times the :func:`total_variation`.

    Raises
    ------
    TypeError, ValueError
        If shapes differ, a number is not finite, or an option is out of range.

    Examples
    --------
    >>> far = jensen_shannon([[900.0, 0.0]], [[0.0, 900.0]])
    >>> abs(far - math.log(2)) < 1e-12
    True
    """
    clean, shifted = _log_posteriors(logits, shifted_logits, beta)
    middle = torch.logaddexp(clean, shifted) - math.log(2.0)
    terms = 0.5 * (_kl(clean, middle) + _kl(shifted, middle))
    return reduced(terms.clamp(0.0, math.log(2.0)), reduction)


def total_variation(
    logits: ArrayLike,
    shifted_logits: ArrayLike,
    *,
    beta: float = 1.0,
    reduction: Reduction = "mean",
) -> float | Tensor:
    r"""Total variation distance between paired posteriors; Chapter 12.

    .. math:: \tfrac12 \sum_j |p'_i(j) - p''_i(j)|

    Parameters
    ----------
    logits, shifted_logits, beta, reduction
        As for :func:`kl_divergence`.

    Returns
    -------
    float, or Tensor of shape (N,)
        In [0, 1]. With ``beta=inf``, and without ties, the mean is the mismatch rate.

    Raises
    ------
    TypeError, ValueError
        If shapes differ, a number is not finite, or an option is out of range.

    Examples
    --------
    >>> clean, shifted = [[0.0, 0.0]], [[math.log(3.0), 0.0]]
    >>> round(total_variation(clean, shifted), 12)
    0.25
    """
    clean, shifted = _posteriors(logits, shifted_logits, beta)
    return reduced(_variation(clean, shifted), reduction)


def wasserstein(
    logits: ArrayLike,
    shifted_logits: ArrayLike,
    *,
    beta: float = 1.0,
    ground: Ground = "discrete",
    reduction: Reduction = "mean",
) -> float | Tensor:
    """1-Wasserstein distance, for one of three distances between outcomes.

    The thesis (end of section 4.2, Figure 4.12) does not say which distance it takes.

    ``"discrete"``
        Different classes are at distance 1, as classes have no order. The result *is*
        the :func:`total_variation`, the mass that has to move.
    ``"index"``
        Classes j and k are at distance ``abs(j - k)``. The result depends on how the
        classes happen to be numbered, so that its value has no meaning by itself.
    ``"confidence"``
        The distance between the distributions over the *data set* of the largest
        probability, before and after the shift; samples and classes do not matter.

    Parameters
    ----------
    logits, shifted_logits, beta
        As for :func:`kl_divergence`.
    ground : {"discrete", "index", "confidence"}, default "discrete"
        Distance between outcomes.
    reduction : {"mean", "none"}, default "mean"
        The mean over samples, or the value of each sample, which does not exist for
        ``ground="confidence"``.

    Returns
    -------
    float, or Tensor of shape (N,)
        In [0, 1]; for ``ground="index"`` in [0, K - 1].

    Raises
    ------
    TypeError, ValueError
        If shapes differ, a number is not finite, or an option is out of range.

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
        return reduced(_variation(clean, shifted), reduction)
    if ground == "index":
        # On the line, the distance is the area between the distribution functions.
        area = (clean - shifted).cumsum(1)[:, :-1].abs().sum(1)
        return reduced(area, reduction)
    if reduction != "mean":
        raise ValueError(
            f"reduction: expected 'mean' with ground='confidence', which compares two "
            f"data sets and has no value for a sample; got {reduction!r}"
        )
    before, after = (side.amax(1).cpu().numpy() for side in (clean, shifted))
    return float(wasserstein_distance(before, after))


def _log_posteriors(
    logits: ArrayLike, shifted_logits: ArrayLike, beta: float
) -> tuple[Tensor, Tensor]:
    """Return logarithms, which stay finite where the posteriors underflow."""
    beta = check_non_negative("beta", beta, infinite=True)
    clean, shifted = check_logit_pair(logits, shifted_logits)
    return log_posterior(clean, beta), log_posterior(shifted, beta)


def _posteriors(
    logits: ArrayLike, shifted_logits: ArrayLike, beta: float
) -> tuple[Tensor, Tensor]:
    clean, shifted = _log_posteriors(logits, shifted_logits, beta)
    return clean.exp(), shifted.exp()


def _kl(log_p: Tensor, log_q: Tensor) -> Tensor:
    terms = functional.kl_div(log_q, log_p, log_target=True, reduction="none")
    # Classes that p excludes count as 0, whatever their q.
    terms = terms.masked_fill(log_p.exp() == 0.0, 0.0)
    return terms.sum(1).clamp_min(0.0)


def _variation(p: Tensor, q: Tensor) -> Tensor:
    return ((p - q).abs().sum(1) / 2.0).clamp_max(1.0)
