"""MNIST and Fashion-MNIST: gzipped IDX files."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import numpy as np
import numpy.typing as npt

from robustbook._store import DataUnavailableError
from robustbook.datasets._types import Arrays, DatasetSpec

__all__ = ["read_idx", "read_mnist"]


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
