"""The images at both ends of a score: how robust, and how easily told apart?"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import torch
from sklearn.model_selection import StratifiedKFold
from torch import Tensor

from robustbook.datasets import Dataset
from robustbook.models import build_model, logits_of
from robustbook.studies._statistics import (
    Integers,
    Values,
    area_within_classes,
    mean_error,
    mean_row,
)
from robustbook.studies.average_case._survival import Survival
from robustbook.studies.run import Row, png, significant
from robustbook.training import train_classifier

#: Passes of the network over its few images.
EPOCHS: Final = 12


@dataclass(frozen=True)
class Ends:
    """How the ends are told apart."""

    #: Images of each class at either end.
    images: int = 25
    #: Parts of them, each told by a classifier that was trained on the others.
    folds: int = 5
    #: Training seeds.
    repeats: int = 2


def end_rows(survival: Survival, ends: Ends) -> Iterator[Row]:
    """What the ends by robustness and by softmax are, and who can tell them."""
    scores = _scores(survival)
    yield from _properties(survival, scores, ends)
    yield from _separability(survival, scores, ends)


def _scores(survival: Survival) -> dict[str, Values]:
    """What images can be ranked by."""
    generator = np.random.default_rng(survival.seed + 2)
    # Where all noisy predictions are kept, the linearized estimate goes on.
    taylor = survival.arrays["taylor"][-1].round(6)
    order = np.lexsort((survival.arrays["ratio"], taylor, survival.halves[0]))
    robust = np.empty(len(taylor))
    robust[order] = np.arange(len(taylor))
    return {
        "p": robust,
        "softmax": survival.arrays["softmax"],
        "brightness": image_properties(survival.data.images)["brightness"],
        "random": generator.random(len(taylor)),
    }


def _properties(
    survival: Survival, scores: dict[str, Values], ends: Ends
) -> Iterator[Row]:
    values = image_properties(survival.data.images)
    for score in ("p", "softmax"):
        index, upper = ends_of_classes(scores[score], survival.labels, ends.images)
        labels = survival.labels[index]
        for name, value in values.items():
            area, error = area_within_classes(value[index], upper, labels)
            yield {
                "what": "property",
                "score": score,
                "property": name,
                "auc": significant(area),
                "auc_se": significant(error),
                "images": len(index),
            }
        for end, chosen in (("low", upper == 0), ("high", upper == 1)):
            p = survival.halves[1][index[chosen]]
            yield {
                "what": "end",
                "score": score,
                "end": end,
                "sigma": survival.sigmas[-1],
                **mean_row("p", p, significant),
                "images": len(p),
            }


def _separability(
    survival: Survival, scores: dict[str, Values], ends: Ends
) -> Iterator[Row]:
    for score, values in scores.items():
        index, upper = ends_of_classes(values, survival.labels, ends.images)
        images = survival.data.images[torch.from_numpy(index)]
        strata = 2 * survival.labels[index] + upper
        # The two controls need no more than one run.
        repeats = ends.repeats if score in ("p", "softmax") else 1
        asked = partial(separated, images, upper, strata, folds=ends.folds)
        value = np.stack([asked(seed=survival.seed + k) for k in range(repeats)])
        mean = value.mean(0)
        # Images are the units; training adds what differs between repeats.
        training = mean_error(value.mean(1)) if len(value) > 1 else 0.0
        yield {
            "what": "tell",
            "score": score,
            "accuracy": significant(mean.mean()),
            "accuracy_se": significant(math.hypot(mean_error(mean), training)),
            "images": len(mean),
        }


def pictures(survival: Survival, classes: Iterable[int]) -> Iterator[Row]:
    """The three images of a class at either end, by robustness and by softmax."""
    scores = _scores(survival)
    for score, number in product(("p", "softmax"), classes):
        chosen = np.flatnonzero(survival.labels == number)
        order = chosen[np.argsort(scores[score][chosen], kind="stable")]
        for end, positions in (("low", order[:3]), ("high", order[::-1][:3])):
            for place, index in enumerate(positions):
                yield {
                    "what": "image",
                    "score": score,
                    "class": number,
                    "end": end,
                    "place": place,
                    "png": png(survival.data.images[index]),
                }


# ---------------------------------------------------------------- a second classifier


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
        index += [order[:size], order[len(order) - size :]]
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
    images: Tensor, upper: Integers, strata: Integers, *, folds: int, seed: int = 0
) -> npt.NDArray[np.bool_]:
    """Whether a network that has not seen an image names its end, bool (n,).

    Each of the `folds` parts has the same share of each stratum, and is judged by a
    network of its own that was trained on the others: two convolutions and two linear
    layers, as the paper's, with about 20 000 weights.
    """
    split = StratifiedKFold(folds, shuffle=True, random_state=seed)
    options: dict[str, Any] = {
        "channels": images.shape[1],
        "size": images.shape[2],
        "convolutions": [(8, 3, 1), (16, 3, 1)],
        "linear": [20, 2],
    }
    right = np.zeros(len(upper), dtype=bool)
    for train, test in split.split(strata, strata):
        model = build_model("pooled-conv-net", seed=seed, options=options)
        shown = images[train]
        mean, spread = shown.mean(), shown.std()
        ends = torch.from_numpy(upper[train].astype(np.int64))
        data = Dataset((shown - mean) / spread, ends, "ends", "train", 2)
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
