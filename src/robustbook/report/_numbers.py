"""The numbers of a report as a dict that strict JSON can hold."""

from __future__ import annotations

import platform
from typing import Any

import torch

from robustbook import __version__
from robustbook._json import strict
from robustbook.lenses import ThreeLenses

__all__ = ["FORMAT", "image_scores", "report_numbers", "versions"]

#: Names the format of the numbers; a change of their meaning changes it.
FORMAT = "robustbook report 1"


def versions() -> dict[str, str]:
    """Versions of what computed, without the build of torch."""
    return {
        "robustbook": __version__,
        "torch": torch.__version__.partition("+")[0],
        "Python": ".".join(platform.python_version_tuple()[:2]),
    }


def report_numbers(lenses: ThreeLenses, **header: Any) -> dict[str, Any]:
    """All numbers of the page, and what stands in its header.

    Parameters
    ----------
    lenses : ThreeLenses
        The measurement.
    **header
        Model, data and the like.

    Returns
    -------
    dict
        Infinite numbers are "inf", undefined ones None.
    """
    found: dict[str, Any] = strict(
        {"format": FORMAT, **header, "versions": versions(), **lenses.as_dict()}
    )
    return found


def image_scores(lenses: ThreeLenses, positions: list[int]) -> dict[str, Any]:
    """What each lens says of each image, beside its prediction and its class."""
    found: dict[str, Any] = strict(
        {
            "position": positions,
            "prediction": lenses.logits.argmax(dim=1).tolist(),
            "label": None if lenses.labels is None else lenses.labels.tolist(),
            **{name: score.tolist() for name, score in lenses.scores().items()},
        }
    )
    return found
