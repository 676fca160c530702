"""How people name images: votes for the images of a data set, in their order."""

from __future__ import annotations

from typing import Final

import numpy as np
import torch
from torch import Tensor

from robustbook._checks.arguments import check_choice
from robustbook.datasets._types import DatasetSpec


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


_SUM: Final = "1428924725020a238b51763eaf54396e639f4bcd9f50567d0eab63ab822cfb25"
VOTES: Final = {
    spec.name: spec
    for spec in (
        DatasetSpec(
            name="cifar10h",
            split_sizes={"test": 10000, "test1000": 1000},
            licence="CC BY-NC-SA 4.0",
            source="Peterson, Battleday, Griffiths, Russakovsky, 2019",
            files={"cifar10h-counts.npy": _SUM},
            address="https://raw.githubusercontent.com/jcpeterson/cifar-10h/"
            "597cbc5f07266c9405b830ee4a53463539124c4f/data/",
            folder="cifar10",
            read=_read_counts,
        ),
    )
}
