"""Images to report on: a data set by name, or a file that people bring."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from robustbook._array_files import FileError, npz_names, read_array, readable
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
    """Images (N, C, H, W), float32 in [0, 1], with their classes if these are known.

    `positions` are those in the data set or file. A file does not define `num_classes`;
    `others` are the names of its arrays that are neither images nor labels.
    """

    images: Tensor = field(repr=False)
    labels: Tensor | None = field(repr=False)
    name: str
    positions: Tensor = field(repr=False)
    num_classes: int | None = None
    others: tuple[str, ...] = ()

    def __len__(self) -> int:
        """Return N, the number of images."""
        return len(self.images)

    def draw(self, count: int, *, seed: int = 0, skip: int = 0) -> Images:
        """Draw `count` images without replacement, in their order; all if fewer.

        A smaller draw with the same seed is a subset of a larger one. With `skip`, the
        images come after the first `skip` of that order, of which a draw of as many
        consists.
        """
        check_count("count", count)
        if not skip and count >= len(self):
            return self
        order = np.random.default_rng([seed, 2]).permutation(len(self))
        chosen = torch.from_numpy(np.sort(order[skip : skip + count]))
        return replace(
            self,
            images=self.images[chosen],
            labels=None if self.labels is None else self.labels[chosen],
            positions=self.positions[chosen],
        )


def read_images(source: str | Path) -> Images:
    """Read the images that ``robustbook report --data`` names.

    Parameters
    ----------
    source : str or Path
        A data set of :func:`robustbook.datasets.load_dataset`, with or without a split:
        "digits", "cifar10:test1000"; without one, "test". Or a file .npz or
        .safetensors with ``images`` and, if they are known, ``labels`` (N,). Images are
        floating-point (N, C, H, W) in [0, 1], or uint8 (N, H, W, C) or (N, C, H, W)
        with one channel or three, which are divided by 255.

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
    name, positions = f"{dataset}:{loaded.split}", torch.arange(len(loaded))
    return Images(loaded.images, loaded.labels, name, positions, loaded.num_classes)


def _read_file(path: Path) -> Images:
    arrays: dict[str, Any]
    if path.suffix.lower() == ".npz":
        names = npz_names(path)
        wanted = [name for name in ("images", "labels") if name in names]
        arrays = {name: read_array(path, key=name, default=name) for name in wanted}
    else:
        from safetensors.torch import load_file

        with readable(path):
            arrays = load_file(path)
        names = [*arrays]
    if "images" not in arrays:
        got = ", ".join(map(repr, names)) or "none"
        raise FileError(f"{path}: expected an array named 'images', got {got}")
    try:
        images = _as_images(as_tensor("images", arrays["images"]))
        labels = arrays.get("labels")
        if labels is not None:
            labels = check_labels("labels", labels, length=len(images))
            if (least := int(labels.min())) < 0:
                raise ValueError(f"labels: expected classes from 0 on, got {least}")
    except (TypeError, ValueError) as error:
        raise FileError(f"{path}: {error}") from error
    others = tuple(sorted({*names} - {"images", "labels"}))
    positions = torch.arange(len(images))
    return Images(images, labels, path.name, positions, others=others)


def _as_images(pixels: Tensor) -> Tensor:
    """Return accepted pixels as float32 (N, C, H, W) in [0, 1]."""
    shape = tuple(pixels.shape)
    refusal = f"images: expected {_ACCEPTED}; got {pixels.dtype} of shape {shape}"
    if pixels.ndim != 4 or 0 in shape:
        remedy = "; add the channel with images[:, None]" * (pixels.ndim == 3)
        raise ValueError(refusal + remedy)
    first, last = (shape[axis] in (1, 3) for axis in (1, 3))
    if pixels.dtype == torch.uint8:
        if first == last:
            raise ValueError(f"{refusal}; it is not clear which axis is the channels")
        if last:
            pixels = pixels.permute(0, 3, 1, 2)
        return pixels.contiguous().float() / 255
    if not pixels.is_floating_point():
        raise TypeError(f'{refusal}; convert bytes with images.astype("uint8")')
    if last and not first:
        raise ValueError(f"{refusal}; move the channels with transpose(0, 3, 1, 2)")
    return check_images(pixels).float()
