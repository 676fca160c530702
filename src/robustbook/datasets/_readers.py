"""Readers of the data sets: scikit-learn's digits, IDX files, CIFAR-10."""

from __future__ import annotations

import gzip
import hashlib
import pickle
import struct
import tarfile
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from robustbook._checks.extras import extra
from robustbook._store import DataUnavailableError
from robustbook._store.downloads import data_folder
from robustbook.datasets._types import Arrays, DatasetSpec

ARCHIVE: Final = "cifar-10-python.tar.gz"
#: sha256 of the pixels and labels that the PNG layout of CIFAR-10 holds.
_PICTURES: Final = {
    "train": "1e91790dbaf241617ca1f29a9aba08eb9a62df84cc90676b47edd05ad2ab3c94",
    "test1000": "2c7f1e2769a741f695dfd5f74aa4a4ef08a7d20b9ec8576214dabab76c75c784",
}
_DIGITS_SEED: Final = 20240601


def digits_order() -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Indices of the train and the test split of digits.

    One third of every class (rounded down) is for testing. ``RandomState`` is frozen by
    numpy's compatibility policy, so the split never changes.
    """
    from sklearn.datasets import load_digits

    target = load_digits().target
    random = np.random.RandomState(_DIGITS_SEED)
    train: list[int] = []
    test: list[int] = []
    for label in range(10):
        members = random.permutation(np.flatnonzero(target == label))
        third = len(members) // 3
        test.extend(members[:third])
        train.extend(members[third:])
    return (
        random.permutation(np.asarray(train, dtype=np.int64)),
        random.permutation(np.asarray(test, dtype=np.int64)),
    )


def read_digits(spec: DatasetSpec, split: str) -> Arrays:
    """Read a split of digits, scaled from 0..16 to [0, 1]."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    train, test = digits_order()
    index = train if split == "train" else test
    images = (digits.images[index, None] / 16.0).astype(np.float32)
    return images, digits.target[index].astype(np.int64)


def read_idx(path: Path) -> npt.NDArray[np.uint8]:
    """Read a gzipped IDX file of unsigned bytes."""
    with gzip.open(path, "rb") as stream:
        content = stream.read()
    zeros, kind, rank = struct.unpack(">HBB", content[:4])
    if zeros != 0 or kind != 0x08:
        raise DataUnavailableError(f"{path}: not an IDX file of unsigned bytes")
    shape = struct.unpack(f">{rank}I", content[4 : 4 + 4 * rank])
    pixels = np.frombuffer(content, dtype=np.uint8, offset=4 + 4 * rank)
    return pixels.reshape(shape)


def read_mnist(spec: DatasetSpec, split: str) -> Arrays:
    """Read a split of MNIST, or of another data set with its layout."""
    stem = "train" if split == "train" else "t10k"
    images = read_idx(spec.obtain(f"{stem}-images-idx3-ubyte.gz"))
    labels = read_idx(spec.obtain(f"{stem}-labels-idx1-ubyte.gz"))
    return images[:, None], labels


class _ArraysOnly(pickle.Unpickler):
    """Reads the archive's pickles: arrays and plain containers, and no other code."""

    def find_class(self, module: str, name: str) -> Any:
        if (module.replace("._core", ".core"), name) not in _ARRAY_PARTS:
            raise pickle.UnpicklingError(
                f"cifar10: expected arrays in the archive, got {module}.{name}"
            )
        return super().find_class(module, name)


_ARRAY_PARTS: Final = {
    ("numpy.core.multiarray", "_reconstruct"),
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    ("_codecs", "encode"),
}


def read_cifar10(spec: DatasetSpec, split: str) -> Arrays:
    """Read a split of CIFAR-10 from the archive, or from pictures."""
    folder = data_folder()
    if (
        folder is not None
        and not (folder / spec.name / ARCHIVE).is_file()
        and (folder / spec.name / "labels.npy").is_file()
        and split != "test"
    ):
        return _read_pictures(folder / spec.name, split)
    names = (
        [f"data_batch_{i}" for i in range(1, 6)] if split == "train" else ["test_batch"]
    )
    batches = {}
    with tarfile.open(spec.obtain(ARCHIVE), "r:gz") as archive:
        for member in archive:
            name = member.name.rpartition("/")[2]
            if name in names:
                stream = archive.extractfile(member)
                assert stream is not None  # a regular file of a verified archive
                batches[name] = _ArraysOnly(stream, encoding="bytes").load()
    images = np.concatenate([batches[name][b"data"] for name in names])
    labels = np.concatenate([batches[name][b"labels"] for name in names])
    size = spec.split_sizes[split]
    return images.reshape(-1, 3, 32, 32)[:size], labels[:size]


def _read_pictures(folder: Path, split: str) -> Arrays:
    """Read the PNG layout: 1000 images a file, the pixels of the archive."""
    with extra("data"):
        from PIL import Image

    numbers = range(50) if split == "train" else range(50, 51)
    batches = []
    try:
        labels = np.load(folder / "labels.npy").astype(np.uint8)
        for number in numbers:
            with Image.open(folder / f"cifar10_batch_{number}.png") as picture:
                batches.append(np.asarray(picture).reshape(-1, 32, 32, 3))
        labels = labels[1000 * numbers.start : 1000 * numbers.stop]
        images = np.ascontiguousarray(np.concatenate(batches).transpose(0, 3, 1, 2))
        if (
            hashlib.sha256(images.tobytes() + labels.tobytes()).hexdigest()
            != (_PICTURES[split])
        ):
            raise ValueError("expected the pixels and labels of the archive")
    except (OSError, SyntaxError, ValueError) as error:
        raise DataUnavailableError(
            f"cifar10: {folder}: {error}; put the files back, or fetch the archive "
            "with `robustbook data fetch cifar10`"
        ) from error
    return images, labels
