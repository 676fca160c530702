"""Pairing of samples that come unpaired: which clean sample meets which shifted."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from robustbook._checks.arguments import (
    as_tensor,
    check_count,
    check_feature_sets,
    check_labels,
)
from robustbook.agreement._docs import SHARED

#: Positions in the clean and in the shifted samples.
_Rows = tuple[np.ndarray, np.ndarray]


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
    pairs = []
    for rows, columns in _shared_classes(labels, shifted_labels):
        left, right = generator.permutation(rows), generator.permutation(columns)
        count = min(len(left), len(right))
        pairs.append((left[:count], right[:count]))
    return _sorted_pairs(pairs)


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

    first, second = _centered(features, shifted_features)
    pairs = []
    for rows, columns in _candidates(first, second, labels, shifted_labels):
        search = NearestNeighbors(n_neighbors=1).fit(second[columns])
        pairs.append((rows, columns[search.kneighbors(first[rows])[1][:, 0]]))
    return _sorted_pairs(pairs)


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
    from scipy.optimize import linear_sum_assignment
    from scipy.spatial.distance import cdist

    first, second = _centered(features, shifted_features)
    pairs = []
    for rows, columns in _candidates(first, second, labels, shifted_labels):
        left, right = linear_sum_assignment(cdist(first[rows], second[columns]))
        pairs.append((rows[left], columns[right]))
    return _sorted_pairs(pairs)


def _centered(features: Any, shifted_features: Any) -> tuple[np.ndarray, np.ndarray]:
    """Features around their mean, at most 1 in size, so that distances keep digits."""
    both = check_feature_sets(features, shifted_features)
    first, second = (side.cpu().numpy() for side in both)
    center = first.mean(0)
    first, second = first - center, second - center
    size = max(np.abs(first).max(), np.abs(second).max())
    return (first / size, second / size) if size > 0 else (first, second)


def _candidates(
    first: np.ndarray, second: np.ndarray, labels: Any, shifted_labels: Any
) -> list[_Rows]:
    """The rows that may be paired with each other: all, or those of each class."""
    if (labels is None) != (shifted_labels is None):
        missing = "labels" if labels is None else "shifted_labels"
        raise ValueError(f"{missing}: expected labels for both collections or none")
    if labels is None:
        return [(np.arange(len(first)), np.arange(len(second)))]
    return _shared_classes(labels, shifted_labels, (len(first), len(second)))


def _shared_classes(
    labels: Any, shifted_labels: Any, lengths: tuple[int, int] | None = None
) -> list[_Rows]:
    """The rows of each class that both collections have."""
    both = as_tensor("labels", labels), as_tensor("shifted_labels", shifted_labels)
    count, others = lengths or (both[0].numel(), both[1].numel())
    first = check_labels("labels", both[0], length=count).cpu().numpy()
    second = check_labels("shifted_labels", both[1], length=others).cpu().numpy()
    shared = np.intersect1d(first, second)
    if not len(shared):
        raise ValueError(
            "shifted_labels: expected at least one class in common with labels, got "
            "none"
        )
    return [
        (np.flatnonzero(first == label), np.flatnonzero(second == label))
        for label in shared
    ]


def _sorted_pairs(pairs: list[_Rows]) -> tuple[Tensor, Tensor]:
    left, right = (np.concatenate(side) for side in zip(*pairs, strict=True))
    order = np.argsort(left, kind="stable")
    return torch.from_numpy(left[order]).long(), torch.from_numpy(right[order]).long()
