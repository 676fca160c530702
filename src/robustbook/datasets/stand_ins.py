"""Digits in the files of photographs, to rehearse on what `wild` reads."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

from robustbook._checks.extras import extra
from robustbook.datasets.diagvib import Environment, draw

__all__ = ["write_stand_ins"]

_BASE: Final = Environment(
    hue="blue", lightness="darker", scale="large", texture="tiles"
)
_SPLITS: Final = ("train", "validation", "test")
#: What the domains look like; a 2 stands for the first class, a 6 for the second.
_DOMAINS: Final = {
    "waterbirds": [_BASE, _BASE.changed(hue="cyan")],
    "celebA": [_BASE, _BASE.changed(texture="lava")],
    "camelyon17": [
        _BASE.changed(hue=hue) for hue in ("blue", "yellow", "green", "cyan", "magenta")
    ],
}
_HELD: Final = {(label, domain): 50 for label in (0, 1) for domain in (0, 1)}
_HOSPITALS: Final = (0, 3, 4)
#: How many of each class and domain, by split.
_COUNTS: Final[dict[str, list[dict[tuple[int, int], int]]]] = {
    "waterbirds": [
        {(0, 0): 240, (0, 1): 60, (1, 0): 60, (1, 1): 240},
        _HELD,
        _HELD,
    ],
    "celebA": [
        {(0, 0): 264, (0, 1): 246, (1, 0): 84, (1, 1): 6},
        _HELD,
        _HELD,
    ],
    "camelyon17": [
        {(label, domain): 100 for label in (0, 1) for domain in _HOSPITALS},
        {(label, domain): 50 for label in (0, 1) for domain in _HOSPITALS},
        {(label, 2): 100 for label in (0, 1)},
    ],
}


def write_stand_ins(folder: Path | str, *, seed: int = 0) -> None:
    """Write three small data sets of digits in the folders and files of photographs.

    Waterbirds, celebA and camelyon17 as :func:`~robustbook.datasets.wild.load_wild`
    reads them, some 500 to 1100 pictures of 32 × 32 pixels each. A 2 stands for
    landbird, dark hair and healthy tissue, a 6 for the others; a domain is a hue or a
    texture. Chapter 16.

    Parameters
    ----------
    folder : Path or str
        Where to write; it is made if there is none.
    seed : int, default 0
        Which digits are drawn.

    Examples
    --------
    >>> import tempfile
    >>> from robustbook.datasets.wild import load_wild
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_stand_ins(folder)
    ...     len(load_wild("celebA", "train", root=folder))
    600
    """
    home = Path(folder)
    _write_waterbirds(home / "waterbirds_v1.0", seed)
    _write_celeba(home / "celebA_v1.0", seed)
    _write_camelyon17(home / "camelyon17_v1.0", seed)


def _pictures(name: str, seed: int) -> Iterator[tuple[int, int, int, Tensor]]:
    """Split, class, domain and picture of everything in a data set."""
    for split, counts in enumerate(_COUNTS[name]):
        for (label, domain), number in counts.items():
            scenes = draw(
                _DOMAINS[name][domain],
                shapes=[(2, 6)[label]],
                count=number,
                split=_SPLITS[split],
                seed=seed + 100 * split + 10 * domain,
            )
            for picture in scenes.images(size=32, dtype=torch.uint8):
                yield split, label, domain, picture


def _save(path: Path, picture: Tensor) -> None:
    with extra("data"):
        from PIL import Image

    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(picture.permute(1, 2, 0).numpy()).save(path)


def _write_table(path: Path, rows: list[dict[str, Any]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def _write_waterbirds(folder: Path, seed: int) -> None:
    rows: list[dict[str, Any]] = []
    for split, label, domain, picture in _pictures("waterbirds", seed):
        name = f"001.Some_Bird/Some_Bird_{len(rows):04}.png"
        _save(folder / name, picture)
        row = {"img_id": len(rows), "img_filename": name, "y": label}
        rows.append({**row, "split": split, "place": domain})
    _write_table(folder / "metadata.csv", rows)


def _write_celeba(folder: Path, seed: int) -> None:
    attributes, parts = [], []
    numbers = count(1)
    for split, label, domain, picture in _pictures("celebA", seed):
        name = f"{next(numbers):06}.png"
        _save(folder / "img_align_celeba" / name, picture)
        signs = {"Blond_Hair": 2 * label - 1, "Male": 2 * domain - 1}
        attributes.append({"image_id": name, **signs})
        parts.append({"image_id": name, "partition": split})
    _write_table(folder / "list_attr_celeba.csv", attributes)
    _write_table(folder / "list_eval_partition.csv", parts)


def _write_camelyon17(folder: Path, seed: int) -> None:
    rows: list[dict[str, Any]] = []
    for split, label, domain, picture in _pictures("camelyon17", seed):
        place = {"x_coord": 32 * len(rows), "y_coord": 0}
        slide = f"patient_{20 * domain:03}_node_1"
        name = f"patch_{slide}_x_{place['x_coord']}_y_0.png"
        _save(folder / "patches" / slide / name, picture)
        row = {"patient": f"{20 * domain:03}", "node": 1, **place, "tumor": label}
        rows.append({**row, "center": domain, "split": int(split == 1)})
    _write_table(folder / "metadata.csv", rows)
