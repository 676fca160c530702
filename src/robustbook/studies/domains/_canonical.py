"""Pairs that are near in the directions that two domains share."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.cross_decomposition import CCA
from sklearn.decomposition import PCA
from torch import Tensor

from robustbook.agreement import pair_by_label, pair_optimal


def pair_canonical(
    features: Tensor,
    shifted_features: Tensor,
    *,
    labels: Any,
    shifted_labels: Any,
    seed: int = 0,
) -> tuple[Tensor, Tensor]:
    """Pair one to one within classes by canonical correlations.

    Pairs by label, drawn at random, teach scikit-learn's canonical correlation analysis
    which directions of the features (N, d) go with which of the shifted ones (M, d);
    :func:`pair_optimal` then pairs the coordinates in these directions. The thesis,
    section 3.6.3, names canonical correlation matching and gives no details.

    Each collection is first reduced to at most 50 principal components, at most one for
    every four pairs. Two samples of a pair share nothing but their class, so the number
    of directions that are kept is that of the classes minus one. There must be two
    classes in common.
    """
    classes = len(np.intersect1d(labels, shifted_labels))
    pairs = pair_by_label(labels, shifted_labels, seed=seed)
    count = min(50, features.shape[1], max(len(pairs[0]) // 4, 1))
    reduced = []
    for sample, index in zip((features, shifted_features), pairs, strict=True):
        values = sample.double().numpy()
        components = PCA(count, random_state=0).fit(values[index])
        reduced.append(components.transform(values))
    analysis = CCA(min(classes - 1, count), max_iter=5000)
    analysis.fit(reduced[0][pairs[0]], reduced[1][pairs[1]])
    # The first argument of transform may have any number of rows, whatever the second.
    first = analysis.transform(reduced[0])
    second = analysis.transform(reduced[0][:1], reduced[1])[1]
    return pair_optimal(first, second, labels=labels, shifted_labels=shifted_labels)
