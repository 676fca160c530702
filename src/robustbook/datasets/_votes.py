"""How people name images: votes for the images of a data set, in their order."""

from __future__ import annotations

from typing import Final

import numpy as np
import torch
from torch import Tensor

from robustbook._checks.arguments import check_choice
from robustbook.datasets._types import DatasetSpec, registered


def list_votes() -> list[str]:
    """Return the names that :func:`load_votes` knows.

    Examples
    --------
    >>> list_votes()
    ['cifar10h']
    """
    return list(VOTES)


def load_votes(name: str, split: str) -> Tensor:
    """Load how many people chose each class for each image.

    "cifar10h" holds 47 to 63 votes for each test image of CIFAR-10, one a person. The
    splits are "test" and "test1000", as in :func:`load_dataset`.

    Returns
    -------
    Tensor, shape (n, K)
        int64 counts.

    Raises
    ------
    ValueError, DataUnavailableError
        As for :func:`load_dataset`.
    """
    spec = VOTES[check_choice("name", name, VOTES)]
    spec.check_split(split)
    counts: Tensor = spec.read(spec)
    return counts[: spec.split_sizes[split]]


def _read_counts(spec: DatasetSpec) -> Tensor:
    (file,) = spec.files
    return torch.from_numpy(np.load(spec.obtain(file)).astype(np.int64))


VOTES: Final = registered("votes", {"cifar10h": _read_counts})
