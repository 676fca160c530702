"""Posteriors and their agreement at given inverse temperatures, and as a loss."""

import math
import warnings
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from robustbook._checks.arguments import (
    as_real,
    as_tensor,
    check_logit_pair,
    check_logits,
    check_non_negative,
)
from robustbook.agreement._measure import posterior_agreement
from robustbook.agreement.solver import as_views, open_kernel

#: A probability of 0 is replaced by this before its logarithm is taken.
PROBABILITY_FLOOR = 1e-12
#: Entries of a block of rows: a few such blocks fit into the cache of a core.
_BLOCK_ENTRIES = 2**17


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

    Examples
    --------
    >>> gibbs_posterior(torch.tensor([[0.0, 1.0]]), 2.0)
    tensor([[0.1192, 0.8808]], dtype=torch.float64)
    """
    scores = check_logits("logits", logits)
    return log_posterior(scores, check_non_negative("beta", beta, infinite=True)).exp()


def agreement_curve(
    logits: Any,
    shifted_logits: Any = None,
    *more: Any,
    betas: Any = None,
    prior: Any = None,
    group: Any = None,
) -> Tensor:
    """The agreement kernel J at given inverse temperatures.

    Source: the PA paper, Theorem 2; Chapter 5.

    Parameters
    ----------
    logits, shifted_logits, *more, prior, group
        As :func:`posterior_agreement` takes them.
    betas : number, tensor, array or list, shape (B,)
        Inverse temperatures, at least 0; may be ``inf``. By name, or after the last
        array of logits.

    Returns
    -------
    Tensor, shape (B,), or () for a number
        J in nats per sample, float64; at ``inf`` its limit, which is ``-inf`` if the
        answers to some sample have no class in common.

    Examples
    --------
    >>> agreement_curve(torch.eye(2), torch.eye(2), [0.0, 1.0, float("inf")])
    tensor([0.0000, 0.1936, 0.6931], dtype=torch.float64)
    """
    arguments = as_views(logits, shifted_logits, *more)
    *views, betas = arguments if betas is None else (*arguments, betas)

    def points() -> list[float]:
        given = as_tensor("betas", betas)
        if given.ndim > 1:
            raise ValueError(
                f"betas: expected shape (B,), got {tuple(given.shape)}; pass inverse "
                "temperatures after the logits, such as betas=[0.1, 1, 10]"
            )
        return [
            check_non_negative(f"betas[{place}]", beta, infinite=True)
            for place, beta in enumerate(given.reshape(-1).tolist())
        ]

    kernel = open_kernel(*views, prior=prior, group=group, settings=points)
    values = points()
    finite = [beta for beta in values if beta < math.inf]
    found = kernel.evaluate_all(finite, columns=False, samples=False)
    at = {beta: point.value for beta, point in zip(finite, found, strict=True)}
    at[math.inf] = -math.inf if kernel.limit is None else kernel.mean(kernel.limit)
    curve = [at[beta] for beta in values]
    shape = as_tensor("betas", betas).shape
    return torch.tensor(curve, dtype=torch.float64, device=kernel.device).reshape(shape)


def posterior_overlap(
    logits: Any,
    shifted_logits: Any,
    *,
    beta: float,
    shifted_beta: float | None = None,
    log: bool = False,
    probabilities: bool = False,
) -> Tensor:
    r"""Overlap of the two posteriors of each pair, at given inverse temperatures.

    .. math:: \kappa_i(\beta, \beta') = \sum_j p_{ij}(\beta)\, q_{ij}(\beta')

    is the chance that draws from the two posteriors are the same class. With
    :math:`\langle\cdot\rangle` the mean over pairs, and where no answers tie:

    - :math:`\langle\kappa(\infty, \infty)\rangle` is the same-answer rate;
    - :math:`\langle\kappa(\beta, \beta)\rangle` is the mean overlap, the same-answer
      rate of answers that are drawn;
    - :math:`\max_\beta \langle\log K \kappa(\beta, \beta)\rangle` is posterior
      agreement;
    - :math:`\langle\sqrt{\kappa(\beta, \infty)\,\kappa(\infty, \beta)}\,
      \kappa(\infty, \infty)\rangle` is effective invariance;
    - :math:`\langle\kappa(\beta, \infty)\rangle`, at a calibrated :math:`\beta`,
      estimates the accuracy under the shift: :func:`paired_accuracy`.

    Parameters
    ----------
    logits, shifted_logits : Tensor or array, shape (N, K)
        Logits of the clean and of the shifted inputs.
    beta : float
        Inverse temperature of the clean inputs, at least 0; ``inf`` gives all weight
        to the largest logit, equal shares to several.
    shifted_beta : float, optional
        That of the shifted inputs; `beta` if left out.
    log : bool, default False
        Whether to return logarithms, exact also where the overlap underflows.
    probabilities : bool, default False
        Whether the arrays hold probabilities: :func:`log_probabilities`.

    Returns
    -------
    Tensor, shape (N,)
        Overlaps in [0, 1], or their logarithms (nats, ``-inf`` of none), float64.

    References
    ----------
    The kernel: the PA paper, Theorem 2. Effective invariance: W. Deng, S. Gould and
    L. Zheng, *On the strong correlation between model invariance and generalization*,
    NeurIPS 2022. The others: the chapter on the right temperature.

    Examples
    --------
    >>> clean = [[2.0, 0.0], [0.0, 1.0]]
    >>> shifted = [[1.0, 0.0], [3.0, 0.0]]
    >>> posterior_overlap(clean, shifted, beta=math.inf)  # the same answer?
    tensor([1., 0.], dtype=torch.float64)
    >>> posterior_overlap(clean, shifted, beta=1, shifted_beta=math.inf)
    tensor([0.8808, 0.2689], dtype=torch.float64)
    """
    clean, shifted = read_pair(logits, shifted_logits, probabilities=probabilities)
    first = check_non_negative("beta", beta, infinite=True)
    second = first
    if shifted_beta is not None:
        second = check_non_negative("shifted_beta", shifted_beta, infinite=True)
    blocks = []
    for rows in row_slices(clean):
        joint = log_posterior(clean[rows], first) + log_posterior(shifted[rows], second)
        blocks.append(joint.logsumexp(1).clamp(max=0.0))
    overlap = torch.cat(blocks)
    return overlap if log else overlap.exp()


def log_probabilities(probabilities: Any, *, name: str = "probabilities") -> Tensor:
    """Logarithms of class probabilities: logits, for models that give no others.

    The lost constant of each row does not matter. A probability of 0, which comes from
    underflow or rounding, is replaced by 1e-12, with a warning: scores may depend on
    it.

    Parameters
    ----------
    probabilities : Tensor or array, shape (N, K)
        Not negative, rows that sum to 1 within 0.01.
    name : str
        Name of the argument in messages.

    Returns
    -------
    Tensor, shape (N, K)
        float64.

    Examples
    --------
    >>> log_probabilities([[0.5, 0.5], [0.9, 0.1]]).exp()
    tensor([[0.5000, 0.5000],
            [0.9000, 0.1000]], dtype=torch.float64)
    """
    values = as_real(name, check_logits(name, probabilities))
    low, sums = float(values.min()), values.sum(1)
    if low < 0:
        raise ValueError(
            f"{name}: expected probabilities, got {low:g}; are they logits?"
        )
    off = (sums - 1).abs()
    if float(off.max()) > 0.01:
        row = int(off.argmax())
        raise ValueError(
            f"{name}: expected rows that sum to 1, got a sum of {float(sums[row]):g} "
            f"in row {row}; the most probable classes alone are not enough, give all"
        )
    zeros = int((values == 0).sum())
    if zeros:
        warnings.warn(
            f"{name}: {zeros} of {values.numel()} probabilities are 0 and were taken "
            f"for {PROBABILITY_FLOOR:g}; report this with the score",
            stacklevel=2,
        )
    return values.clamp(min=PROBABILITY_FLOOR).log()


def read_pair(
    logits: Any, shifted_logits: Any, *, probabilities: bool
) -> tuple[Tensor, Tensor]:
    """Check paired logits, or the logarithms of paired probabilities."""
    if probabilities:
        logits = log_probabilities(logits, name="logits")
        shifted_logits = log_probabilities(shifted_logits, name="shifted_logits")
    return check_logit_pair(logits, shifted_logits)


def log_posterior(logits: Tensor, beta: float) -> Tensor:
    """Logarithms (n, K) of the Gibbs posterior, float64, differentiable."""
    scores = logits.double()
    below = scores - scores.detach().amax(1, keepdim=True)
    if math.isinf(beta):
        best = below == 0
        limit = torch.where(best, -best.sum(1, keepdim=True).double().log(), -math.inf)
        # The limit is locally constant; the sum gives it a gradient of zero.
        return limit + 0.0 * scores
    return (beta * below).log_softmax(1)


def row_slices(logits: Tensor) -> Iterator[slice]:
    """Slices of rows of a bounded size: logits may be mapped, and large."""
    step = max(1, _BLOCK_ENTRIES // logits.shape[1])
    for start in range(0, len(logits), step):
        yield slice(start, start + step)


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
    optimum in a batch is biased upwards, as it fits the batch. At a `beta` that does
    not depend on the batch, such as a running mean over earlier ones, value and
    gradient have no bias. Source: Chapter 38; not in the papers.

    Parameters
    ----------
    logits, shifted_logits : Tensor or array, shape (N, K)
        Logits of the clean and of the shifted inputs.
    beta : float, optional
        Inverse temperature, at least 0, may be ``inf``; by default the maximizer.

    Returns
    -------
    Tensor, shape ()
        -J in nats, of the logits' type (of half precision, float32). At beta = 0, where
        nothing is in agreement, it is 0, and at ``inf``, where all predictions agree,
        the limit; there the gradient is 0. At several maximizers it is that of one of
        them. Where largest logits tie, PA can jump, which no gradient shows.

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
    both = log_posterior(first, beta) + log_posterior(second, beta)
    loss = -(torch.logsumexp(both, 1).mean() + math.log(first.shape[1]))
    dtype = torch.promote_types(first.dtype, second.dtype)
    return loss.to(torch.promote_types(dtype, torch.float32))
