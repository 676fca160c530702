"""The images at both ends of a score: how robust, and who can tell them apart?"""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from torch import Tensor

from robustbook._store.cache import Arrays, cached_arrays
from robustbook._store.provenance import code_sha256
from robustbook.studies.average_case._survival import Kept
from robustbook.studies._statistics import (
    Values,
    area_within_classes,
    mean_error,
    rounded,
)
from robustbook.studies._rows import Row
from robustbook.studies.average_case._separability import (
    CLASSIFIERS,
    ends_of_classes,
    image_properties,
    told_right,
)

__all__ = ["Ends", "end_rows", "pictures", "points"]

#: Single images for a scatter plot.
POINTS: Final = 200
#: What the answers of the classifiers depend on.
_TELLING: Final = (
    "robustbook.studies.average_case._extremes",
    "robustbook.studies.average_case._separability",
    "robustbook.models._architectures",
    "robustbook.training",
)


@dataclass(frozen=True)
class Ends:
    """How the ends are told.

    Attributes
    ----------
    images : int
        Images of each class at either end.
    folds : int
        Parts of them, each told by a classifier that was trained on the others.
    repeats : int
        Training seeds.
    """

    images: int = 25
    folds: int = 5
    repeats: int = 2


def end_rows(kept: Kept, ends: Ends) -> Iterator[Row]:
    """What the ends by robustness and by softmax are, and who can tell them."""
    scores = _scores(kept)
    yield from _properties(kept, scores, ends)
    yield from _told(kept, scores, ends)


def _scores(kept: Kept) -> dict[str, Values]:
    """What images can be ranked by."""
    generator = np.random.default_rng(kept.seed + 2)
    # Where all noisy predictions are kept, the linearized estimate goes on.
    taylor = kept.arrays["taylor"][-1].round(6)
    order = np.lexsort((kept.arrays["ratio"], taylor, kept.halves[0]))
    robust = np.empty(len(taylor))
    robust[order] = np.arange(len(taylor))
    return {
        "p": robust,
        "softmax": kept.softmax,
        "brightness": image_properties(kept.data.images)["brightness"],
        "random": generator.random(len(taylor)),
    }


def _properties(kept: Kept, scores: dict[str, Values], ends: Ends) -> Iterator[Row]:
    values = image_properties(kept.data.images)
    values["softmax"] = kept.softmax
    values["robustness"] = scores["p"]
    values["right"] = kept.right.astype(float)
    for score in ("p", "softmax"):
        index, upper = ends_of_classes(scores[score], kept.labels, ends.images)
        for name, value in values.items():
            if {score, name} in ({"p", "robustness"}, {"softmax"}):
                continue
            area, error = area_within_classes(value[index], upper, kept.labels[index])
            yield {
                "what": "property",
                "score": score,
                "property": name,
                "auc": rounded(area),
                "auc_se": rounded(error),
                "images": len(index),
            }
        for end, chosen in (("low", upper == 0), ("high", upper == 1)):
            p = kept.halves[1][index[chosen]]
            yield {
                "what": "end",
                "score": score,
                "end": end,
                "sigma": kept.sigmas[-1],
                "p": rounded(p.mean()),
                "p_se": rounded(mean_error(p)),
                "accuracy": rounded(kept.right[index[chosen]].mean()),
                "images": len(p),
            }


def _told(kept: Kept, scores: dict[str, Values], ends: Ends) -> Iterator[Row]:
    arrays = cached_arrays(
        {
            **kept.configuration,
            "what": "told apart",
            "ends": ends.images,
            "folds": ends.folds,
            "repeats": ends.repeats,
            "code_sha256": code_sha256(_TELLING, follow_imports=False),
        },
        lambda: _tell(kept, scores, ends),
    )
    for key, value in arrays.items():
        score, kind = key.split(" ")
        mean = value.mean(0)
        # Images are the units; training adds what differs between repeats.
        training = mean_error(value.mean(1)) if len(value) > 1 else 0.0
        yield {
            "what": "tell",
            "score": score,
            "classifier": kind,
            "accuracy": rounded(mean.mean()),
            "accuracy_se": rounded(math.hypot(mean_error(mean), training)),
            "images": len(mean),
            "ends": ends.images,
            "folds": ends.folds,
            "repeats": len(value),
        }


def _tell(kept: Kept, scores: dict[str, Values], ends: Ends) -> Arrays:
    """Whether each image was told right, by score and classifier: (R, n)."""
    result: Arrays = {}
    for score, values in scores.items():
        index, upper = ends_of_classes(values, kept.labels, ends.images)
        images = kept.data.images[torch.from_numpy(index)]
        strata = 2 * kept.labels[index] + upper
        # The two controls need no more than one run.
        repeats = ends.repeats if score in ("p", "softmax") else 1
        for kind in CLASSIFIERS:
            result[f"{score} {kind}"] = np.stack(
                [
                    told_right(
                        kind,
                        images,
                        upper,
                        strata,
                        folds=ends.folds,
                        seed=kept.seed + run,
                    )
                    for run in range(repeats)
                ]
            )
    return result


def _one(kept: Kept, index: int) -> Row:
    return {
        "image": int(index),
        "p": rounded(kept.p[-1][index]),
        "softmax": rounded(kept.softmax[index]),
    }


def points(kept: Kept) -> Iterator[Row]:
    """Robustness and softmax probability of some images, at random."""
    generator = np.random.default_rng(kept.seed + 3)
    order = generator.permutation(len(kept.labels))
    for index in sorted(order[:POINTS]):
        yield {
            "what": "point",
            "sigma": kept.sigmas[-1],
            **_one(kept, index),
            "right": bool(kept.right[index]),
        }


def pictures(kept: Kept, classes: Iterable[int]) -> Iterator[Row]:
    """The three images of a class at either end, by robustness and by softmax."""
    scores = _scores(kept)
    for score in ("p", "softmax"):
        values = scores[score]
        for number in classes:
            chosen = np.flatnonzero(kept.labels == number)
            order = chosen[np.argsort(values[chosen], kind="stable")]
            for end, some in (("low", order[:3]), ("high", order[::-1][:3])):
                for place, index in enumerate(some):
                    yield {
                        "what": "image",
                        "score": score,
                        "class": number,
                        "end": end,
                        "place": place,
                        "predicted": int(kept.predicted[index]),
                        **_one(kept, index),
                        "png": _png(kept.data.images[index]),
                    }


def _png(image: Tensor) -> str:
    from PIL import Image

    levels = (image * 255).round().to(torch.uint8).permute(1, 2, 0).numpy()
    buffer = io.BytesIO()
    Image.fromarray(levels.squeeze()).save(buffer, "PNG", optimize=True)
    return base64.b64encode(buffer.getvalue()).decode("ascii")
