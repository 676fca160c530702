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
from robustbook.report._words import bound, lowest

__all__ = ["Row", "Thumbnail", "fragile_rows"]

#: Images in a row, and the longer side of one in pixels at most.
SHOWN: Final = 8
SIDE: Final = 96


@dataclass(frozen=True)
class Thumbnail:
    """One image: a PNG as data URI, and in words what it is and how fragile."""

    source: str
    alternative: str
    says: str
    score: str
    wrong: bool


@dataclass(frozen=True)
class Row:
    """The most fragile images by one lens, and what the number below each is."""

    title: str
    explanation: str
    thumbnails: list[Thumbnail]


def fragile_rows(
    lenses: ThreeLenses, images: Tensor, positions: Sequence[int]
) -> list[Row]:
    """The most fragile of the images (N, C, H, W) by each lens that was measured."""
    scores = lenses.scores()
    rows = []

    def add(title: str, explanation: str, score: Tensor, form: str) -> None:
        thumbnails = [
            _thumbnail(
                lenses, images[place], place, positions[place],
                form.format(float(score[place])).replace("-", "−").replace("inf", "∞"),
            )
            for place in lowest(score, SHOWN)
        ]  # fmt: skip
        rows.append(Row(title, explanation, thumbnails))

    if lenses.agreements:
        each = [one.per_sample for one in lenses.agreements.values()]
        add(
            "Posterior Agreement",
            "contribution to it in nats, mean over the shifts",
            torch.stack(each).mean(dim=0),
            "{:.2f}",
        )
    if lenses.robustness is not None:
        add(
            "Average case",
            "how often the prediction survives noise",
            scores["average-case"] * 100,
            "{:.1f}\N{NO-BREAK SPACE}%",
        )
    if lenses.margins is not None:
        add(
            "Margins",
            f"input margin in steps of 1/255, of the {len(lenses.measured)} measured; "
            f"ε is {bound(lenses.settings.eps)}",
            scores["input margin"] * 255,
            "{:.1f}",
        )
    return rows


def _thumbnail(
    lenses: ThreeLenses, image: Tensor, place: int, number: int, score: str
) -> Thumbnail:
    predicted = int(lenses.logits[place].argmax())
    says, wrong = f"says {predicted}", False
    alternative = f"Image {number}, predicted class {predicted}"
    if lenses.labels is not None:
        true = int(lenses.labels[place])
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
