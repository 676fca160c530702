"""The public measure: checks, search, result."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Any

import torch
from scipy import special
from torch import Tensor

from robustbook._checks.arguments import (
    as_tensor,
    check_count,
    check_fraction,
    check_logit_pair,
    check_logits,
    check_non_negative,
    check_paired,
    check_positive,
    check_prior,
)
from robustbook.agreement._bounds import (
    IntervalBounds,
    chord_tangent_bound,
    curvature_bound,
    tail_bound,
)
from robustbook.agreement._docs import SHARED
from robustbook.agreement._kernel import Kernel
from robustbook.agreement._result import (
    Agreement,
    AgreementComparison,
    standard_error_of_mean,
)
from robustbook.agreement._search import SearchTrace, maximize


@SHARED.fill
def posterior_agreement(
    logits: Any, shifted_logits: Any, *, prior: Any = None, tol: float = 1e-9
) -> Agreement:
    r"""Posterior agreement, solved to a certified global optimum.

    .. math::

       \mathrm{PA} = \sup_{\beta \ge 0} \frac1N \sum_{i=1}^N
           \log \sum_{j=1}^K \frac{p'_{ij}(\beta)\, p''_{ij}(\beta)}{\pi_j},

    where p' and p'' are the Gibbs posteriors of the two inputs at inverse
    temperature beta. The kernel is a difference of two convex functions of beta,
    neither concave nor unimodal in general (Chapter 6); branch and bound closes the gap
    between the best value and a proven upper bound (Chapter 7). Source: the PA paper,
    Equation 13 and Theorem 2; the thesis, Theorem 3.6.2.

    Parameters
    ----------
    {logits, shifted_logits} {prior} {tol}

    Returns
    -------
    Agreement
        ``pa`` in nats per sample, ``beta`` (may be ``inf``), ``upper_bound``,
        ``per_sample`` contributions, ``standard_error`` and more.

    {TypeError} {ValueError} {CertificateError}

    Examples
    --------
    >>> import torch
    >>> clean = torch.tensor([[2.0, 0.0], [0.0, 1.0], [0.5, 0.0], [3.0, 0.0]])
    >>> shifted = torch.tensor([[1.5, 0.0], [0.0, 2.0], [0.0, 0.1], [2.0, 0.0]])
    >>> result = posterior_agreement(clean, shifted)
    >>> f"{result.pa:.4f} nats at beta {result.beta:.2f}"
    '0.4788 nats at beta 3.20'
    >>> result.gap <= 1e-9
    True
    """
    accepted = check_positive("tol", tol)
    return _measure(Kernel.checked(logits, shifted_logits, prior=prior), accepted)


@SHARED.fill
def agreement_search(
    logits: Any, shifted_logits: Any, *, prior: Any = None, tol: float = 1e-9
) -> SearchTrace:
    """Solve as :func:`posterior_agreement` does and return every step; Chapter 7.

    Parameters
    ----------
    {logits, shifted_logits} {prior} {tol}

    Returns
    -------
    SearchTrace
        The evaluations in order and the certified intervals at the end.

    {TypeError} {ValueError} {CertificateError}

    Examples
    --------
    >>> trace = agreement_search(torch.eye(3), torch.eye(3)[[0, 1, 1]])
    >>> trace.upper_bound - trace.value <= 1e-9
    True
    """
    accepted = check_positive("tol", tol)
    return maximize(Kernel.checked(logits, shifted_logits, prior=prior), accepted)


@SHARED.fill
def agreement_bounds(
    logits: Any, shifted_logits: Any, left: float, right: float, *, prior: Any = None
) -> IntervalBounds:
    """Proven upper bounds on the agreement kernel J over an interval; Chapter 7.

    Parameters
    ----------
    {logits, shifted_logits}
    left, right : float
        Ends of the interval of inverse temperatures, 0 <= left < right; `right`
        may be ``inf``.
    {prior}

    Returns
    -------
    IntervalBounds
        ``chord_tangent`` and ``curvature`` (nats per sample); for an unbounded
        interval ``tail`` instead. Bounds that do not apply are ``inf``.

    {TypeError} {ValueError}

    Examples
    --------
    >>> agreement_bounds(torch.eye(2), torch.eye(2), 0.0, 1.0).chord_tangent < 0.7
    True
    """
    low = check_non_negative("left", left)
    high = check_non_negative("right", right, infinite=True)
    if not low < high:
        raise ValueError(f"right: expected more than left={low:g}, got {high:g}")
    kernel = Kernel.checked(logits, shifted_logits, prior=prior)
    start = kernel.evaluate(low)
    if math.isinf(high):
        return IntervalBounds(tail=tail_bound(kernel, start))
    stop = kernel.evaluate(high)
    return IntervalBounds(
        chord_tangent=chord_tangent_bound(start, stop),
        curvature=curvature_bound(kernel, start, stop),
    )


@SHARED.fill
def agreement_curve(
    logits: Any, shifted_logits: Any, betas: Any, *, prior: Any = None
) -> Tensor:
    """The agreement kernel J at given inverse temperatures.

    Source: the PA paper, Theorem 2; Chapter 5.

    Parameters
    ----------
    {logits, shifted_logits}
    betas : tensor, array or list, shape (B,)
        Inverse temperatures, finite and at least 0.
    {prior}

    Returns
    -------
    Tensor, shape (B,)
        J in nats per sample, float64.

    {TypeError} {ValueError}

    Examples
    --------
    >>> agreement_curve(torch.eye(2), torch.eye(2), [0.0, 1.0, 10.0])
    tensor([0.0000, 0.1936, 0.6931], dtype=torch.float64)
    """
    kernel = Kernel.checked(logits, shifted_logits, prior=prior)
    points = as_tensor("betas", betas)
    if points.ndim != 1:
        raise ValueError(f"betas: expected shape (B,), got {tuple(points.shape)}")
    values = [
        kernel.evaluate(check_non_negative(f"betas[{place}]", beta)).value
        for place, beta in enumerate(points.tolist())
    ]
    return torch.tensor(values, dtype=torch.float64, device=kernel.device)


@SHARED.fill
def gibbs_posterior(logits: Any, beta: float) -> Tensor:
    """Gibbs posterior over the classes of each sample.

    Source: the PA paper, Equation 10; Chapter 4 derives it.

    Parameters
    ----------
    logits : tensor or array, shape (N, K)
    beta : float
        Inverse temperature, at least 0; ``inf`` gives the uniform distribution
        over the classes of largest logit.

    Returns
    -------
    Tensor, shape (N, K)
        Probabilities, float64; rows sum to 1.

    {TypeError} {ValueError}

    Examples
    --------
    >>> gibbs_posterior(torch.tensor([[0.0, 1.0]]), 2.0)
    tensor([[0.1192, 0.8808]], dtype=torch.float64)
    """
    scores = check_logits("logits", logits).double()
    temperature = check_non_negative("beta", beta, infinite=True)
    shifted = scores - scores.amax(1, keepdim=True)
    if temperature == float("inf"):
        weight = (shifted == 0).double()
    else:
        weight = (shifted * temperature).exp()
    return weight / weight.sum(1, keepdim=True)


@SHARED.fill
def symmetric_channel_capacity(mismatch: float, num_classes: int) -> float:
    """Posterior agreement of hard decisions: a channel capacity.

    The K-ary symmetric channel changes its input to one of the K - 1 other letters,
    each with probability mismatch / (K - 1). One-hot logits with this share of
    mismatched predictions have its capacity as their posterior agreement, as long as
    mismatch < (K - 1) / K, and 0 beyond, where Shannon's capacity rises again: no
    temperature turns a mismatch into a match. Source: Chapter 8 (not in the papers).

    Parameters
    ----------
    mismatch : float
        Share of pairs whose predictions differ, in [0, 1].
    num_classes : int
        K, at least 2.

    Returns
    -------
    float
        log K - H_b(mismatch) - mismatch log(K - 1), or 0; in nats.

    {TypeError} {ValueError}

    Examples
    --------
    >>> round(symmetric_channel_capacity(0.11, 2), 4)
    0.3466
    >>> symmetric_channel_capacity(0.9, 10)
    0.0
    """
    share = check_fraction("mismatch", mismatch)
    classes = check_count("num_classes", num_classes, minimum=2)
    if share * classes >= classes - 1:
        return 0.0
    # Relative entropy to the uniform distribution: no cancellation near 0.
    correct = special.xlogy(1.0 - share, classes * (1.0 - share))
    wrong = special.xlogy(share, classes * share / (classes - 1))
    return max(0.0, float(correct + wrong))


@SHARED.fill
def compare_agreement(
    logits_a: Any,
    shifted_a: Any,
    logits_b: Any,
    shifted_b: Any,
    *,
    level: float = 0.95,
    prior: Any = None,
    tol: float = 1e-9,
) -> AgreementComparison:
    """Compare the posterior agreement of two models on the same pairs.

    Source: Chapter 7 (envelope theorem); not in the papers.

    Parameters
    ----------
    logits_a, shifted_a : tensor or array, shape (N, K)
        Logits of model A.
    logits_b, shifted_b : tensor or array, shape (N, K)
        Logits of model B, the same samples in the same order.
    level : float
        Coverage of the confidence interval, strictly between 0 and 1.
    {prior} {tol}

    Returns
    -------
    AgreementComparison
        ``difference`` = PA(A) - PA(B) in nats, with a paired standard error and
        interval: the samples that are hard for both cancel.

    {TypeError} {ValueError} {CertificateError}

    Examples
    --------
    >>> clean = torch.tensor([[1.0, 0.0], [0.0, 1.0], [2.0, 0.0], [0.0, 2.0]])
    >>> worse = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 2.0], [0.0, 2.0]])
    >>> compare_agreement(clean, clean, clean, worse).difference > 0
    True
    """
    pair_a = check_logit_pair(logits_a, shifted_a, names=("logits_a", "shifted_a"))
    pair_b = check_logit_pair(logits_b, shifted_b, names=("logits_b", "shifted_b"))
    check_paired(("logits_a", "logits_b"), pair_a[0], pair_b[0])
    coverage = check_fraction("level", level)
    if not 0.0 < coverage < 1.0 - 1e-12:
        raise ValueError(f"level: expected strictly between 0 and 1, got {level}")
    weights = check_prior(prior, pair_a[0].shape[1], pair_a[0].device)
    accepted = check_positive("tol", tol)
    a, b = (
        _measure(Kernel(*pair, prior=weights), accepted) for pair in (pair_a, pair_b)
    )
    error = standard_error_of_mean(a.per_sample - b.per_sample)
    half = NormalDist().inv_cdf(0.5 + coverage / 2.0) * error
    low, high = a.pa - b.pa - half, a.pa - b.pa + half
    return AgreementComparison(a, b, a.pa - b.pa, error, (low, high), coverage)


def _measure(kernel: Kernel, tol: float) -> Agreement:
    trace = maximize(kernel, tol)
    if kernel.prior is None:
        hard = symmetric_channel_capacity(kernel.mismatch, kernel.num_classes)
    else:
        # Predictions alone have no closed form under a prior.
        views = map(_one_hot, kernel.views)
        hard = maximize(Kernel(*views, prior=kernel.prior), tol).value
    return Agreement(
        pa=trace.value,
        beta=trace.beta,
        upper_bound=trace.upper_bound,
        evaluations=trace.evaluations,
        per_sample=trace.per_sample,
        num_classes=kernel.num_classes,
        mismatch=kernel.mismatch,
        hard_part=hard,
        trace=trace,
    )


def _one_hot(logits: Tensor) -> Tensor:
    ones = torch.zeros_like(logits, dtype=torch.float16)
    return ones.scatter_(1, logits.argmax(1, keepdim=True), 1.0)
