r"""Other discrepancies between clean and shifted outputs, to compare agreement with.

There are two kinds. :func:`kl_divergence`, :func:`jensen_shannon`,
:func:`total_variation` and :func:`wasserstein` compare *posteriors*, from paired logits
at one inverse temperature. :func:`cosine_similarity`, :func:`centroid_distance`,
:func:`mmd` and :func:`frechet_distance` compare *features*, the input of a network's
last linear layer. Each returns one float for the whole data set. Those that are means
over samples return the N terms with ``reduction="none"``, for standard errors and
groups.

Unlike posterior agreement, the discrepancies of posteriors depend on the scale of the
logits, unless beta is 0 or ``inf``, and some of the others on that of the features.
Source: the thesis, end of section 4.2 (Figures 4.12, B.14 and B.15); Chapter 12.
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
