"""Pairing of samples that come unpaired: which clean sample meets which shifted."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist
from torch import Tensor

from robustbook._checks.arguments import (
    as_tensor,
    check_count,
    check_feature_sets,
    check_labels,
)
from robustbook.agreement._docs import SHARED

_Pairs = tuple[np.ndarray, np.ndarray]


@SHARED.fill
def pair_by_label(
    labels: Any, shifted_labels: Any, *, seed: int = 0
) -> tuple[Tensor, Tensor]:
    """Pair samples of the same class at random, without repetition.

    Source: the thesis, section 3.6.3 (label matching); Chapter 2.

    Parameters
    ----------
    labels : Tensor or array, shape (N,)
    shifted_labels : Tensor or array, shape (M,)
        Integer classes of the two collections.
    {seed}

    Returns
    -------
    index, shifted_index : Tensor, shape (P,)
        Pair p joins clean sample ``index[p]`` and shifted sample ``shifted_index[p]``,
        sorted by `index`. P is the sum over classes of the smaller count.

    {TypeError, ValueError}

    Examples
    --------
    >>> pair_by_label([0, 1, 1], [1, 0, 0])[0].tolist()
    [0, 1]
    """
    generator = np.random.default_rng(check_count("seed", seed, minimum=0))

    def shuffle(rows: np.ndarray, columns: np.ndarray) -> _Pairs:
        left, right = generator.permutation(rows), generator.permutation(columns)
        count = min(len(left), len(right))
        return left[:count], right[:count]

    return _class_by_class(shuffle, labels, shifted_labels)


@SHARED.fill
def pair_nearest(
    features: Any,
    shifted_features: Any,
    *,
    labels: Any = None,
    shifted_labels: Any = None,
) -> tuple[Tensor, Tensor]:
    """Pair every clean sample with its nearest shifted sample.

    A shifted sample may serve several clean ones. Source: the thesis, section 3.6.3
    (nearest-neighbor matching); the search is scikit-learn's.

    Parameters
    ----------
    {features} {shifted_features} {labels, shifted_labels}

    Returns
    -------
    index, shifted_index : Tensor, shape (P,)
        Sorted by `index`. Clean samples whose class none of the shifted has are left
        out; without labels, P = N.

    {TypeError, ValueError}

    Examples
    --------
    >>> pair_nearest([[0.0], [1.0]], [[0.9], [0.2]])[1].tolist()
    [1, 0]
    """
    from sklearn.neighbors import NearestNeighbors

    def nearest(left: np.ndarray, right: np.ndarray) -> _Pairs:
        search = NearestNeighbors(n_neighbors=1).fit(right)
        return np.arange(len(left)), search.kneighbors(left)[1][:, 0]

    sets = check_feature_sets(features, shifted_features)
    return _within_classes(nearest, *sets, labels, shifted_labels)


@SHARED.fill
def pair_optimal(
    features: Any,
    shifted_features: Any,
    *,
    labels: Any = None,
    shifted_labels: Any = None,
) -> tuple[Tensor, Tensor]:
    """Pair one to one so that the sum of distances is least.

    The optimal assignment problem, solved by scipy; takes memory N x M.

    Parameters
    ----------
    {features} {shifted_features} {labels, shifted_labels}

    Returns
    -------
    index, shifted_index : Tensor, shape (P,)
        P = min(N, M), within each class if labels are given. Sorted by `index`.

    {TypeError, ValueError}

    Examples
    --------
    >>> pair_optimal([[0.0], [1.0]], [[0.6], [0.9]])[1].tolist()
    [0, 1]
    """

    def assign(left: np.ndarray, right: np.ndarray) -> _Pairs:
        pairs: _Pairs = linear_sum_assignment(cdist(left, right))
        return pairs

    sets = check_feature_sets(features, shifted_features)
    return _within_classes(assign, *sets, labels, shifted_labels)


@SHARED.fill
def pair_canonical(
    features: Any,
    shifted_features: Any,
    *,
    labels: Any,
    shifted_labels: Any,
    seed: int = 0,
) -> tuple[Tensor, Tensor]:
    """Pair one to one within classes, near in directions that the shift leaves alone.

    Pairs by label, drawn at random, teach scikit-learn's canonical correlation analysis
    which directions of the one collection go with which of the other; then
    :func:`pair_optimal` pairs the coordinates in these. Source: the thesis, section
    3.6.3, which names canonical correlation matching, and no more.

    Parameters
    ----------
    {features} {shifted_features}
    labels, shifted_labels : Tensor or array, shapes (N,) and (M,)
        Integer classes of the two collections: at least two in common.
    {seed}

    Returns
    -------
    index, shifted_index : Tensor, shape (P,)
        P is the sum over classes of the smaller count. Sorted by `index`.

    {TypeError, ValueError}

    Notes
    -----
    Before that, each collection is reduced to so many principal components, 50 at most,
    that four pairs are there for each. Pairs of a class are else unrelated, so as many
    directions as there are classes, less one, are kept.

    Examples
    --------
    >>> first = [[0.0, 5.0], [0.1, 3.0], [1.0, 4.0], [1.1, 6.0]] * 2
    >>> labels = [0, 0, 1, 1] * 2
    >>> pairs = pair_canonical(first, first, labels=labels, shifted_labels=labels)
    >>> len(pairs[0])
    8
    """
    from sklearn.cross_decomposition import CCA
    from sklearn.decomposition import PCA

    sets = check_feature_sets(features, shifted_features)
    check_labels("labels", labels, length=len(sets[0]))
    check_labels("shifted_labels", shifted_labels, length=len(sets[1]))
    taught = pair_by_label(labels, shifted_labels, seed=seed)
    classes = len(np.unique(as_tensor("labels", labels).cpu().numpy()[taught[0]]))
    wanted = min(50, sets[0].shape[1], max(len(taught[0]) // 4, 1))
    if classes < 2:
        raise ValueError("shifted_labels: expected two classes in common with labels")
    reduced = []
    names = "features", "shifted_features"
    for name, one, index in zip(names, sets, taught, strict=True):
        values = one.cpu().double().numpy()
        if not np.ptp(values[index], axis=0).any():
            raise ValueError(
                f"{name}: expected samples that differ, got the same {len(index)} times"
            )
        reduced.append(PCA(wanted, random_state=0).fit(values[index]).transform(values))
    learner = CCA(min(classes - 1, wanted), max_iter=5000)
    learner.fit(*(one[index] for one, index in zip(reduced, taught, strict=True)))
    # The first argument of transform may have any number of rows, whatever the second.
    first = learner.transform(reduced[0])
    second = learner.transform(reduced[0][:1], reduced[1])[1]
    return pair_optimal(first, second, labels=labels, shifted_labels=shifted_labels)


def _within_classes(
    rule: Callable[[np.ndarray, np.ndarray], _Pairs],
    features: Tensor,
    shifted_features: Tensor,
    labels: Any,
    shifted_labels: Any,
) -> tuple[Tensor, Tensor]:
    """Apply a pairing rule to everything, or class by class."""
    if (labels is None) != (shifted_labels is None):
        missing = "labels" if labels is None else "shifted_labels"
        raise ValueError(f"{missing}: expected labels for both collections or none")
    # Distances keep their order; large offsets and odd scales lose no digits.
    first, second = features.cpu().numpy(), shifted_features.cpu().numpy()
    center = first.mean(0)
    first, second = first - center, second - center
    size = max(np.abs(first).max(), np.abs(second).max())
    if size > 0:
        first, second = first / size, second / size
    if labels is None:
        return _sorted_pairs(*rule(first, second))

    def pair(rows: np.ndarray, columns: np.ndarray) -> _Pairs:
        left, right = rule(first[rows], second[columns])
        return rows[left], columns[right]

    lengths = len(first), len(second)
    return _class_by_class(pair, labels, shifted_labels, lengths)


def _class_by_class(
    rule: Callable[[np.ndarray, np.ndarray], _Pairs],
    labels: Any,
    shifted_labels: Any,
    lengths: tuple[int, int] | None = None,
) -> tuple[Tensor, Tensor]:
    """Pairs of the rows that each class has in the two collections."""
    both = as_tensor("labels", labels), as_tensor("shifted_labels", shifted_labels)
    count, others = lengths or (both[0].numel(), both[1].numel())
    first = check_labels("labels", both[0], length=count).cpu().numpy()
    second = check_labels("shifted_labels", both[1], length=others).cpu().numpy()
    pairs = [
        rule(np.flatnonzero(first == label), np.flatnonzero(second == label))
        for label in np.intersect1d(first, second)
    ]
    if not pairs:
        raise ValueError(
            "shifted_labels: expected at least one class in common with labels, got "
            "none"
        )
    left, right = zip(*pairs, strict=True)
    return _sorted_pairs(np.concatenate(left), np.concatenate(right))


def _sorted_pairs(left: np.ndarray, right: np.ndarray) -> tuple[Tensor, Tensor]:
    order = np.argsort(left, kind="stable")
    return torch.from_numpy(left[order]).long(), torch.from_numpy(right[order]).long()
