"""The cache of what studies measure, and how long that took where it was measured."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path

from torch import nn

from robustbook._store.cache import Arrays, Configuration, cached_arrays
from robustbook._store.provenance import code_sha256
from robustbook.datasets import Dataset

__all__ = ["Reading", "cached", "counted_reading", "data_sum", "model_sum"]


@dataclass
class Reading:
    """What a run read from the cache: how many files, and what they had taken."""

    files: int = 0
    seconds: float = 0.0


_READING: ContextVar[Reading | None] = ContextVar("reading", default=None)


@contextmanager
def counted_reading() -> Iterator[Reading]:
    """Count what is read from the cache rather than measured."""
    reading = Reading()
    token = _READING.set(reading)
    try:
        yield reading
    finally:
        _READING.reset(token)


def cached(
    configuration: Configuration,
    compute: Callable[[], Arrays],
    *,
    code: str,
    directory: Path | str | None = None,
) -> Arrays:
    """Read arrays from the cache, or compute and store them; count what was read.

    The key holds the sum of the module `code` and of what it imports.
    """
    computed = False

    def measure() -> Arrays:
        nonlocal computed
        computed = True
        return compute()

    full = {**configuration, "code_sha256": code_sha256([code])}
    arrays = cached_arrays(full, measure, directory=directory)
    reading = _READING.get()
    if reading is not None and not computed:
        reading.files += 1
    return arrays


def model_sum(model: nn.Module) -> str:
    """The sha256 of a network: its structure and its weights."""
    digest = hashlib.sha256(repr(model).encode())
    for key, value in model.state_dict().items():
        digest.update(key.encode() + value.detach().cpu().numpy().tobytes())
    return digest.hexdigest()


def data_sum(data: Dataset) -> str:
    """The sha256 of images and labels, in their order."""
    digest = hashlib.sha256()
    for tensor in (data.images, data.labels):
        digest.update(tensor.contiguous().numpy().tobytes())
    return digest.hexdigest()
