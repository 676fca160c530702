"""Scores to order sets or networks by, which are no estimates of accuracy."""

import math
from typing import Any, Final

import numpy as np
import torch
from scipy.special import entr

from robustbook._checks.arguments import check_logits, check_paired
from robustbook.label_free._inputs import probabilities

#: Of the matrix norm: its order, and, in nats, the mean cross-entropy above which it
#: trusts the softmax.
_ORDER: Final = 4
_LARGEST_CROSS_ENTROPY: Final = 5.0


def nuclear_norm(shifted: Any) -> float:
    """Nuclear norm of the predictions: 1 if they are sure and spread over all classes.

    A score to order sets or networks by, no estimate. Source: W. Deng et al.,
    *Confidence and dispersity speak: characterizing prediction matrix for unsupervised
    accuracy estimation*, ICML 2023.

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

    >>> mutual_information([[0.5, 0.5], [0.5, 0.5]])
    0.0
    """
    p = probabilities("shifted", shifted)
    return max(0.0, float(entr(p.mean(0)).sum() - entr(p).sum(1).mean()))


def effective_invariance(clean: Any, shifted: Any) -> float:
    """Mean root of the product of both confidences, 0 where the answers differ.

    Source: W. Deng, S. Gould and L. Zheng, *On the strong correlation between model
    invariance and generalization*, NeurIPS 2022.

    >>> clean, shifted = [[0.9, 0.1], [0.6, 0.4]], [[0.4, 0.6], [0.6, 0.4]]
    >>> round(effective_invariance(clean, shifted), 6)
    0.3
    """
    before, after = probabilities("clean", clean), probabilities("shifted", shifted)
    check_paired(("clean", "shifted"), before, after)
    same = before.argmax(1) == after.argmax(1)
    return float((same * np.sqrt(before.max(1) * after.max(1))).mean())


def matrix_norm(shifted_logits: Any) -> float:
    """Norm of the matrix of normalized logits: larger if predictions are sure.

    A score to order sets or networks by, no estimate; it takes logits. They are
    normalized by the softmax where their mean cross-entropy to equal probabilities is
    above the threshold, else by its Taylor polynomial of degree two, which trusts large
    logits less; as in the authors' program, the smallest value of a row is subtracted.
    Source: R. Xie et al., *MANO: exploiting matrix norm for unsupervised accuracy
    estimation under distribution shifts*, NeurIPS 2024.

    >>> round(matrix_norm([[4.0, 0.0], [0.0, 4.0]]), 6)
    0.840896
    """
    logits = check_logits("shifted_logits", shifted_logits).double()
    if float(-logits.log_softmax(1).mean()) > _LARGEST_CROSS_ENTROPY:
        p = logits.softmax(1)
    else:
        polynomial = 1 + logits + logits**2 / 2
        above = polynomial - polynomial.amin(1, keepdim=True)
        sums = above.sum(1, keepdim=True)
        p = torch.where(sums > 0, above / sums, 1 / logits.shape[1])
    return float((p**_ORDER).mean() ** (1 / _ORDER))
