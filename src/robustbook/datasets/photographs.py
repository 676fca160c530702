"""Pictures without a public address in the form that is read: PACS and two others."""

from __future__ import annotations

import csv
import io
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from robustbook._checks.extras import extra
from robustbook._store import DataUnavailableError
from robustbook._store.downloads import data_folder

if TYPE_CHECKING:
    from robustbook.datasets._types import Arrays, DatasetSpec

#: The domains of PACS, which are its splits, and its classes in the order of labels.
PACS_DOMAINS: Final = ("photo", "art_painting", "cartoon", "sketch")
PACS_CLASSES: Final = (
    *("dog", "elephant", "giraffe", "guitar"),
    *("horse", "house", "person"),
)


def stored_pictures(spec: DatasetSpec, split: str) -> dict[str, bytes]:
    """Files of a domain of PACS, by CLASS/NAME, in a fixed order."""
    files = _in_folder(spec.name, split, "*/*.*") or {
        name.partition("/")[2]: content
        for name, content in _in_tar(spec.obtain(f"{split}.tar")).items()
    }
    return {name: files[name] for name in sorted(files)}


def read_pacs(spec: DatasetSpec, split: str) -> Arrays:
    """Read a domain of PACS."""
    stored = stored_pictures(spec, split)
    return decoded(stored, spec.image_shape[1], spec.name), pacs_labels(stored)


def pacs_labels(stored: dict[str, bytes]) -> npt.NDArray[np.int64]:
    """Classes of pictures by the names of their folders."""
    try:
        return np.array([PACS_CLASSES.index(name.split("/")[0]) for name in stored])
    except ValueError as error:
        raise DataUnavailableError(
            f"pacs: expected pictures in folders named {', '.join(PACS_CLASSES)}; "
            f"{error}"
        ) from error


def read_imagenet(spec: DatasetSpec, split: str) -> Arrays:
    """Read the first pictures of the NIPS 2017 set, in the order of its table."""
    with spec.obtain("images.csv").open(newline="", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))[: spec.split_sizes[split]]
    files = _in_folder(spec.name, "images", "*.*") or _in_tar(spec.obtain("images.tar"))
    by_name = {Path(name).stem: content for name, content in files.items()}
    missing = [row["ImageId"] for row in rows if row["ImageId"] not in by_name]
    if missing:
        raise DataUnavailableError(
            f"{spec.name}: {len(missing)} pictures of images.csv are missing, "
            f"{missing[0]} among them; {spec.remedy}"
        )
    stored = {row["ImageId"]: by_name[row["ImageId"]] for row in rows}
    labels = np.array([int(row["TrueLabel"]) - 1 for row in rows])
    return decoded(stored, spec.image_shape[1], spec.name), labels


def read_usps(spec: DatasetSpec, split: str) -> Arrays:
    """Read USPS from one file of arrays, or from the two that LIBSVM's page has."""
    folder = data_folder()
    name = {"train": "usps.bz2", "test": "usps.t.bz2"}[split]
    if folder is not None and (folder / spec.name / name).is_file():
        from sklearn.datasets import load_svmlight_file

        table, digits = load_svmlight_file(
            str(folder / spec.name / name), n_features=256
        )
        pixels, labels = (table.toarray().astype(np.float32) + 1) / 2, digits - 1
    else:
        with np.load(spec.obtain("usps.npz"), allow_pickle=False) as arrays:
            pixels, labels = arrays[f"{split}_images"], arrays[f"{split}_labels"]
    return pixels.reshape(-1, 1, 16, 16), labels


def opened(file: Path | io.BytesIO, what: str, remedy: str) -> Any:
    """Read a picture, in RGB."""
    with extra("data"):
        from PIL import Image

    try:
        with Image.open(file) as stored:
            return stored.convert("RGB")
    # Damaged pictures raise SyntaxError and ValueError, too.
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise DataUnavailableError(
            f"{what}: expected a picture ({type(error).__name__}); {remedy}"
        ) from error


def decoded(stored: dict[str, bytes], size: int, name: str) -> npt.NDArray[np.uint8]:
    """Decode square pictures to pixels (n, 3, size, size)."""
    with extra("data"):
        from PIL.Image import Resampling

    images = np.empty((len(stored), 3, size, size), dtype=np.uint8)
    for image, (file, content) in zip(images, stored.items(), strict=True):
        pixels = opened(io.BytesIO(content), f"{name}: {file}", "put the file back")
        if pixels.size != (size, size):
            pixels = pixels.resize((size, size), Resampling.LANCZOS)
        image[:] = np.asarray(pixels).transpose(2, 0, 1)
    return images


def _in_folder(name: str, part: str, pattern: str) -> dict[str, bytes]:
    """Unpacked files in ROBUSTBOOK_DATA, by their names below the part."""
    folder = data_folder()
    if folder is None:
        return {}
    root = folder / name / part
    paths = root.glob(pattern)
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in paths}


def _in_tar(path: Path) -> dict[str, bytes]:
    """Files of an archive whose sum was checked; nothing is unpacked to disk."""
    with tarfile.open(path) as archive:
        streams = {member.name: archive.extractfile(member) for member in archive}
        return {name: stream.read() for name, stream in streams.items() if stream}
