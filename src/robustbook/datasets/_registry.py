"""The data sets that are known, and how to get one."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np
import torch

from robustbook._checks.arguments import check_choice
from robustbook._store import DataUnavailableError
from robustbook.datasets._readers import (
    ARCHIVE,
    read_cifar10,
    read_digits,
    read_mnist,
)
from robustbook.datasets._sentences import list_sentences, sentences_spec
from robustbook.datasets._types import CollectionSpec, Dataset, DatasetSpec

_MNIST_URL: Final = "https://ossci-datasets.s3.amazonaws.com/mnist/"
_FASHION_URL: Final = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"
_CIFAR_URL: Final = "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz"

_IDX_FILES: Final = (
    "train-images-idx3-ubyte.gz",
    "train-labels-idx1-ubyte.gz",
    "t10k-images-idx3-ubyte.gz",
    "t10k-labels-idx1-ubyte.gz",
)
_MNIST_SUMS: Final = (
    "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
    "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
    "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
    "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
)
_FASHION_SUMS: Final = (
    "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
    "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
    "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
    "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
)
_CIFAR_SUM: Final = "6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce"


def _like_mnist(
    name: str, url: str, sums: tuple[str, ...], licence: str, source: str
) -> DatasetSpec:
    return DatasetSpec(
        name=name,
        num_classes=10,
        image_shape=(1, 28, 28),
        split_sizes={"train": 60000, "test": 10000},
        licence=licence,
        source=source,
        files=dict(zip(_IDX_FILES, sums, strict=True)),
        urls={file: url + file for file in _IDX_FILES},
        read=read_mnist,
    )


_REGISTRY: Final[dict[str, DatasetSpec]] = {
    spec.name: spec
    for spec in (
        DatasetSpec(
            name="digits",
            num_classes=10,
            image_shape=(1, 8, 8),
            split_sizes={"train": 1201, "test": 596},
            licence="CC BY 4.0 (UCI); the copy in scikit-learn: BSD-3-Clause",
            source="scikit-learn, sklearn.datasets.load_digits",
            files={},
            urls={},
            read=read_digits,
        ),
        _like_mnist(
            *("mnist", _MNIST_URL, _MNIST_SUMS),
            *("CC BY-SA 3.0", "LeCun, Cortes, Burges"),
        ),
        _like_mnist(
            *("fashion-mnist", _FASHION_URL, _FASHION_SUMS),
            *("MIT", "Zalando Research"),
        ),
        DatasetSpec(
            name="cifar10",
            num_classes=10,
            image_shape=(3, 32, 32),
            split_sizes={"train": 50000, "test": 10000, "test1000": 1000},
            licence="none stated; published for research",
            source="Krizhevsky, University of Toronto",
            files={ARCHIVE: _CIFAR_SUM},
            urls={ARCHIVE: _CIFAR_URL},
            read=read_cifar10,
        ),
    )
}


def list_datasets() -> list[str]:
    """Return the names that :func:`load_dataset` knows.

    Examples
    --------
    >>> list_datasets()
    ['digits', 'mnist', 'fashion-mnist', 'cifar10']
    """
    return list(_REGISTRY)


def dataset_spec(name: str) -> DatasetSpec:
    """Return the registry's entry of a data set, one of :func:`list_datasets`.

    Examples
    --------
    >>> dataset_spec("digits").split_sizes
    {'train': 1201, 'test': 596}
    """
    return _REGISTRY[check_choice("name", name, _REGISTRY)]


def load_dataset(name: str, split: str) -> Dataset:
    """Load a split of a data set.

    Parameters
    ----------
    name : str
        One of :func:`list_datasets`. "digits" needs no file and no network.
    split : str
        "train" or "test". CIFAR-10 has "test1000" too, the first 1000 test
        images, which need not the whole archive.

    Returns
    -------
    Dataset
        float32 images in [0, 1] and int64 labels.

    Raises
    ------
    ValueError
        If there is no such data set or split.
    DataUnavailableError
        If a file is neither found nor downloaded, or its sha256 is wrong.

    Notes
    -----
    One third of every class of "digits", drawn once with a frozen generator, is "test".
    The same 13 writers are in both parts: new images, not new hands.

    Examples
    --------
    >>> load_dataset("digits", "train")
    Dataset('digits', 'train', 1201 images of 1x8x8, 10 classes)
    """
    spec = dataset_spec(name)
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
    return Dataset(
        images=torch.from_numpy(np.ascontiguousarray(images)),
        labels=torch.from_numpy(labels.astype(np.int64)),
        name=name,
        split=split,
        num_classes=spec.num_classes,
    )


def fetch(name: str, *, progress: bool = True) -> list[Path]:
    """Make sure that the files of a data set are on this machine.

    Parameters
    ----------
    name : str
        One of :func:`list_datasets` or :func:`list_sentences`.
    progress : bool, default True
        Show a progress bar while downloading.

    Returns
    -------
    list of Path
        The verified files; empty for "digits" and "template-reviews", which need none.

    Raises
    ------
    ModuleNotFoundError
        If a download needs the extra "data", which is not installed.
    DataUnavailableError
        If a file can be neither found nor downloaded.

    Examples
    --------
    >>> fetch("digits")
    []
    """
    sentences = list_sentences()
    check_choice("name", name, [*_REGISTRY, *sentences])
    spec: CollectionSpec = (
        sentences_spec(name) if name in sentences else _REGISTRY[name]
    )
    return [spec.obtain(file, progress=progress) for file in spec.files]
