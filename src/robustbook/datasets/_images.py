"""Readers of data sets of images, each named in registry.toml."""

from __future__ import annotations

import gzip
import hashlib
import pickle
import struct
import tarfile
from functools import cache
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import torch

from robustbook._checks.arguments import check_choice
from robustbook._checks.extras import extra
from robustbook._store import DataUnavailableError
from robustbook._store.downloads import data_folder
from robustbook.datasets._sentences import SENTENCES
from robustbook.datasets._types import Arrays, Dataset, DatasetSpec, registered
from robustbook.datasets._votes import VOTES
from robustbook.datasets.photographs import read_imagenet, read_pacs, read_usps

_ARCHIVE: Final = "cifar-10-python.tar.gz"
#: sha256 of the pixels and labels that the PNG layout of CIFAR-10 holds.
_PICTURES: Final = {
    "train": "1e91790dbaf241617ca1f29a9aba08eb9a62df84cc90676b47edd05ad2ab3c94",
    "test1000": "2c7f1e2769a741f695dfd5f74aa4a4ef08a7d20b9ec8576214dabab76c75c784",
}


@cache
def _digits() -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    """Images and classes of scikit-learn's digits: it parses text, so do it once."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    return digits.images, digits.target


def digits_order() -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Indices of the train and the test split of digits.

    One third of every class (rounded down) is for testing. ``RandomState`` is frozen by
    numpy's compatibility policy, so the split never changes.
    """
    _, target = _digits()
    random = np.random.RandomState(20240601)
    classes = [random.permutation(np.flatnonzero(target == k)) for k in range(10)]
    train = np.concatenate([members[len(members) // 3 :] for members in classes])
    test = np.concatenate([members[: len(members) // 3] for members in classes])
    return random.permutation(train), random.permutation(test)


def read_digits(spec: DatasetSpec, split: str) -> Arrays:
    """Read a split of digits, scaled from 0..16 to [0, 1]."""
    images, target = _digits()
    index = dict(zip(("train", "test"), digits_order(), strict=True))[split]
    return (images[index, None] / 16.0).astype(np.float32), target[index]


def read_idx(path: Path) -> npt.NDArray[np.uint8]:
    """Read a gzipped IDX file of unsigned bytes, whose sum was checked."""
    content = gzip.decompress(path.read_bytes())
    rank = content[3]
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
    """Reads the archive's batches, which hold arrays; it runs no other code."""

    def find_class(self, module: str, name: str) -> object:
        if name not in _ARRAY_PARTS.get(module.replace("._core", ".core"), ()):
            raise pickle.UnpicklingError(
                f"cifar10: expected arrays in the archive, got {module}.{name}"
            )
        return super().find_class(module, name)


_ARRAY_PARTS: Final = {
    "numpy.core.multiarray": ("_reconstruct",),
    "numpy": ("ndarray", "dtype"),
    "_codecs": ("encode",),
}


def read_cifar10(spec: DatasetSpec, split: str) -> Arrays:
    """Read a split of CIFAR-10 from the archive, or from pictures."""
    if split == "held_out":
        size = spec.split_sizes[split]
        images, labels = read_cifar10(spec, "train")
        return images[-size:], labels[-size:]
    folder = data_folder()
    if folder is not None and split != "test":
        place = folder / spec.name
        if (place / "labels.npy").is_file() and not (place / _ARCHIVE).is_file():
            return _read_pictures(place, split)
    numbered = [f"data_batch_{i}" for i in range(1, 6)]
    names = numbered if split == "train" else ["test_batch"]
    with tarfile.open(spec.obtain(_ARCHIVE), "r:gz") as archive:
        batches = {
            name: _ArraysOnly(stream, encoding="bytes").load()
            for member in archive
            if (name := member.name.rpartition("/")[2]) in names
            and (stream := archive.extractfile(member))
        }
    images = np.concatenate([batches[name][b"data"] for name in names])
    labels = np.concatenate([batches[name][b"labels"] for name in names])
    size = spec.split_sizes[split]
    return images.reshape(-1, 3, 32, 32)[:size], labels[:size]


def _read_pictures(folder: Path, split: str) -> Arrays:
    """Read the PNG layout: 1000 images a file, the pixels of the archive."""
    with extra("data"):
        from PIL import Image

    first, last = (0, 50) if split == "train" else (50, 51)
    try:
        labels = np.load(folder / "labels.npy").astype(np.uint8)
        labels = labels[1000 * first : 1000 * last]
        files = [folder / f"cifar10_batch_{k}.png" for k in range(first, last)]
        rows = np.concatenate([np.asarray(Image.open(file)) for file in files])
        images = rows.reshape(-1, 32, 32, 3).transpose(0, 3, 1, 2)
        content = images.tobytes() + labels.tobytes()
        if hashlib.sha256(content).hexdigest() != _PICTURES[split]:
            raise ValueError("expected the pixels and labels of the archive")
    # Damaged files are opened before their sum is known, and may raise anything.
    except Exception as error:
        raise DataUnavailableError(
            f"cifar10: {folder}: {error}; put the files back, or fetch the archive "
            "with `robustbook data fetch cifar10`"
        ) from error
    return images, labels


_REGISTRY: Final = registered(
    "images",
    {
        "digits": read_digits,
        "mnist": read_mnist,
        "cifar10": read_cifar10,
        "usps": read_usps,
        "pacs": read_pacs,
        "imagenet-nips2017": read_imagenet,
    },
)


def list_datasets() -> list[str]:
    """Return the names that :func:`load_dataset` knows.

    Examples
    --------
    >>> list_datasets()
    ['digits', 'mnist', 'fashion-mnist', 'cifar10', 'usps', 'pacs', 'imagenet-nips2017']
    """
    return list(_REGISTRY)


def dataset_spec(name: str) -> DatasetSpec:
    """Return the registry's entry of a data set; ValueError if there is none.

    Examples
    --------
    >>> dataset_spec("digits").split_sizes
    {'train': 1201, 'test': 596}
    """
    known = {**_REGISTRY, **SENTENCES, **VOTES}
    return known[check_choice("name", name, known)]


def load_dataset(name: str, split: str) -> Dataset:
    """Load a split of a data set: float32 images in [0, 1] and int64 labels.

    Parameters
    ----------
    name : str
        One of :func:`list_datasets`. "digits" needs no file and no network; the same
        13 writers are in both of its parts: new images, not new hands.
    split : str
        "train" or "test". CIFAR-10 has "test1000" too, the first 1000 test
        images, which do not need the archive, and "held_out", the last 10 000 of
        "train", which the networks `cifar10-blocks` and `cifar10-strided` have not
        seen. The splits of "pacs" are its
        domains: "photo", "art_painting", "cartoon", "sketch". "imagenet-nips2017"
        has "test" and "test200", the first 200.

    Raises
    ------
    ValueError
        If there is no such data set or split.
    DataUnavailableError
        If a file is neither found nor downloaded, or its sha256 is wrong.

    Examples
    --------
    >>> load_dataset("digits", "train")
    Dataset('digits', 'train', 1201 images of 1x8x8, 10 classes)
    """
    spec = _REGISTRY[check_choice("name", name, _REGISTRY)]
    spec.check_split(split)
    images, labels = spec.read(spec, split)
    if images.dtype == np.uint8:
        images = images.astype(np.float32) / np.float32(255.0)
    expected = (spec.split_sizes[split], *spec.image_shape)
    if images.shape != expected:
        raise DataUnavailableError(
            f"{name}, {split}: expected images of shape {expected}, "
            f"got {images.shape}; the files are not those of the registry"
        )
    pixels = torch.from_numpy(np.ascontiguousarray(images))
    classes = torch.from_numpy(labels.astype(np.int64))
    return Dataset(pixels, classes, name, split, spec.num_classes)


def fetch(name: str, *, progress: bool = True) -> list[Path]:
    """Make sure that the files of a data set are on this machine.

    It is one of :func:`list_datasets`, ``list_sentences`` or ``list_votes``.

    Returns
    -------
    list of Path
        The verified files; empty for "digits" and "template-reviews", which need none.

    Raises
    ------
    ModuleNotFoundError, DataUnavailableError
        If a download needs the extra "data", which is not installed, or fails.

    Examples
    --------
    >>> fetch("digits")
    []
    """
    spec = dataset_spec(name)
    return [spec.obtain(file, progress=progress) for file in spec.files]
