"""Agreement as a training loss."""

import math
from typing import Any

import torch
from torch import Tensor

from robustbook._checks.arguments import check_logit_pair, check_non_negative
from robustbook.agreement._docs import SHARED
from robustbook.agreement._measure import gibbs_posterior, posterior_agreement


@SHARED.fill
def agreement_loss(
    logits: Any, shifted_logits: Any, *, beta: float | None = None
) -> Tensor:
    r"""Minus posterior agreement, differentiable by the logits of both views.

    The maximizer :math:`\beta^\star` is found on the detached logits, and :math:`-J` is
    evaluated there in operations that torch differentiates. By the envelope theorem
    that is the gradient of -PA wherever PA has one; with q the normalized product of
    the two posteriors,

    .. math::

       \frac{\partial\,\mathrm{PA}}{\partial F'_{ij}}
           = \frac{\beta^\star}{N} \left( q_{ij} - p'_{ij} \right).

    Over both views it is orthogonal to the logits: a step changes no overall scale. The
    optimum in a batch is too good by what it fits to the batch. At a `beta` that does
    not depend on the batch, as a running mean over earlier ones, value and gradient
    have no bias. Source: Chapter 36; not in the papers.

    Parameters
    ----------
    {logits, shifted_logits}
    beta : float, optional
        Inverse temperature, at least 0, may be ``inf``; by default the maximizer.

    Returns
    -------
    Tensor, shape ()
        -J in nats, of the logits' type (of half precision, float32). At beta = 0, where
        nothing is in agreement, it is 0, and at ``inf``, where all predictions agree,
        the limit; there the gradient is 0. At several maximizers it is that of one of
        them. Where largest logits tie, PA can jump, and no gradient says so.

    {TypeError} {ValueError}

    Examples
    --------
    >>> clean = torch.tensor([[2.0, 0.0], [0.0, 1.0], [0.5, 0.0]], requires_grad=True)
    >>> shifted = torch.tensor([[1.5, 0.0], [0.0, 2.0], [0.0, 0.1]])
    >>> loss = agreement_loss(clean, shifted)
    >>> loss.backward()
    >>> f"{-float(loss.detach()):.4f} nats"
    '0.4079 nats'
    >>> clean.grad.argmax(1)  # the class to descend from, in each sample
    tensor([1, 0, 0])
    """
    checked = check_logit_pair(logits, shifted_logits)
    if beta is None:
        beta = posterior_agreement(*checked).beta
    else:
        beta = check_non_negative("beta", beta, infinite=True)
    # The checked copies are detached; gradients flow to the tensors that were passed.
    first = logits if isinstance(logits, Tensor) else checked[0]
    second = shifted_logits if isinstance(shifted_logits, Tensor) else checked[1]
    both = _log_posterior(first, beta) + _log_posterior(second, beta)
    loss = -(torch.logsumexp(both, 1).mean() + math.log(first.shape[1]))
    dtype = torch.promote_types(first.dtype, second.dtype)
    return loss.to(torch.promote_types(dtype, torch.float32))


def _log_posterior(logits: Tensor, beta: float) -> Tensor:
    """Logarithm of the Gibbs posterior, differentiable by the logits."""
    scores = logits.double()
    if math.isinf(beta):
        # The limit is locally constant; the sum gives it a gradient of zero.
        return gibbs_posterior(scores.detach(), beta).log() + 0.0 * scores
    top = scores.detach().amax(1, keepdim=True)
    return ((scores - top) * beta).log_softmax(1)
