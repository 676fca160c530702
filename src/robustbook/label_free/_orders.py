"""Scores to order sets or networks by, which are no estimates of accuracy."""

import math
from typing import Any

import numpy as np
import torch
from scipy.special import entr

from robustbook._checks.arguments import check_logits, check_paired, check_positive
from robustbook.label_free._inputs import probabilities


def nuclear_norm(shifted: Any) -> float:
    """Nuclear norm of the predictions: 1 if they are sure and spread over all classes.

    A score to order sets or networks by, no estimate. Source: W. Deng et al.,
    *Confidence and dispersity speak: characterizing prediction matrix for unsupervised
    accuracy estimation*, ICML 2023.

    Parameters
    ----------
    shifted
        As for :func:`average_confidence`.

    Returns
    -------
    float
        The sum of singular values over its upper bound, the root of N min(N, K).

    Raises
    ------
    TypeError, ValueError
        As for :func:`average_confidence`.

    Examples
    --------
    >>> import warnings
    >>> with warnings.catch_warnings(action="ignore"):  # zeros cause a warning
    ...     round(nuclear_norm([[1.0, 0.0], [0.0, 1.0]]), 6)
    1.0
    """
    p = probabilities("shifted", shifted)
    singular = np.linalg.svd(p, compute_uv=False)
    return float(singular.sum()) / math.sqrt(len(p) * min(p.shape))


def mutual_information(shifted: Any) -> float:
    """Entropy of the mean prediction, minus the mean entropy of the predictions.

    A score to order sets or networks by, no estimate. Source: J. Bridle, A. Heading and
    D. MacKay, *Unsupervised classifiers, mutual information and 'phantom targets'*,
    NeurIPS 1991.

    Parameters
    ----------
    shifted
        As for :func:`average_confidence`.

    Returns
    -------
    float
        In [0, log K] nats.

    Raises
    ------
    TypeError, ValueError
        As for :func:`average_confidence`.

    Examples
    --------
    >>> mutual_information([[0.5, 0.5], [0.5, 0.5]])
    0.0
    """
    p = probabilities("shifted", shifted)
    return max(0.0, float(entr(p.mean(0)).sum() - entr(p).sum(1).mean()))


def effective_invariance(clean: Any, shifted: Any) -> float:
    """Mean root of the product of both confidences, 0 where the answers differ.

    Source: W. Deng, S. Gould and L. Zheng, *On the strong correlation between model
    invariance and generalization*, NeurIPS 2022.

    Parameters
    ----------
    clean, shifted : Tensor or array, shape (N, K)
        Class probabilities of the same samples before and after the shift.

    Returns
    -------
    float
        In [0, 1].

    Raises
    ------
    TypeError, ValueError
        As for :func:`average_confidence`.

    Examples
    --------
    >>> clean, shifted = [[0.9, 0.1], [0.6, 0.4]], [[0.4, 0.6], [0.6, 0.4]]
    >>> round(effective_invariance(clean, shifted), 6)
    0.3
    """
    before, after = probabilities("clean", clean), probabilities("shifted", shifted)
    check_paired(("clean", "shifted"), torch.tensor(before), torch.tensor(after))
    same = before.argmax(1) == after.argmax(1)
    return float((same * np.sqrt(before.max(1) * after.max(1))).mean())


def matrix_norm(
    shifted_logits: Any, *, order: float = 4, threshold: float = 5
) -> float:
    """Norm of the matrix of normalized logits: larger if predictions are sure.

    A score to order sets or networks by, no estimate; it takes logits. They are
    normalized by the softmax where their mean cross-entropy to equal probabilities is
    above the threshold, else by its Taylor polynomial of degree two, which trusts large
    logits less; as in the authors' program, the smallest value of a row is subtracted.
    Source: R. Xie et al., *MANO: exploiting matrix norm for unsupervised accuracy
    estimation under distribution shifts*, NeurIPS 2024.

    Parameters
    ----------
    shifted_logits : Tensor or array, shape (N, K)
        Logits of the shifted inputs.
    order : float, default 4
        Of the norm, at least 1.
    threshold : float, default 5
        In nats.

    Returns
    -------
    float
        In [0, 1].

    Raises
    ------
    TypeError
        If the logits are no floating-point array.
    ValueError
        If shapes do not fit together, or a logit is not finite.

    Examples
    --------
    >>> round(matrix_norm([[4.0, 0.0], [0.0, 4.0]]), 6)
    0.840896
    """
    logits = check_logits("shifted_logits", shifted_logits).double()
    if check_positive("order", order) < 1:
        raise ValueError(f"order: expected at least 1, got {order}")
    surprise = -logits.log_softmax(1).mean()
    if float(surprise) > check_positive("threshold", threshold):
        p = logits.softmax(1)
    else:
        polynomial = 1 + logits + logits**2 / 2
        above = polynomial - polynomial.amin(1, keepdim=True)
        sums = above.sum(1, keepdim=True)
        p = torch.where(sums > 0, above / sums, 1 / logits.shape[1])
    return float((p**order).mean() ** (1 / order))
