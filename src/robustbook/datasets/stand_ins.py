"""Digits in the folders and tables of photographs, to rehearse without these."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import torch
from torch import Tensor

from robustbook._checks.extras import extra
from robustbook.datasets.diagvib import Environment, draw

__all__ = ["write_stand_ins"]

_BASE: Final = Environment("blue", "darker", "tiles", scale="large")
_BOTH: Final = [(label, domain) for label in (0, 1) for domain in (0, 1)]
_HELD: Final = dict.fromkeys(_BOTH, 50)
_INSIDE: Final = [(label, hospital) for label in (0, 1) for hospital in (0, 3, 4)]
#: Looks of the domains, and how many pictures there are of each class and domain, by
#: split; a 2 stands for the first class, a 6 for the second.
_SETS: Final[dict[str, tuple[list[Environment], list[dict[tuple[int, int], int]]]]] = {
    "waterbirds": (
        [_BASE, _BASE.changed(hue="cyan")],
        [dict(zip(_BOTH, (240, 60, 60, 240), strict=True)), _HELD, _HELD],
    ),
    "celebA": (
        [_BASE, _BASE.changed(texture="lava")],
        [dict(zip(_BOTH, (264, 246, 84, 6), strict=True)), _HELD, _HELD],
    ),
    "camelyon17": (
        [_BASE.changed(hue=h) for h in ("blue", "yellow", "green", "cyan", "magenta")],
        [
            dict.fromkeys(_INSIDE, 100),
            dict.fromkeys(_INSIDE, 50),
            {(0, 2): 100, (1, 2): 100},
        ],
    ),
}


def write_stand_ins(folder: Path | str, *, seed: int = 0) -> None:
    """Write three small data sets of digits in the folders and files of photographs.

    Waterbirds, celebA and camelyon17 as :func:`~robustbook.datasets.wild.load_wild`
    reads them, 500 to 1100 pictures of 32 × 32 pixels each. A 2 stands for
    landbird, dark hair and healthy tissue, a 6 for the others; a domain is a hue or a
    texture. Chapter 17.

    `folder` is made if there is none; `seed` says which digits are drawn.

    Examples
    --------
    >>> import tempfile
    >>> from robustbook.datasets.wild import load_wild
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_stand_ins(folder)
    ...     len(load_wild("celebA", "train", root=folder))
    600
    """
    for name, write in _WRITERS.items():
        write(Path(folder, f"{name}_v1.0"), enumerate(_pictures(name, seed)))


_Pictures = Iterable[tuple[int, tuple[int, int, int, Tensor]]]


def _pictures(name: str, seed: int) -> Iterator[tuple[int, int, int, Tensor]]:
    """Split, class, domain and picture of everything in a data set."""
    domains, counts = _SETS[name]
    for split, part in enumerate(("train", "validation", "test")):
        for (label, domain), number in counts[split].items():
            scenes = draw(
                domains[domain],
                shapes=[(2, 6)[label]],
                count=number,
                split=part,
                seed=seed + 100 * split + 10 * domain,
            )
            for picture in scenes.images(size=32, dtype=torch.uint8):
                yield split, label, domain, picture


def _save(path: Path, picture: Tensor) -> None:
    with extra("data"):
        from PIL import Image

    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(picture.permute(1, 2, 0).numpy()).save(path)


def _write_table(path: Path, columns: str, rows: list[tuple[object, ...]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as stream:
        csv.writer(stream).writerows([columns.split(), *rows])


_Rows = list[tuple[object, ...]]


def _write_waterbirds(folder: Path, pictures: _Pictures) -> None:
    rows: _Rows = []
    for number, (split, label, domain, picture) in pictures:
        name = f"001.Some_Bird/Some_Bird_{number:04}.png"
        _save(folder / name, picture)
        rows.append((number, name, label, split, domain))
    _write_table(folder / "metadata.csv", "img_id img_filename y split place", rows)


def _write_celeba(folder: Path, pictures: _Pictures) -> None:
    signs: _Rows = []
    parts: _Rows = []
    for number, (split, label, domain, picture) in pictures:
        name = f"{number + 1:06}.png"
        _save(folder / "img_align_celeba" / name, picture)
        signs.append((name, 2 * label - 1, 2 * domain - 1))
        parts.append((name, split))
    _write_table(folder / "list_attr_celeba.csv", "image_id Blond_Hair Male", signs)
    _write_table(folder / "list_eval_partition.csv", "image_id partition", parts)


def _write_camelyon17(folder: Path, pictures: _Pictures) -> None:
    rows: _Rows = []
    for number, (split, label, hospital, picture) in pictures:
        patient = f"{20 * hospital:03}"
        slide = f"patient_{patient}_node_1"
        name = f"patch_{slide}_x_{32 * number}_y_0.png"
        _save(folder / "patches" / slide / name, picture)
        rows.append((patient, 1, 32 * number, 0, label, hospital, int(split == 1)))
    columns = "patient node x_coord y_coord tumor center split"
    _write_table(folder / "metadata.csv", columns, rows)


_WRITERS: Final = {
    "waterbirds": _write_waterbirds,
    "celebA": _write_celeba,
    "camelyon17": _write_camelyon17,
}
