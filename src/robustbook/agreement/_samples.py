"""Which samples are paired, and which are shifted."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from robustbook._checks.arguments import (
    as_tensor,
    check_count,
    check_feature_sets,
    check_fraction,
    check_labels,
    check_logit_pair,
)

#: Positions in the clean and in the shifted samples.
_Rows = tuple[np.ndarray, np.ndarray]


def pair_by_label(
    labels: Any, shifted_labels: Any, *, seed: int = 0
) -> tuple[Tensor, Tensor]:
    """Pair samples of the same class at random, without repetition.

    Source: the thesis, section 3.6.3 (label matching); Chapter 2.

    Parameters
    ----------
    labels, shifted_labels : Tensor or array, shapes (N,) and (M,)
        Integer classes of the two collections.
    seed : int, default 0
        Seed of the random order.

    Returns
    -------
    index, shifted_index : Tensor, shape (P,)
        Pair p joins clean sample ``index[p]`` and shifted sample ``shifted_index[p]``,
        sorted by `index`. P is the sum over classes of the smaller count.

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
    features, shifted_features : Tensor or array, shapes (N, d) and (M, d)
        Coordinates in which closeness is meant (Euclidean), such as the penultimate
        layer.
    labels, shifted_labels : Tensor or array, shapes (N,) and (M,), optional
        If given (both), only samples of the same class are paired.

    Returns
    -------
    index, shifted_index : Tensor, shape (P,)
        Sorted by `index`. Clean samples whose class none of the shifted has are left
        out; without labels, P = N.

    Examples
    --------
    >>> pair_nearest([[0.0], [1.0]], [[0.9], [0.2]])[1].tolist()
    [1, 0]
    """
    from sklearn.neighbors import NearestNeighbors

    def nearest(first: np.ndarray, second: np.ndarray) -> _Rows:
        search = NearestNeighbors(n_neighbors=1).fit(second)
        return np.arange(len(first)), search.kneighbors(first)[1][:, 0]

    return _matched(features, shifted_features, labels, shifted_labels, nearest)


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
    features, shifted_features, labels, shifted_labels
        As :func:`pair_nearest` takes them.

    Returns
    -------
    index, shifted_index : Tensor, shape (P,)
        P = min(N, M), within each class if labels are given. Sorted by `index`.

    Examples
    --------
    >>> pair_optimal([[0.0], [1.0]], [[0.6], [0.9]])[1].tolist()
    [0, 1]
    """
    from scipy.optimize import linear_sum_assignment
    from scipy.spatial.distance import cdist

    def optimal(first: np.ndarray, second: np.ndarray) -> _Rows:
        left, right = linear_sum_assignment(cdist(first, second))
        return left, right

    return _matched(features, shifted_features, labels, shifted_labels, optimal)


def _matched(
    features: Any,
    shifted_features: Any,
    labels: Any,
    shifted_labels: Any,
    match: Callable[[np.ndarray, np.ndarray], _Rows],
) -> tuple[Tensor, Tensor]:
    """The pairs of `match` among all features, or among those of each class."""
    both = check_feature_sets(features, shifted_features)
    first, second = (side.cpu().numpy() for side in both)
    # Around their mean and at most 1 in size, features have exact distances.
    center = first.mean(0)
    first, second = first - center, second - center
    size = max(np.abs(first).max(), np.abs(second).max())
    if size > 0:
        first, second = first / size, second / size
    if (labels is None) != (shifted_labels is None):
        missing = "labels" if labels is None else "shifted_labels"
        raise ValueError(f"{missing}: expected labels for both collections or none")
    groups = [(np.arange(len(first)), np.arange(len(second)))]
    if labels is not None:
        groups = _shared_classes(labels, shifted_labels, (len(first), len(second)))
    pairs = []
    for rows, columns in groups:
        left, right = match(first[rows], second[columns])
        pairs.append((rows[left], columns[right]))
    return _sorted_pairs(pairs)


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
            "shifted_labels: expected at least one class that labels have, got none"
        )
    return [
        (np.flatnonzero(first == label), np.flatnonzero(second == label))
        for label in shared
    ]


def _sorted_pairs(pairs: list[_Rows]) -> tuple[Tensor, Tensor]:
    left, right = (np.concatenate(side) for side in zip(*pairs, strict=True))
    order = np.argsort(left, kind="stable")
    return torch.from_numpy(left[order]).long(), torch.from_numpy(right[order]).long()


def shift_by_ratio(
    logits: Any, shifted_logits: Any, ratio: float, *, norms: Any = None, seed: int = 0
) -> Tensor:
    """Logits of the samples when only a part of them is shifted.

    Source: the PA paper, section 4.1; the thesis, section 4.2 (adversarial ratio).

    Parameters
    ----------
    logits, shifted_logits : Tensor or array, shape (N, K)
        Logits of the clean and of the shifted inputs.
    ratio : float
        Share of shifted samples, in [0, 1].
    norms : Tensor or array, shape (N,), optional
        Size of each perturbation, at least 0, or ``inf`` where the attack failed.
        Samples are shifted in this order, ties as they come; by default at random.
    seed : int, default 0
        Seed of the random order.

    Returns
    -------
    Tensor, shape (N, K)
        The shifted logits of the first round(ratio N) samples of the order, the
        clean ones of the others.

    Examples
    --------
    >>> clean, shifted = torch.zeros(4, 2), torch.ones(4, 2)
    >>> shift_by_ratio(clean, shifted, 0.5, norms=[1, 2, 3, 4])[:, 0]
    tensor([1., 1., 0., 0.])
    """
    clean, shifted = check_logit_pair(logits, shifted_logits)
    total = len(clean)
    count = round(check_fraction("ratio", ratio) * total)
    if norms is None:
        generator = torch.Generator().manual_seed(check_count("seed", seed, minimum=0))
        rank = torch.randperm(total, generator=generator)
    else:
        sizes = as_tensor("norms", norms).double().cpu()
        if sizes.shape != (total,):
            raise ValueError(
                f"norms: expected shape ({total},), one a sample, got "
                f"{tuple(sizes.shape)}"
            )
        bad = sizes.isnan() | (sizes < 0)
        if bool(bad.any()):
            place = int(bad.nonzero()[0])
            raise ValueError(
                f"norms: expected numbers of at least 0, got {float(sizes[place]):g} "
                f"at index {place}"
            )
        rank = sizes.argsort(stable=True).argsort()
    return torch.where((rank.to(clean.device) < count)[:, None], shifted, clean)
