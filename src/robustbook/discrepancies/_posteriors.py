"""Discrepancies of paired posteriors, at one inverse temperature."""

from __future__ import annotations

import math
from typing import Any, Final, Literal

import torch
from scipy.stats import wasserstein_distance
from torch import Tensor
from torch.nn import functional

from robustbook._checks.arguments import (
    check_choice,
    check_logit_pair,
    check_non_negative,
)
from robustbook.agreement import gibbs_posterior
from robustbook.discrepancies._docs import SHARED

Ground = Literal["discrete", "index", "confidence"]
Reduction = Literal["mean", "none"]
_GROUNDS: Final = ("discrete", "index", "confidence")


@SHARED.fill
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

    The expectation is over the *clean* posterior: large where the clean model is
    sure of a class to which the shifted one gives almost nothing. For the other
    direction swap the arguments; for a symmetric one see :func:`jensen_shannon`.

    Parameters
    ----------
    {logits, shifted_logits} {beta} {reduction}

    Returns
    -------
    float, or Tensor of shape (N,)
        Nats, at least 0, not bounded; ``inf`` where the shifted posterior excludes
        a class that the clean one does not, which takes ``beta=inf``.

    Raises
    ------
    {TypeError} {ValueError}

    Notes
    -----
    Depends on the scale of the logits, unless `beta` is 0 or ``inf``. By Pinsker's
    inequality it is at least twice the squared :func:`total_variation`.

    References
    ----------
    The thesis, end of section 4.2; Chapter 11.

    Examples
    --------
    >>> import math
    >>> clean, shifted = [[0.0, 0.0]], [[math.log(3.0), 0.0]]
    >>> round(kl_divergence(clean, shifted), 4)  # log 2 - log(3) / 2
    0.1438
    """
    clean, shifted = _log_posteriors(logits, shifted_logits, beta)
    return reduced(_kl(clean, shifted), reduction)


@SHARED.fill
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

    Parameters
    ----------
    {logits, shifted_logits} {beta} {reduction}

    Returns
    -------
    float, or Tensor of shape (N,)
        Nats, in [0, log 2]; the divergence, not its square root.

    Raises
    ------
    {TypeError} {ValueError}

    Notes
    -----
    Symmetric, and depends on the scale of the logits, unless `beta` is 0 or
    ``inf``. It is the information that a class, drawn from one of the two posteriors
    after a fair coin, gives about the coin; at most log 2 times the
    :func:`total_variation`.

    References
    ----------
    Chapter 11 (a bounded relative of the thesis's Kullback-Leibler divergence).

    Examples
    --------
    >>> import math
    >>> far = jensen_shannon([[900.0, 0.0]], [[0.0, 900.0]])
    >>> abs(far - math.log(2)) < 1e-12
    True
    """
    clean, shifted = _log_posteriors(logits, shifted_logits, beta)
    middle = torch.logaddexp(clean, shifted) - math.log(2.0)
    terms = 0.5 * (_kl(clean, middle) + _kl(shifted, middle))
    return reduced(terms.clamp(0.0, math.log(2.0)), reduction)


@SHARED.fill
def total_variation(
    logits: Any,
    shifted_logits: Any,
    *,
    beta: float = 1.0,
    reduction: Reduction = "mean",
) -> float | Tensor:
    r"""Total variation distance between paired posteriors.

    .. math:: \tfrac12 \sum_j |p'_i(j) - p''_i(j)|

    Parameters
    ----------
    {logits, shifted_logits} {beta} {reduction}

    Returns
    -------
    float, or Tensor of shape (N,)
        In [0, 1]. With ``beta=inf``, and without ties, the mean is the mismatch
        rate 1 - AFR_P.

    Raises
    ------
    {TypeError} {ValueError}

    Notes
    -----
    Depends on the scale of the logits, unless `beta` is 0 or ``inf``.

    References
    ----------
    Chapter 11.

    Examples
    --------
    >>> import math
    >>> clean, shifted = [[0.0, 0.0]], [[math.log(3.0), 0.0]]
    >>> round(total_variation(clean, shifted), 12)
    0.25
    """
    clean, shifted = _posteriors(logits, shifted_logits, beta)
    return reduced(_variation(clean, shifted), reduction)


@SHARED.fill
def wasserstein(
    logits: Any,
    shifted_logits: Any,
    *,
    beta: float = 1.0,
    ground: Ground = "discrete",
    reduction: Reduction = "mean",
) -> float | Tensor:
    r"""1-Wasserstein distance, which needs a distance between outcomes first.

    The thesis does not say which. Three answers:

    ``"discrete"``
        Two different classes are at distance 1. Classes have no order, so this is
        the natural one, and then the Wasserstein distance *is* the total variation:
        a transport plan pays 1 for all mass that does not stay, at most
        :math:`\sum_j \min(p'_j, p''_j)` can stay, and that is
        :math:`1 - \frac12 \sum_j |p'_j - p''_j|`.
    ``"index"``
        Classes j and k are at distance ``abs(j - k)``: what one gets from
        ``scipy.stats.wasserstein_distance(range(K), range(K), p1, p2)``. It depends
        on how the classes happen to be numbered, so it measures nothing by itself.
    ``"confidence"``
        The distance between two distributions over the *data set*: those of the
        confidence, the largest posterior probability, before and after the shift.
        Which sample has which confidence is forgotten, and so are the classes.

    Parameters
    ----------
    {logits, shifted_logits} {beta}
    ground : {"discrete", "index", "confidence"}, default "discrete"
        Distance between outcomes.
    reduction : {"mean", "none"}, default "mean"
        The mean over samples, or every sample's value. There is no such value for
        ``ground="confidence"``.

    Returns
    -------
    float, or Tensor of shape (N,)
        In [0, 1]; for ``ground="index"`` in [0, K - 1].

    Raises
    ------
    {TypeError} {ValueError}

    See Also
    --------
    total_variation : The same as ``ground="discrete"``.

    Notes
    -----
    Depends on the scale of the logits, unless `beta` is 0 or ``inf``.

    References
    ----------
    The thesis, end of section 4.2 and Figure 4.12; Chapter 11.

    Examples
    --------
    >>> clean, shifted = [[900.0, 0.0, 0.0]], [[0.0, 0.0, 900.0]]
    >>> for ground in ("discrete", "index", "confidence"):
    ...     print(ground, wasserstein(clean, shifted, ground=ground))
    discrete 1.0
    index 2.0
    confidence 0.0
    """
    check_choice("ground", ground, _GROUNDS)
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


def reduced(terms: Tensor, reduction: Reduction) -> float | Tensor:
    """The mean of the terms, or the terms."""
    check_choice("reduction", reduction, ("mean", "none"))
    return float(terms.mean()) if reduction == "mean" else terms


def _posteriors(logits: Any, shifted_logits: Any, beta: float) -> tuple[Tensor, Tensor]:
    clean, shifted = check_logit_pair(logits, shifted_logits)
    return gibbs_posterior(clean, beta), gibbs_posterior(shifted, beta)


def _log_posteriors(
    logits: Any, shifted_logits: Any, beta: float
) -> tuple[Tensor, Tensor]:
    """Logarithms that stay finite where the posteriors underflow."""
    clean, shifted = check_logit_pair(logits, shifted_logits)
    temperature = check_non_negative("beta", beta, infinite=True)
    if math.isinf(temperature):
        first, second = gibbs_posterior(clean, beta), gibbs_posterior(shifted, beta)
        return first.log(), second.log()
    first, second = (
        # The largest logit becomes 0 first, so that no product is +inf.
        functional.log_softmax(temperature * (x - x.amax(1, keepdim=True)), dim=1)
        for x in (clean.double(), shifted.double())
    )
    return first, second


def _kl(log_p: Tensor, log_q: Tensor) -> Tensor:
    terms = functional.kl_div(log_q, log_p, log_target=True, reduction="none")
    # Classes that p excludes count nothing, whatever q says.
    terms = terms.masked_fill(log_p.exp() == 0.0, 0.0)
    return terms.sum(1).clamp_min(0.0)


def _variation(p: Tensor, q: Tensor) -> Tensor:
    return ((p - q).abs().sum(1) / 2.0).clamp_max(1.0)
