r"""Agreement at given inverse temperatures: one kernel, and its corners.

For a pair, with p the Gibbs posterior of the clean input and q that of the shifted one,

.. math:: \kappa(\beta, \beta') = \sum_j p_j(\beta)\, q_j(\beta')

is the chance that a draw from each is the same class. Its mean over pairs at infinite
temperatures is the same-answer rate, at one calibrated and one infinite temperature an
estimate of accuracy; the largest mean of its logarithm is posterior agreement.
"""

import math
import warnings
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from robustbook._checks.arguments import (
    as_real,
    check_logit_pair,
    check_logits,
    check_non_negative,
)
from robustbook.agreement._docs import SHARED

#: What stands for a probability of 0 before the logarithm is taken.
PROBABILITY_FLOOR = 1e-12
_BLOCK_ENTRIES = 2**22


@SHARED.fill
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

    .. math:: \kappa_i(\beta, \beta') = \sum_j p_{ij}(\beta)\, q_{ij}(\beta').

    With :math:`\langle\cdot\rangle` the mean over pairs, and where no answers tie:

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
    {logits, shifted_logits}
    beta : float
        Inverse temperature of the clean inputs, at least 0; ``inf`` gives all weight
        to the largest logit, equal shares to several.
    shifted_beta : float, optional
        That of the shifted inputs; `beta` if left out.
    log : bool, default False
        Whether to return logarithms, exact also where the overlap underflows.
    {probabilities}

    Returns
    -------
    Tensor, shape (N,)
        Overlaps in [0, 1], or their logarithms (nats, ``-inf`` of none), float64.

    {TypeError} {ValueError}

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
    clean, shifted = check_pair(logits, shifted_logits, probabilities)
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


@SHARED.fill
def log_probabilities(probabilities: Any, *, name: str = "probabilities") -> Tensor:
    """Logarithms of class probabilities: logits, for models that give no others.

    The constant that is lost does not matter. A probability of 0, as comes of
    underflow or rounding, is taken for 1e-12, with a warning: scores may depend on it.

    Parameters
    ----------
    probabilities : Tensor or array, shape (N, K)
        Not negative, rows that sum to 1 within 0.01.
    name : str
        What messages call them.

    Returns
    -------
    Tensor, shape (N, K)
        float64.

    {TypeError} {ValueError}

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
            f"in row {row}"
        )
    zeros = int((values == 0).sum())
    if zeros:
        warnings.warn(
            f"{name}: {zeros} of {values.numel()} probabilities are 0 and were taken "
            f"for {PROBABILITY_FLOOR:g}; report this with the score",
            stacklevel=2,
        )
    return values.clamp(min=PROBABILITY_FLOOR).log()


def check_pair(
    logits: Any,
    shifted_logits: Any,
    probabilities: bool,
    names: tuple[str, str] = ("logits", "shifted_logits"),
) -> tuple[Tensor, Tensor]:
    """Two paired arrays of logits, or the logarithms of probabilities."""
    if probabilities:
        logits = log_probabilities(logits, name=names[0])
        shifted_logits = log_probabilities(shifted_logits, name=names[1])
    return check_logit_pair(logits, shifted_logits, names=names)


def log_posterior(logits: Tensor, beta: float) -> Tensor:
    """Logarithms (n, K) of the Gibbs posterior, float64."""
    scores = logits.double()
    below = scores - scores.amax(1, keepdim=True)
    if math.isinf(beta):
        best = below == 0
        return torch.where(best, -best.sum(1, keepdim=True).double().log(), -math.inf)
    return (beta * below).log_softmax(1)


def row_slices(logits: Tensor) -> Iterator[slice]:
    """Slices of rows of a bounded size: logits may be mapped, and large."""
    step = max(1, _BLOCK_ENTRIES // logits.shape[1])
    for start in range(0, len(logits), step):
        yield slice(start, start + step)
