"""Can a second classifier tell which images are at the upper end of a score?"""

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
from robustbook.studies._statistics import Integers, Values
from robustbook.training import train_classifier

#: Passes of the network over its few images.
EPOCHS: Final = 12
#: A network, and logistic regressions: on pixels, and on a handful of properties.
CLASSIFIERS: Final = ("cnn", "pixels", "properties")


def ends_of_classes(
    score: Values, labels: Integers, count: int
) -> tuple[Integers, Integers]:
    """The images at both ends of each class: positions, and 1 for the upper end.

    Of a class with fewer than twice `count` images, fewer.
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
    """What can be seen of images without a model: (N,) each.

    Brightness, contrast (standard deviation of the gray values), difference of middle
    and border, strength of edges and, of color images, saturation.
    """
    gray = images.mean(1).double()
    across = gray.diff(dim=2).abs().mean((1, 2))
    down = gray.diff(dim=1).abs().mean((1, 2))
    border = torch.ones_like(gray[0], dtype=torch.bool)
    edge = max(1, len(border) // 4)
    border[edge:-edge, edge:-edge] = False
    middle = (gray[:, ~border].mean(1) - gray[:, border].mean(1)).abs()
    properties = {
        "brightness": gray.mean((1, 2)),
        "contrast": gray.flatten(1).std(1),
        "middle against border": middle,
        "edges": across + down,
    }
    if images.shape[1] == 3:
        color = (images.amax(1) - images.amin(1)).double()
        properties["saturation"] = color.mean((1, 2))
    return {name: value.numpy() for name, value in properties.items()}


def separated(
    kind: str, images: Tensor, upper: Integers, strata: Integers, *,
    folds: int, seed: int = 0,
) -> npt.NDArray[np.bool_]:  # fmt: skip
    """Whether a classifier that has not seen an image names its end, bool (n,).

    Each of the `folds` parts has the same share of each stratum, and is judged by a
    classifier of its own that was trained on the others.
    """
    split = StratifiedKFold(folds, shuffle=True, random_state=seed)
    parts = list(split.split(strata, strata))
    if kind == "cnn":
        return _separated_by_network(images, upper, parts, seed)
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


def _separated_by_network(
    images: Tensor, upper: Integers, parts: Iterable[tuple[Integers, Integers]],
    seed: int,
) -> npt.NDArray[np.bool_]:  # fmt: skip
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
        shown = images[train]
        mean, spread = shown.mean(), shown.std()
        data = Dataset(
            images=(shown - mean) / spread,
            labels=torch.from_numpy(upper[train].astype(np.int64)),
            name="ends", split="train", num_classes=2,
        )  # fmt: skip
        train_classifier(
            model, data, epochs=EPOCHS, lr=0.003, seed=seed, batch_size=32,
            progress=False,
        )  # fmt: skip
        answers = logits_of(model, (images[test] - mean) / spread).argmax(1).numpy()
        right[test] = answers == upper[test]
    return right
