"""The public measure: checks, search, result."""

from __future__ import annotations

import math
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
    check_positive,
    check_prior,
)
from robustbook.agreement._bounds import (
    IntervalBounds,
    chord_tangent_bound,
    curvature_bound,
    tail_bound,
)
from robustbook.agreement._kernel import Kernel
from robustbook.agreement._result import Agreement, AgreementComparison, compare
from robustbook.agreement._search import SearchTrace, maximize


def posterior_agreement(
    logits: Any, shifted_logits: Any, *, prior: Any = None, tol: float = 1e-9
) -> Agreement:
    r"""Posterior agreement, solved to a certified global optimum.

    .. math::

       \mathrm{PA} = \sup_{\beta \ge 0} \frac1N \sum_{i=1}^N
           \log \sum_{j=1}^K \frac{p'_{ij}(\beta)\, p''_{ij}(\beta)}{\pi_j},

    where p' and p'' are the Gibbs posteriors of the two inputs at inverse
    temperature beta. The kernel is a difference of two convex functions of beta,
    neither concave nor unimodal in general; branch and bound closes the gap
    between the best value and a proven upper bound.

    Parameters
    ----------
    logits, shifted_logits : tensor or array, shape (N, K)
        Logits of the clean and of the shifted inputs, row i of both from the same
        sample. Any floating-point type; CPU or CUDA. Log-probabilities do as well:
        a constant added to the logits of one sample changes nothing.
    prior : tensor or array, shape (K,), optional
        Class prior, positive, summing to 1. Uniform if left out. Under a prior that
        is not uniform, a model that says nothing scores J(0) > 0, and can outscore a
        perfect one; Chapter 4 shows when a prior is of use, and how repeating the
        columns of common classes puts the zero back.
    tol : float
        Largest gap accepted between ``upper_bound`` and ``pa``, in nats per
        sample. The rounding of double precision allows about 1e-11, times K / 1000
        for many classes.

    Returns
    -------
    Agreement
        ``pa`` in nats per sample, ``beta`` (may be ``inf``), ``upper_bound``,
        ``per_sample`` contributions, ``standard_error`` and more.

    Raises
    ------
    TypeError
        If an argument is of the wrong kind, such as integer logits.
    ValueError
        If shapes, sizes or values are wrong; for NaN the first index is named.
    CertificateError
        If the gap cannot be closed to ``tol``; the message says where.

    Notes
    -----
    Source: the PA paper, Equation 13 and Theorem 2; the thesis, Theorem 3.6.2.
    The published claim that the kernel is concave is false (Chapter 5). The
    algorithm is derived in Chapter 6.

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
    first, second = check_logit_pair(logits, shifted_logits)
    weights = check_prior(prior, first.shape[1], first.device)
    return _measure(first, second, weights, check_positive("tol", tol))


def agreement_search(
    logits: Any, shifted_logits: Any, *, prior: Any = None, tol: float = 1e-9
) -> SearchTrace:
    """Solve as :func:`posterior_agreement` does and return every step of it.

    Parameters
    ----------
    logits, shifted_logits, prior, tol
        As in :func:`posterior_agreement`.

    Returns
    -------
    SearchTrace
        The evaluations in order and the certified intervals at the end.

    Raises
    ------
    TypeError, ValueError, CertificateError
        As in :func:`posterior_agreement`.

    Notes
    -----
    Source: Chapter 6.

    Examples
    --------
    >>> import torch
    >>> trace = agreement_search(torch.eye(3), torch.eye(3)[[0, 1, 1]])
    >>> trace.upper_bound - trace.value <= 1e-9
    True
    """
    first, second = check_logit_pair(logits, shifted_logits)
    weights = check_prior(prior, first.shape[1], first.device)
    return maximize(Kernel(first, second, weights), check_positive("tol", tol))


def agreement_bounds(
    logits: Any,
    shifted_logits: Any,
    left: float,
    right: float,
    *,
    prior: Any = None,
) -> IntervalBounds:
    """Proven upper bounds on the agreement kernel J over an interval.

    Parameters
    ----------
    logits, shifted_logits, prior
        As in :func:`posterior_agreement`.
    left, right : float
        Ends of the interval of inverse temperatures, 0 <= left < right; ``right``
        may be ``inf``.

    Returns
    -------
    IntervalBounds
        ``chord_tangent`` and ``curvature`` (nats per sample); for an unbounded
        interval ``tail`` instead. Bounds that do not apply are ``inf``.

    Raises
    ------
    TypeError, ValueError
        As in :func:`posterior_agreement`, and for ends that are no interval.

    Notes
    -----
    Source: Chapter 6, where each bound is derived.

    Examples
    --------
    >>> import torch
    >>> agreement_bounds(torch.eye(2), torch.eye(2), 0.0, 1.0).chord_tangent < 0.7
    True
    """
    first, second = check_logit_pair(logits, shifted_logits)
    weights = check_prior(prior, first.shape[1], first.device)
    low = check_non_negative("left", left)
    high = check_non_negative("right", right, infinite=True)
    if not low < high:
        raise ValueError(f"right: expected more than left={low:g}, got {high:g}")
    kernel = Kernel(first, second, weights)
    start = kernel.evaluate(low)
    if math.isinf(high):
        return IntervalBounds(tail=tail_bound(kernel, start))
    stop = kernel.evaluate(high)
    return IntervalBounds(
        chord_tangent=chord_tangent_bound(start, stop),
        curvature=curvature_bound(kernel, start, stop),
    )


def agreement_curve(
    logits: Any, shifted_logits: Any, betas: Any, *, prior: Any = None
) -> Tensor:
    """The agreement kernel J at given inverse temperatures.

    Parameters
    ----------
    logits, shifted_logits : tensor or array, shape (N, K)
        Paired logits.
    betas : tensor, array or list, shape (B,)
        Inverse temperatures, finite and at least 0.
    prior : tensor or array, shape (K,), optional
        Class prior; uniform if left out.

    Returns
    -------
    Tensor, shape (B,)
        J in nats per sample, float64.

    Raises
    ------
    TypeError, ValueError
        As in :func:`posterior_agreement`, and for a negative or infinite beta.

    Notes
    -----
    Source: the PA paper, Theorem 2; Chapter 4.

    Examples
    --------
    >>> import torch
    >>> agreement_curve(torch.eye(2), torch.eye(2), [0.0, 1.0, 10.0])
    tensor([0.0000, 0.1936, 0.6931], dtype=torch.float64)
    """
    first, second = check_logit_pair(logits, shifted_logits)
    weights = check_prior(prior, first.shape[1], first.device)
    points = as_tensor("betas", betas)
    if points.ndim != 1:
        raise ValueError(f"betas: expected shape (B,), got {tuple(points.shape)}")
    kernel = Kernel(first, second, weights)
    values = [
        kernel.evaluate(check_non_negative(f"betas[{place}]", beta)).value
        for place, beta in enumerate(points.tolist())
    ]
    return torch.tensor(values, dtype=torch.float64, device=first.device)


def gibbs_posterior(logits: Any, beta: float) -> Tensor:
    """Gibbs posterior over the classes of each sample.

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

    Raises
    ------
    TypeError, ValueError
        If the logits or beta are not as described.

    Notes
    -----
    Source: the PA paper, Equation 10; Chapter 2 derives it.

    Examples
    --------
    >>> import torch
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


def symmetric_channel_capacity(mismatch: float, num_classes: int) -> float:
    """Posterior agreement of hard decisions: a channel capacity.

    The K-ary symmetric channel changes its input to one of the K - 1 other
    letters, each with probability mismatch / (K - 1). One-hot logits with this
    share of mismatched predictions have exactly its capacity as their posterior
    agreement, as long as mismatch < (K - 1) / K, and 0 beyond. (Shannon's capacity
    rises again there: a channel that is wrong on purpose can be used. Agreement
    cannot: no temperature turns a mismatch into a match.)

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

    Raises
    ------
    TypeError, ValueError
        If an argument is out of range.

    Notes
    -----
    Source: Chapter 7 (not in the papers).

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

    Parameters
    ----------
    logits_a, shifted_a : tensor or array, shape (N, K)
        Logits of model A.
    logits_b, shifted_b : tensor or array, shape (N, K)
        Logits of model B, the same samples in the same order.
    level : float
        Coverage of the confidence interval, strictly between 0 and 1.
    prior, tol
        As in :func:`posterior_agreement`.

    Returns
    -------
    AgreementComparison
        ``difference`` = PA(A) - PA(B) in nats, with a paired standard error and
        interval: the samples that are hard for both cancel.

    Raises
    ------
    TypeError, ValueError, CertificateError
        As in :func:`posterior_agreement`; also if the models differ in shape.

    Notes
    -----
    Source: Chapter 6 (envelope theorem); not in the papers.

    Examples
    --------
    >>> import torch
    >>> clean = torch.tensor([[1.0, 0.0], [0.0, 1.0], [2.0, 0.0], [0.0, 2.0]])
    >>> worse = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 2.0], [0.0, 2.0]])
    >>> result = compare_agreement(clean, clean, clean, worse)
    >>> result.difference > 0
    True
    """
    pair_a = check_logit_pair(logits_a, shifted_a, names=("logits_a", "shifted_a"))
    pair_b = check_logit_pair(logits_b, shifted_b, names=("logits_b", "shifted_b"))
    if pair_a[0].shape != pair_b[0].shape:
        raise ValueError(
            f"logits_b: expected the shape of logits_a, {tuple(pair_a[0].shape)} (the "
            f"comparison is paired), got {tuple(pair_b[0].shape)}"
        )
    if pair_a[0].device != pair_b[0].device:
        raise ValueError(
            f"logits_b: expected device {pair_a[0].device}, got {pair_b[0].device}"
        )
    coverage = check_fraction("level", level)
    if not 0.0 < coverage < 1.0 - 1e-12:
        raise ValueError(f"level: expected strictly between 0 and 1, got {level}")
    weights = check_prior(prior, pair_a[0].shape[1], pair_a[0].device)
    accepted = check_positive("tol", tol)
    return compare(
        _measure(*pair_a, weights, accepted),
        _measure(*pair_b, weights, accepted),
        coverage,
    )


def _measure(
    logits: Tensor, shifted: Tensor, prior: Tensor | None, tol: float
) -> Agreement:
    """Solve for checked arguments."""
    kernel = Kernel(logits, shifted, prior)
    trace = maximize(kernel, tol)
    if prior is None:
        hard = symmetric_channel_capacity(kernel.mismatch, kernel.num_classes)
    else:
        hard = _hard_decisions(logits, shifted, prior, tol)
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


def _hard_decisions(
    logits: Tensor, shifted: Tensor, prior: Tensor, tol: float
) -> float:
    """Agreement of the predictions alone under a class prior: no closed form."""
    shape, device = logits.shape, logits.device

    def one_hot(scores: Tensor) -> Tensor:
        ones = torch.zeros(shape, dtype=torch.float16, device=device)
        return ones.scatter_(1, scores.argmax(1, keepdim=True), 1.0)

    return maximize(Kernel(one_hot(logits), one_hot(shifted), prior), tol).value
