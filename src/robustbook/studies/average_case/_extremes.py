"""The images at both ends of a score: how robust, and who can tell them apart?"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Final

import numpy as np
import torch

from robustbook._store.cache import Arrays, Configuration, cached_arrays
from robustbook.studies._run import Row, png, significant
from robustbook.studies._statistics import (
    Values,
    area_within_classes,
    mean_error,
    mean_row,
)
from robustbook.studies.average_case._separability import (
    CLASSIFIERS,
    ends_of_classes,
    image_properties,
    separated,
)
from robustbook.studies.average_case._survival import Survival

#: Single images for a scatter plot.
POINTS: Final = 200


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
        "softmax": survival.softmax,
        "brightness": image_properties(survival.data.images)["brightness"],
        "random": generator.random(len(taylor)),
    }


def _properties(
    survival: Survival, scores: dict[str, Values], ends: Ends
) -> Iterator[Row]:
    values = image_properties(survival.data.images)
    values["softmax"] = survival.softmax
    values["robustness"] = scores["p"]
    values["right"] = survival.right.astype(float)
    for score in ("p", "softmax"):
        index, upper = ends_of_classes(scores[score], survival.labels, ends.images)
        for name, value in values.items():
            if {score, name} in ({"p", "robustness"}, {"softmax"}):
                continue
            area, error = area_within_classes(
                value[index], upper, survival.labels[index]
            )
            yield {
                "what": "property", "score": score, "property": name,
                "auc": significant(area), "auc_se": significant(error),
                "images": len(index),
            }  # fmt: skip
        for end, chosen in (("low", upper == 0), ("high", upper == 1)):
            p = survival.halves[1][index[chosen]]
            yield {
                "what": "end", "score": score, "end": end, "sigma": survival.sigmas[-1],
                **mean_row("p", p, significant),
                "accuracy": significant(survival.right[index[chosen]].mean()),
                "images": len(p),
            }  # fmt: skip


def _separability(
    survival: Survival, scores: dict[str, Values], ends: Ends
) -> Iterator[Row]:
    arrays = cached_arrays(
        {**survival.configuration, "what": "told apart", **_options(ends)},
        lambda: _separations(survival, scores, ends),
        code=(__name__, separated.__module__),
    )
    for key, value in arrays.items():
        score, kind = key.split(" ")
        mean = value.mean(0)
        # Images are the units; training adds what differs between repeats.
        training = mean_error(value.mean(1)) if len(value) > 1 else 0.0
        yield {
            "what": "tell", "score": score, "classifier": kind,
            "accuracy": significant(mean.mean()),
            "accuracy_se": significant(math.hypot(mean_error(mean), training)),
            "images": len(mean), **_options(ends), "repeats": len(value),
        }  # fmt: skip


def _options(ends: Ends) -> Configuration:
    return {"ends": ends.images, "folds": ends.folds, "repeats": ends.repeats}


def _separations(survival: Survival, scores: dict[str, Values], ends: Ends) -> Arrays:
    """Whether the end of each image was named, by score and classifier: (R, n)."""
    result: Arrays = {}
    for score, values in scores.items():
        index, upper = ends_of_classes(values, survival.labels, ends.images)
        images = survival.data.images[torch.from_numpy(index)]
        strata = 2 * survival.labels[index] + upper
        # The two controls need no more than one run.
        repeats = ends.repeats if score in ("p", "softmax") else 1
        for kind in CLASSIFIERS:
            asked = partial(separated, kind, images, upper, strata, folds=ends.folds)
            runs = [asked(seed=survival.seed + run) for run in range(repeats)]
            result[f"{score} {kind}"] = np.stack(runs)
    return result


def _one(survival: Survival, index: int) -> Row:
    return {
        "image": int(index),
        "p": significant(survival.p[-1][index]),
        "softmax": significant(survival.softmax[index]),
    }


def points(survival: Survival) -> Iterator[Row]:
    """Robustness and softmax probability of some images, at random."""
    generator = np.random.default_rng(survival.seed + 3)
    order = generator.permutation(len(survival.labels))
    for index in sorted(order[:POINTS]):
        yield {
            "what": "point", "sigma": survival.sigmas[-1], **_one(survival, index),
            "right": bool(survival.right[index]),
        }  # fmt: skip


def pictures(survival: Survival, classes: Iterable[int]) -> Iterator[Row]:
    """The three images of a class at either end, by robustness and by softmax."""
    scores = _scores(survival)
    for score, number in product(("p", "softmax"), classes):
        chosen = np.flatnonzero(survival.labels == number)
        order = chosen[np.argsort(scores[score][chosen], kind="stable")]
        for end, some in (("low", order[:3]), ("high", order[::-1][:3])):
            for place, index in enumerate(some):
                yield {
                    "what": "image", "score": score, "class": number, "end": end,
                    "place": place, "predicted": int(survival.predicted[index]),
                    **_one(survival, index),
                    "png": png(survival.data.images[index]),
                }  # fmt: skip
