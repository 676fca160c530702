"""Digits in the folders and tables of photographs, to rehearse without these."""

from __future__ import annotations

import csv
from itertools import product
from pathlib import Path
from typing import Final

import torch

from robustbook._checks.extras import extra
from robustbook.datasets.diagvib import Environment, draw

__all__ = ["write_stand_ins"]

_BLUE: Final = Environment("blue", "darker", "tiles", scale="large")
#: Looks of land and of water.
_DOMAINS: Final = (_BLUE, _BLUE.changed(hue="cyan"))
#: Pictures of each class and domain, by split: in training most birds are at home.
_COUNTS: Final = {
    "train": (240, 60, 60, 240),
    "validation": (50, 50, 50, 50),
    "test": (50, 50, 50, 50),
}


def write_stand_ins(folder: Path | str, *, seed: int = 0) -> None:
    """Write a small data set of digits in the folders and files of Waterbirds.

    As :func:`~robustbook.datasets.wild.load_wild` reads it, 1000 pictures of 32 × 32
    pixels. A 2 stands for a landbird, a 6 for a waterbird; the domains are two hues.
    Chapter 17.

    `folder` is made if there is none; `seed` says which digits are drawn.

    Examples
    --------
    >>> import tempfile
    >>> from robustbook.datasets.wild import load_wild
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_stand_ins(folder)
    ...     len(load_wild("waterbirds", "train", root=folder))
    600
    """
    with extra("data"):
        from PIL import Image

    place = Path(folder, "waterbirds_v1.0", "001.Some_Bird")
    place.mkdir(parents=True, exist_ok=True)
    rows: list[tuple[object, ...]] = []
    for split, (part, counts) in enumerate(_COUNTS.items()):
        for (label, domain), count in zip(product((0, 1), (0, 1)), counts, strict=True):
            scenes = draw(
                _DOMAINS[domain],
                shapes=[(2, 6)[label]],
                count=count,
                split=part,
                seed=seed + 100 * split + 10 * domain,
            )
            for picture in scenes.images(size=32, dtype=torch.uint8):
                name = f"Some_Bird_{len(rows):04}.png"
                Image.fromarray(picture.permute(1, 2, 0).numpy()).save(place / name)
                rows.append((len(rows), f"{place.name}/{name}", label, split, domain))
    table = place.with_name("metadata.csv")
    with table.open("w", newline="", encoding="utf-8") as stream:
        columns = ("img_id", "img_filename", "y", "split", "place")
        csv.writer(stream).writerows([columns, *rows])
