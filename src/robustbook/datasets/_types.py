"""Data sets, and their entries in the registry."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from robustbook._checks.arguments import check_choice
from robustbook._store import DataUnavailableError, user_cache
from robustbook._store.downloads import check_sum, data_folder, obtain

Arrays = tuple[npt.NDArray[Any], npt.NDArray[Any]]


@dataclass(frozen=True, eq=False)
class Dataset:
    """Images with their labels.

    Attributes
    ----------
    images : Tensor, shape (n, C, H, W)
        float32 pixels in [0, 1].
    labels : Tensor, shape (n,)
        int64 classes from 0 to `num_classes` - 1.
    name, split : str
        Where they come from.
    """

    images: Tensor
    labels: Tensor
    name: str
    split: str
    num_classes: int

    def __post_init__(self) -> None:
        if self.images.ndim != 4 or self.labels.shape != self.images.shape[:1]:
            raise ValueError(
                "images and labels: expected shapes (n, C, H, W) and (n,), got "
                f"{tuple(self.images.shape)} and {tuple(self.labels.shape)}"
            )

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        where, shape = f"{self.name!r}, {self.split!r}", self.images.shape[1:]
        images = f"{len(self)} images of {'x'.join(map(str, shape))}"
        return f"Dataset({where}, {images}, {self.num_classes} classes)"

    def subset(self, index: npt.ArrayLike | Tensor | slice) -> Dataset:
        """Return the samples of an index, in its order.

        It holds positions in this data set, or is a mask of one bool for each sample.

        Raises
        ------
        TypeError, ValueError
            If the index is none of these, or a mask has another length.

        Examples
        --------
        >>> from robustbook.datasets import load_dataset
        >>> load_dataset("digits", "test").subset([4, 2]).labels.shape
        torch.Size([2])
        """
        places = positions_of(index, len(self))
        return replace(self, images=self.images[places], labels=self.labels[places])


def positions_of(index: Any, length: int) -> Tensor:
    """Positions (int64) from positions, a slice, or a mask."""
    if isinstance(index, slice):
        index = range(length)[index]
    array = np.asarray(index.cpu() if isinstance(index, Tensor) else index)
    if array.ndim != 1:
        raise ValueError(f"index: expected one dimension, got shape {array.shape}")
    if array.dtype == bool:
        if len(array) != length:
            raise ValueError(
                f"index: expected a mask of {length} bools, one for each "
                f"sample, got {len(array)}"
            )
        array = np.flatnonzero(array)
    elif array.dtype.kind not in "iu" and len(array):
        raise TypeError(
            "index: expected positions (integers) or a mask (bools), got dtype "
            f"{array.dtype}"
        )
    return torch.from_numpy(array.astype(np.int64))


@dataclass(frozen=True, kw_only=True)
class DatasetSpec:
    """The registry's entry of a data set of images, sentences or votes.

    Attributes
    ----------
    name, split_sizes : str, dict of str to int
        Name for the loader, and the splits with their numbers of samples.
    license, source : str
        For the data card.
    files : dict of str to str
        The sha256 of each downloadable file.
    address, folder : str
        Where the files are in public, and in ``ROBUSTBOOK_DATA`` (there in a folder of
        the data set's name by default). Without an address they are only looked for.
    remedy : str
        Instruction for filling that folder, if there is no address.
    num_classes, image_shape : int, (int, int, int)
        The number of classes; channels, height and width of an image.
    read : callable
        Reads a split, or all votes.
    """

    name: str
    split_sizes: dict[str, int]
    license: str
    source: str
    read: Callable[..., Any]
    files: dict[str, str] = field(default_factory=dict)
    address: str = ""
    folder: str = ""
    remedy: str = ""
    num_classes: int = 10
    image_shape: tuple[int, ...] = ()

    def check_split(self, split: str) -> None:
        """Refuse a split that is not among `split_sizes`."""
        check_choice("split", split, self.split_sizes, of=f" for {self.name}")

    def obtain(self, file: str, *, progress: bool = False) -> Path:
        """Find one of `files`, or download it; its sum is checked either way."""
        if not self.address:
            folder = data_folder()
            path = None if folder is None else folder / self.name / file
            if path is None or not path.is_file():
                raise DataUnavailableError(
                    f"{self.name}: {file} was looked for in ROBUSTBOOK_DATA "
                    f"({folder or 'not set'}) and has no public address; {self.remedy}"
                )
            return check_sum(path, self.files[file])
        return obtain(
            self.name,
            f"{self.folder or self.name}/{file}",
            url=self.address + file,
            sha256=self.files[file],
            cache=user_cache(self.name),
            progress=progress,
            remedy=f"run `robustbook data fetch {self.name}`",
        )


def registered(
    kind: str, readers: Mapping[str, Callable[..., Any]]
) -> dict[str, DatasetSpec]:
    """Return the entries of one kind in registry.toml, each with its reader."""
    content = Path(__file__).with_name("registry.toml").read_text(encoding="utf-8")
    entries = tomllib.loads(content)
    specs = {}
    for name, entry in entries[kind].items():
        read = readers[entry.pop("layout", name)]
        shape = tuple(entry.pop("image_shape", ()))
        specs[name] = DatasetSpec(name=name, read=read, image_shape=shape, **entry)
    return specs
