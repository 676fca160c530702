r"""Other discrepancies between clean and shifted outputs, to compare agreement with.

Two kinds. Between *posteriors*, from paired logits at one inverse temperature:
:func:`kl_divergence`, :func:`jensen_shannon`, :func:`total_variation`,
:func:`wasserstein`. Between *features*, what a network computes before its last
linear layer: :func:`cosine_similarity`, :func:`centroid_distance`, :func:`mmd`,
:func:`frechet_distance`.

One convention holds for all of them: the result is one float, for the whole data
set. Where that float is a mean over the samples, ``reduction="none"`` returns the
N terms instead, float64, so that standard errors and groups are one line away.

Unlike posterior agreement, all the posterior discrepancies depend on the scale of
the logits, and so do some of the feature discrepancies on the scale of the
features; each says so. Chapter 11 puts them beside posterior agreement.

Source: the thesis, end of section 4.2 (Figures 4.12, B.14 and B.15).
"""

from robustbook.discrepancies._features import (
    centroid_distance,
    cosine_similarity,
    frechet_distance,
    mmd,
)
from robustbook.discrepancies._posteriors import (
    jensen_shannon,
    kl_divergence,
    total_variation,
    wasserstein,
)

__all__ = [
    "centroid_distance",
    "cosine_similarity",
    "frechet_distance",
    "jensen_shannon",
    "kl_divergence",
    "mmd",
    "total_variation",
    "wasserstein",
]
