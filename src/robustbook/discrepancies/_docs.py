"""Entries that the docstrings of discrepancies share.

logits, shifted_logits : Tensor or array, shape (N, K)
    Paired logits.
beta : float, default 1
    Inverse temperature, at least 0; may be ``inf``.
features, shifted_features : Tensor or array, shape (N, D)
    Paired features.
features : Tensor or array, shape (N, D)
    Features of the clean inputs.
shifted_features : Tensor or array, shape (M, D)
    Features of the shifted inputs.
reduction : {"mean", "none"}, default "mean"
    The mean, a float, or the term of every sample or pair: Tensor of shape (N,).
relative : bool, default False
    Divide by the total variance of the clean features, the trace of their covariance
    (a distance that is not squared, by its root), so that the unit of the features
    cancels. Comparisons of networks need it.
TypeError
    If an argument is of another kind than described.
ValueError
    If shapes do not fit together, a number is not finite, an option is out of range, or
    a divisor is 0.
"""

from typing import Literal

from torch import Tensor

from robustbook._checks.arguments import check_choice
from robustbook._docs import SharedDocs

SHARED = SharedDocs(__doc__)

Reduction = Literal["mean", "none"]


def reduced(terms: Tensor, reduction: Reduction) -> float | Tensor:
    """Return the mean of the terms, or the terms."""
    check_choice("reduction", reduction, ("mean", "none"))
    return float(terms.mean()) if reduction == "mean" else terms
