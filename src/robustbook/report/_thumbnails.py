"""The images to look at: the most fragile ones by each lens."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from robustbook.lenses import ThreeLenses
from robustbook.report._words import bound, lowest, percent

__all__ = ["Row", "Thumbnail", "fragile_rows"]

#: Images in a row, and the longer side of one in pixels at most.
SHOWN: Final = 8
SIDE: Final = 96


@dataclass(frozen=True)
class Thumbnail:
    """One image.

    Attributes
    ----------
    source : str
        A PNG as data URI.
    alternative, says, score : str
        In words: what it is; the prediction and, if known, the class; how fragile.
    wrong : bool
        Whether it is known to be misclassified.
    """

    source: str
    alternative: str
    says: str
    score: str
    wrong: bool


@dataclass(frozen=True)
class Row:
    """The most fragile images by one lens.

    Attributes
    ----------
    title, explanation : str
        By which lens, and what the number below each image is.
    thumbnails : list of Thumbnail
        The most fragile first.
    """

    title: str
    explanation: str
    thumbnails: list[Thumbnail]


def fragile_rows(
    seen: ThreeLenses, images: Tensor, positions: Sequence[int]
) -> list[Row]:
    """The most fragile images by each of the three lenses.

    Parameters
    ----------
    seen : ThreeLenses
        The measurement.
    images : Tensor, shape (N, C, H, W)
        The images, with one channel or three.
    positions : sequence of int
        Their numbers for the reader.

    Returns
    -------
    list of Row
        Three.
    """
    shifts = torch.stack([one.per_sample for one in seen.agreements.values()])
    agreement = shifts.mean(dim=0)
    scores = seen.scores()
    survival, margins = scores["average-case"], scores["input margin"]

    def row(title: str, explanation: str, score: Tensor, words: list[str]) -> Row:
        return Row(
            title,
            explanation,
            [
                _thumbnail(seen, images[place], place, positions[place], words[place])
                for place in lowest(score, SHOWN)
            ],
        )

    return [
        row(
            "Posterior Agreement",
            "contribution to it in nats, mean over the shifts",
            agreement,
            [f"{value:.2f}".replace("-", "−") for value in agreement.tolist()],
        ),
        row(
            "Average case",
            "how often the prediction survives noise",
            survival,
            [percent(value) for value in survival.tolist()],
        ),
        row(
            "Margins",
            f"input margin in steps of 1/255, of the {len(seen.measured)} measured; "
            f"ε is {bound(seen.settings.eps)}",
            margins,
            [f"{255 * value:.1f}" for value in margins.tolist()],
        ),
    ]


def _thumbnail(
    seen: ThreeLenses, image: Tensor, place: int, number: int, score: str
) -> Thumbnail:
    predicted = int(seen.logits[place].argmax())
    says, wrong = f"says {predicted}", False
    alternative = f"Image {number}, predicted class {predicted}"
    if seen.labels is not None:
        true = int(seen.labels[place])
        wrong = true != predicted
        alternative += f", true class {true}"
        if wrong:
            says += f", is {true}"
    return Thumbnail(_png(image), f"{alternative}.", says, score, wrong)


def _png(image: Tensor) -> str:
    """A small PNG, one channel as ink on white, as in the book."""
    from matplotlib.image import imsave

    pixels = image.detach().float().cpu()
    larger = max(pixels.shape[1:])
    if larger > SIDE:
        height, width = (max(1, side * SIDE // larger) for side in pixels.shape[1:])
        pixels = functional.interpolate(pixels[None], (height, width), mode="area")[0]
    if len(pixels) == 1:
        pixels = 1 - pixels.expand(3, -1, -1)
    array = (255 * pixels.clamp(0, 1)).round().to(torch.uint8).permute(1, 2, 0)
    content = io.BytesIO()
    # Without the name and version of the software: the same bytes everywhere.
    nameless: Any = {"Software": None}
    imsave(
        content, np.ascontiguousarray(array.numpy()), format="png",
        metadata=nameless, pil_kwargs={"optimize": True},
    )  # fmt: skip
    return f"data:image/png;base64,{base64.b64encode(content.getvalue()).decode()}"
