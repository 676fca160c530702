"""The numbers of a report as a dict that strict JSON can hold."""

from __future__ import annotations

import platform
from typing import Any, Final

import torch

from robustbook import __version__
from robustbook._json import strict
from robustbook.lenses import ThreeLenses

__all__ = ["FORMAT", "image_scores", "report_numbers", "versions"]

#: Names the format of the numbers; a change of their meaning changes it.
FORMAT: Final = "robustbook report 1"


def versions() -> dict[str, str]:
    """Versions of what computed, without the build of torch."""
    return {
        "robustbook": __version__,
        "torch": torch.__version__.partition("+")[0],
        "Python": ".".join(platform.python_version_tuple()[:2]),
    }


def report_numbers(lenses: ThreeLenses, **header: Any) -> dict[str, Any]:
    """All numbers of the page, and what stands in its header."""
    numbers = {**header, "versions": versions(), **lenses.as_dict()}
    return dict(strict({"format": FORMAT} | numbers))


def image_scores(lenses: ThreeLenses, positions: list[int]) -> dict[str, Any]:
    """What each lens says of each image, beside its prediction and its class."""
    labels = None if lenses.labels is None else lenses.labels.tolist()
    scores = {name: score.tolist() for name, score in lenses.scores().items()}
    predictions = lenses.logits.argmax(dim=1).tolist()
    image = {"position": positions, "prediction": predictions, "label": labels}
    return dict(strict(image | scores))
