r"""Agreement of a model with soft labels: one side fixed, one inverse temperature.

With q the soft labels and p(beta) the model's Gibbs posterior,

    J(beta) = mean_i log(K sum_j q_ij p_ij(beta)).

It is C - D with C = mean_i log sum_j K q_ij exp(beta x_ij) and
D = mean_i log sum_j exp(beta x_ij), both convex: the kernel of one view whose joint
weights are those of each sample, solved as two models are (Chapter 7).
"""

import math
from typing import Any

from torch import Tensor

from robustbook._checks.arguments import as_tensor, check_logits, check_positive
from robustbook.agreement._docs import SHARED
from robustbook.agreement._result import CertifiedAgreement
from robustbook.agreement.solver import Kernel, maximize


class SoftLabelAgreement(CertifiedAgreement):
    """Posterior agreement of a model with soft labels: a :class:`CertifiedAgreement`.

    From 0 to log K plus the mean of the logarithm of the largest soft label; ``beta``
    is in units of 1/logit.
    """


@SHARED.fill
def soft_label_agreement(
    logits: Any, soft_labels: Any, *, tol: float = 1e-6
) -> SoftLabelAgreement:
    r"""Posterior agreement of a model with soft labels, such as the votes of people.

    .. math::

       \mathrm{PA} = \sup_{\beta \ge 0} \frac1N \sum_{i=1}^N
           \log K \sum_{j=1}^K q_{ij} \, p_{ij}(\beta),

    where p is the model's Gibbs posterior and q stays as it is. If every q is one-hot,
    J is concave, and PA is log K minus the cross-entropy of the labels after
    temperature scaling. Otherwise J may have several hills, and the maximum is
    certified by branch and bound. Returns a :class:`SoftLabelAgreement`. Source:
    Chapter 37; not in the papers.

    Parameters
    ----------
    logits : Tensor or array, shape (N, K)
        Logits of the model.
    soft_labels : Tensor or array, shape (N, K)
        Probabilities or counts of votes, at least 0; each row is divided by its sum.
    tol : float, default 1e-6
        Largest gap accepted between ``upper_bound`` and ``pa``, in nats per sample.

    {TypeError} {ValueError} {CertificateError}

    Examples
    --------
    >>> import torch
    >>> logits = torch.tensor([[2.0, 0.0, 0.0], [0.0, 1.0, 0.5]])
    >>> votes = torch.tensor([[9, 1, 0], [0, 3, 7]])
    >>> result = soft_label_agreement(logits, votes)
    >>> f"{result.pa:.3f} nats at beta = {result.beta:.2f}"
    '0.537 nats at beta = 2.37'
    """
    scores = check_logits("logits", logits).double()
    labels = _rows_that_sum_to_one(soft_labels, scores)
    accepted = check_positive("tol", tol)
    # A power of two in all logits changes nothing but the unit of beta.
    spreads = scores.amax(1) - scores.amin(1)
    largest = float(spreads.max())
    power = -math.frexp(largest)[1] if largest else 0
    kernel = Kernel(scores * 2.0**power, labels=labels)
    found = maximize(kernel, accepted)
    beta = found.beta * 2.0**power
    return SoftLabelAgreement(found.value, beta, found.upper_bound, found.per_sample)


def _rows_that_sum_to_one(soft_labels: Any, logits: Tensor) -> Tensor:
    labels = as_tensor("soft_labels", soft_labels).to(logits.device).double()
    if labels.shape != logits.shape:
        raise ValueError(
            f"soft_labels: expected shape {tuple(logits.shape)} as logits, got "
            f"{tuple(labels.shape)}"
        )
    if not bool((labels >= 0).all() and labels.isfinite().all()):
        raise ValueError("soft_labels: expected finite numbers of at least 0")
    sums = labels.sum(1, keepdim=True)
    if not bool((sums > 0).all()):
        row = int((sums[:, 0] <= 0).nonzero()[0])
        raise ValueError(f"soft_labels: expected a positive sum, got 0 in row {row}")
    return labels / sums
