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
    Divide by the total variance of the clean features (the trace of their
    covariance; by its root, for a distance that is no square), so that the unit
    of the features drops out.
TypeError
    If an argument is of another kind than described.
ValueError
    If shapes do not fit together, a number is not finite, an option is out of
    range, or what is divided by is 0.
"""

from robustbook._docs import SharedDocs

SHARED = SharedDocs(__doc__)
