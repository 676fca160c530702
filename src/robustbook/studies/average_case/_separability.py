"""Can a second classifier see which images are at the upper end of a score?"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor

from robustbook.datasets import Dataset
from robustbook.models import build_model, logits_of
from robustbook.training import train_classifier

__all__ = ["CLASSIFIERS", "ends_of_classes", "image_properties", "told_right"]

Values = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

#: Passes of the network over its few images.
EPOCHS: Final = 12
#: A network, and logistic regressions: on pixels, and on a handful of properties.
CLASSIFIERS: Final = ("cnn", "pixels", "properties")


def ends_of_classes(
    score: Values, labels: Integers, count: int
) -> tuple[Integers, Integers]:
    """Return the images at both ends of each class.

    Parameters
    ----------
    score : ndarray, shape (N,)
        What orders the images.
    labels : ndarray of int, shape (N,)
        Their classes.
    count : int
        Images at each end; fewer of a class with fewer than twice as many.

    Returns
    -------
    index, upper : ndarray of int
        Positions, and 1 for the upper end.
    """
    index, upper = [], []
    for number in np.unique(labels):
        chosen = np.flatnonzero(labels == number)
        size = min(count, len(chosen) // 2)
        order = chosen[np.argsort(score[chosen], kind="stable")]
        index += [order[:size], order[-size:]]
        upper += [np.zeros(size, dtype=int), np.ones(size, dtype=int)]
    return np.concatenate(index), np.concatenate(upper)


def image_properties(images: Tensor) -> dict[str, Values]:
    """Return what can be seen of images without a model: (N,) each.

    Parameters
    ----------
    images : Tensor, shape (N, C, H, W)
        With pixels in [0, 1].

    Returns
    -------
    dict of str to ndarray
        Brightness, contrast (standard deviation of the gray values), difference of
        middle and border, strength of edges and, of color images, saturation.
    """
    gray = images.mean(1).double()
    across = gray.diff(dim=2).abs().mean((1, 2))
    down = gray.diff(dim=1).abs().mean((1, 2))
    border = torch.ones_like(gray[0], dtype=torch.bool)
    edge = max(1, len(border) // 4)
    border[edge:-edge, edge:-edge] = False
    middle = (gray[:, ~border].mean(1) - gray[:, border].mean(1)).abs()
    found = {
        "brightness": gray.mean((1, 2)),
        "contrast": gray.flatten(1).std(1),
        "middle against border": middle,
        "edges": across + down,
    }
    if images.shape[1] == 3:
        color = (images.amax(1) - images.amin(1)).double()
        found["saturation"] = color.mean((1, 2))
    return {name: value.numpy() for name, value in found.items()}


def told_right(
    kind: str,
    images: Tensor,
    upper: Integers,
    strata: Integers,
    *,
    folds: int,
    seed: int = 0,
) -> npt.NDArray[np.bool_]:
    """Say of each image whether a classifier that has not seen it tells it right.

    Parameters
    ----------
    kind : {"cnn", "pixels", "properties"}
        The classifier.
    images : Tensor, shape (n, C, H, W)
        The images.
    upper : ndarray of {0, 1}, shape (n,)
        What it has to tell.
    strata : ndarray of int, shape (n,)
        Every fold has the same share of each.
    folds : int
        Parts, each told by a classifier of its own that was trained on the others.
    seed : int, default 0
        Of folds and training.

    Returns
    -------
    ndarray of bool, shape (n,)
        Whether it was told right.
    """
    split = StratifiedKFold(folds, shuffle=True, random_state=seed)
    parts = list(split.split(strata, strata))
    if kind == "cnn":
        return _told_by_network(images, upper, parts, seed)
    if kind == "pixels":
        columns, strength = images.flatten(1).numpy(), 0.01
    else:
        properties = image_properties(images)
        columns, strength = np.stack(list(properties.values()), axis=1), 1.0
    model = make_pipeline(
        StandardScaler(), LogisticRegression(C=strength, max_iter=500)
    )
    right: npt.NDArray[np.bool_] = (
        cross_val_predict(model, columns, upper, cv=parts) == upper
    )
    return right


def _told_by_network(
    images: Tensor,
    upper: Integers,
    parts: Iterable[tuple[Integers, Integers]],
    seed: int,
) -> npt.NDArray[np.bool_]:
    """Two convolutions and two linear layers, as the paper's: about 20 000 weights."""
    options: dict[str, Any] = {
        "channels": images.shape[1],
        "size": images.shape[2],
        "convolutions": [(8, 3, 1), (16, 3, 1)],
        "linear": [20, 2],
    }
    right = np.zeros(len(upper), dtype=bool)
    for train, test in parts:
        model = build_model("pooled-conv-net", seed=seed, options=options)
        seen = images[train]
        mean, spread = seen.mean(), seen.std()
        data = Dataset(
            images=(seen - mean) / spread,
            labels=torch.from_numpy(upper[train].astype(np.int64)),
            name="ends",
            split="train",
            num_classes=2,
        )
        train_classifier(
            model,
            data,
            epochs=EPOCHS,
            lr=0.003,
            seed=seed,
            batch_size=32,
            progress=False,
        )
        answers = logits_of(model, (images[test] - mean) / spread).argmax(1).numpy()
        right[test] = answers == upper[test]
    return right
