"""Images to report on: a data set by name, or a file that people bring."""

from __future__ import annotations

import zipfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from robustbook._array_files import FileError, read_array
from robustbook._checks.arguments import as_tensor, check_count, check_labels
from robustbook._checks.images import check_images
from robustbook.datasets import dataset_spec, list_datasets, load_dataset

_SUFFIXES: Final = (".npz", ".safetensors")
_ACCEPTED: Final = (
    "floating-point (N, C, H, W) in [0, 1], or uint8 (N, H, W, C) or (N, C, H, W) with "
    "one channel or three"
)


@dataclass(frozen=True, eq=False)
class Images:
    """Images, with classes if they are known.

    Attributes
    ----------
    images : Tensor, shape (N, C, H, W)
        float32 pixels in [0, 1].
    labels : Tensor, shape (N,), or None
        int64 classes.
    name, positions : str, Tensor of shape (N,)
        Where they come from, and where they stand there.
    num_classes, others : int or None, tuple of str
        K, where the data set says so; names of what else is in the file.
    """

    images: Tensor = field(repr=False)
    labels: Tensor | None = field(repr=False)
    name: str
    positions: Tensor = field(repr=False)
    num_classes: int | None = None
    others: tuple[str, ...] = ()

    def __len__(self) -> int:
        """N."""
        return len(self.images)

    def draw(self, count: int, *, seed: int = 0) -> Images:
        """Draw `count` images without replacement, all if there are fewer, in order.

        A smaller draw of the same seed is a part of a larger one.
        """
        check_count("count", count)
        check_count("seed", seed, minimum=0)
        if count >= len(self):
            return self
        order = np.random.default_rng([seed, 2]).permutation(len(self))
        chosen = torch.from_numpy(np.sort(order[:count]))
        labels = None if self.labels is None else self.labels[chosen]
        places = self.positions[chosen]
        return replace(
            self, images=self.images[chosen], labels=labels, positions=places
        )


def read_images(source: str | Path) -> Images:
    """Read the images that ``robustbook report --data`` names.

    Parameters
    ----------
    source : str or Path
        A data set of :func:`robustbook.datasets.load_dataset`, with or without a split:
        "digits", "cifar10:test1000"; without one, "test". Or a file .npz or
        .safetensors with ``images``, and ``labels`` (N,) if they are known. Images are
        floating-point (N, C, H, W) in [0, 1], or uint8 (N, H, W, C) or (N, C, H, W)
        with one channel or three, which is divided by 255.

    Raises
    ------
    ValueError
        If there is no such data set, split or file, or it is not as described.
    DataUnavailableError
        If the files of a data set are neither found nor downloaded.

    Examples
    --------
    >>> read_images("digits:test").draw(5).positions
    tensor([ 96, 176, 234, 380, 554])
    """
    name = str(source)
    if Path(name).suffix.lower() in _SUFFIXES:
        return _read_file(Path(name))
    dataset, _, split = name.partition(":")
    if dataset not in list_datasets():
        splits = {x: ",".join(dataset_spec(x).split_sizes) for x in list_datasets()}
        known = ", ".join(f"{name}:{{{splits[name]}}}" for name in splits)
        raise ValueError(
            f"data: expected one of {known}, or a file that ends in "
            f"{' or '.join(_SUFFIXES)}; got {name!r}"
        )
    try:
        loaded = load_dataset(dataset, split or "test")
    except ValueError as error:
        raise ValueError(f"data: {name!r}: {error}") from None
    name, places = f"{dataset}:{loaded.split}", torch.arange(len(loaded))
    return Images(loaded.images, loaded.labels, name, places, loaded.num_classes)


def _read_file(path: Path) -> Images:
    read = _read_npz if path.suffix.lower() == ".npz" else _read_tensors
    arrays, names = read(path)
    try:
        images = _as_images(as_tensor("images", arrays["images"]))
        labels = arrays.get("labels")
        if labels is not None:
            labels = check_labels("labels", labels, length=len(images)).long()
            if (least := int(labels.min())) < 0:
                raise ValueError(f"labels: expected classes from 0 on, got {least}")
    except (TypeError, ValueError) as error:
        raise FileError(f"{path}: {error}") from error
    others = tuple(sorted({*names} - {"images", "labels"}))
    places = torch.arange(len(images))
    return Images(images, labels, path.name, places, others=others)


def _read_npz(path: Path) -> tuple[dict[str, Any], list[str]]:
    # First: what is wrong with the file itself is said there.
    try:
        arrays = {"images": read_array(path, key="images", default="images")}
    except FileError as error:
        raise FileError(str(error).replace("logits=", "images=")) from error
    with zipfile.ZipFile(path) as archive:
        names = [name.removesuffix(".npy") for name in archive.namelist()]
    if "labels" in names:
        try:
            arrays["labels"] = read_array(path, key="labels", default="labels")
        except FileError as error:
            raise FileError(f"{error} (of labels)") from error
    return arrays, names


def _read_tensors(path: Path) -> tuple[dict[str, Any], list[str]]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    if not path.is_file():
        raise FileError(f"{path}: {'not a' if path.exists() else 'no such'} file")
    try:
        tensors = load_file(path)
    except (SafetensorError, OSError) as error:
        reason = " ".join(str(error).split())
        raise FileError(f"{path}: cannot be read ({reason}); save it again") from error
    if "images" not in tensors:
        names = ", ".join(map(repr, tensors)) or "none"
        raise FileError(f"{path}: expected a tensor named 'images', got {names}")
    return tensors, list(tensors)


def _as_images(pixels: Tensor) -> Tensor:
    """float32 (N, C, H, W) in [0, 1] of what is accepted."""
    shape = tuple(pixels.shape)
    refused = f"images: expected {_ACCEPTED}; got {pixels.dtype} of shape {shape}"
    if pixels.ndim != 4 or 0 in shape:
        remedy = ": with one channel, images[:, None] mends it" * (pixels.ndim == 3)
        raise ValueError(refused + remedy)
    first, last = (shape[place] in (1, 3) for place in (1, 3))
    if pixels.dtype == torch.uint8:
        if first == last:
            raise ValueError(f"{refused}, where it is not plain which are the channels")
        if last:
            pixels = pixels.permute(0, 3, 1, 2)
        return pixels.contiguous().float() / 255
    if not pixels.is_floating_point():
        raise TypeError(f'{refused}: of bytes, images.astype("uint8") mends it')
    if last and not first:
        raise ValueError(f"{refused}, channels last: transpose(0, 3, 1, 2) mends it")
    return check_images(pixels).float()
