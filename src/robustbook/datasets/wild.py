"""Photographs from several domains, in the folders of the WILDS package.

Three data sets of Koh et al. (ICML 2021) and Sagawa et al. (ICLR 2020), as the package
`wilds` unpacks them: ``waterbirds_v1.0``, ``celebA_v1.0`` and ``camelyon17_v1.0`` in
one folder. Nothing is downloaded; reading needs Pillow only.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from torch import Tensor

from robustbook._checks.arguments import check_choice, check_count
from robustbook._store import DataUnavailableError
from robustbook.datasets._types import Dataset, positions_of
from robustbook.datasets.photographs import opened

__all__ = ["load_wild"]

#: Parts of the data sets. "validation" has the domains of "train" where those of
#: "test" are others (camelyon17; its second validation part is "ood").
SPLITS: Final = ("train", "validation", "test", "ood")


@dataclass(frozen=True, eq=False)
class WildDataset:
    """Photographs on disk, with their classes and domains.

    Attributes
    ----------
    name, split, files : str, str, tuple of Path
        Where they come from, and one file for each.
    labels, domains : Tensor, shape (n,)
        int64 positions in `class_names` and `domain_names`.
    class_names, domain_names : tuple of str
    """

    name: str
    split: str
    files: tuple[Path, ...]
    labels: Tensor
    domains: Tensor
    class_names: tuple[str, ...]
    domain_names: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.files)

    def __repr__(self) -> str:
        where, names = f"{self.name!r}, {self.split!r}", ", ".join(self.by_domain())
        return f"WildDataset({where}, {len(self)} photographs, domains {names})"

    def subset(self, index: Any) -> WildDataset:
        """Return the photographs of an index: positions, or a mask, in its order."""
        positions = positions_of(index, len(self)).numpy()
        return replace(
            self,
            files=tuple(self.files[k] for k in positions),
            labels=self.labels[positions],
            domains=self.domains[positions],
        )

    def by_domain(self) -> dict[str, WildDataset]:
        """Return the photographs of each domain that is present, by its name."""
        present = set(self.domains.tolist())
        return {
            name: self.subset(self.domains == number)
            for number, name in enumerate(self.domain_names)
            if number in present
        }

    def sample(self, count: int, *, seed: int = 0) -> WildDataset:
        """Return `count` photographs, drawn without repetition, in their order."""
        check_count("count", count)
        random = np.random.default_rng(check_count("seed", seed, minimum=0))
        return self.subset(np.sort(random.random(len(self)).argsort()[:count]))

    def dataset(self, *, size: int = 224) -> Dataset:
        """Read the photographs into memory, uint8 (n, 3, size, size), and the labels.

        The largest square in the middle is scaled to `size` pixels a side.

        Raises
        ------
        DataUnavailableError
            If a file is missing, or is not a picture.
        """
        check_count("size", size)
        images = torch.empty((len(self), 3, size, size), dtype=torch.uint8)
        for image, file in zip(images, self.files, strict=True):
            image.copy_(torch.from_numpy(_read_square(file, size)))
        classes = len(self.class_names)
        return Dataset(images, self.labels, self.name, self.split, classes)


def _read_square(file: Path, size: int) -> np.ndarray[Any, Any]:
    picture = opened(file, str(file), "unpack the archive of the WILDS package again")
    width, height = picture.size
    side = min(width, height)
    left, top = (width - side) / 2, (height - side) / 2
    box = (left, top, left + side, top + side)
    square = picture.resize((size, size), resample=_BILINEAR, box=box)
    return np.asarray(square).transpose(2, 0, 1).copy()


_BILINEAR: Final = 2  # as Pillow numbers it
#: A photograph: file in the data set's folder, class, domain, split.
_Row = tuple[str, int, int, str]


class _Format(NamedTuple):
    class_names: tuple[str, ...]
    domain_names: tuple[str, ...]
    rows: Callable[[Path], Iterator[_Row]]
    splits: tuple[str, ...] = SPLITS[:3]


def _table(path: Path) -> Iterator[Mapping[str, str]]:
    with path.open(newline="", encoding="utf-8-sig") as stream:
        yield from csv.DictReader(stream)


#: By the number that the tables have.
_SPLIT: Final = dict(zip("012", SPLITS, strict=False))


def _waterbirds(folder: Path) -> Iterator[_Row]:
    for row in _table(folder / "metadata.csv"):
        split = _SPLIT[row["split"]]
        yield row["img_filename"], int(row["y"]), int(row["place"]), split


def _celeba(folder: Path) -> Iterator[_Row]:
    parts = {
        row["image_id"]: _SPLIT[row["partition"]]
        for row in _table(folder / "list_eval_partition.csv")
    }
    for row in _table(folder / "list_attr_celeba.csv"):
        name = row["image_id"]
        blond, male = (int(int(row[key]) == 1) for key in ("Blond_Hair", "Male"))
        yield f"img_align_celeba/{name}", blond, male, parts[name]


#: Hospitals whose patches are all for validation out of distribution, or testing.
_HELD_OUT: Final = {1: "ood", 2: "test"}


def _camelyon17(folder: Path) -> Iterator[_Row]:
    for row in _table(folder / "metadata.csv"):
        hospital = int(row["center"])
        inside = "validation" if int(row["split"]) == 1 else "train"
        split = _HELD_OUT.get(hospital, inside)
        slide = f"patient_{row['patient']}_node_{row['node']}"
        patch = f"patch_{slide}_x_{row['x_coord']}_y_{row['y_coord']}.png"
        yield f"patches/{slide}/{patch}", int(row["tumor"]), hospital, split


_FORMATS: Final[dict[str, _Format]] = {
    "waterbirds": _Format(("landbird", "waterbird"), ("land", "water"), _waterbirds),
    "celebA": _Format(("not blond", "blond"), ("female", "male"), _celeba),
    "camelyon17": _Format(
        ("no tumor", "tumor"),
        tuple(f"hospital {number}" for number in range(5)),
        _camelyon17,
        splits=SPLITS,
    ),
}


def load_wild(name: str, split: str, *, root: Path | str) -> WildDataset:
    """Read the files, classes and domains of a part; the pictures stay on disk.

    Parameters
    ----------
    name : str
        "waterbirds": is it a waterbird; the domains are the backgrounds. "celebA":
        is the hair blond; the domains are the two genders as labeled, as in WILDS (the
        PA thesis, section 5.3, has the hair color, which is the class).
        "camelyon17": does a patch of tissue hold a tumor; the domains are hospitals.
    split : str
        "train", "validation" or "test"; and "ood" for camelyon17, its validation part
        from a hospital that is not in "train".
    root : Path or str
        The folder in which the package `wilds` keeps its data sets.

    Raises
    ------
    ValueError
        If there is no such data set or split.
    DataUnavailableError
        If the folder does not hold the data set.

    Examples
    --------
    >>> load_wild("waterbirds", "train", root="no/such/folder")
    Traceback (most recent call last):
        ...
    robustbook._store.files.DataUnavailableError: no/such/folder/waterbirds_v1.0...
    """
    form = _FORMATS[check_choice("name", name, _FORMATS)]
    check_choice("split", split, form.splits, of=f" for {name}")
    folder = Path(root) / f"{name}_v1.0"
    try:
        rows = [row for row in form.rows(folder) if row[3] == split]
        if not rows:
            raise ValueError(f"no photograph of the part {split!r}")
        classes, domains = range(len(form.class_names)), range(len(form.domain_names))
        for file, label, domain, _ in rows:
            if label not in classes or domain not in domains:
                raise ValueError(f"class {label}, domain {domain} for {file}")
    # A truncated line has None for its missing numbers.
    except (OSError, csv.Error, LookupError, TypeError, ValueError) as error:
        raise DataUnavailableError(
            f"{folder}: expected tables as the package wilds unpacks them, got "
            f"{type(error).__name__}: {error}; `pip install wilds`, then "
            "`wilds.get_dataset(NAME, root_dir=FOLDER, download=True)`"
        ) from error
    files, labels, places, _ = zip(*rows, strict=True)
    paths = tuple(folder / file for file in files)
    numbers = torch.tensor(labels), torch.tensor(places)
    return WildDataset(name, split, paths, *numbers, *form[:2])
