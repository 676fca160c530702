"""Digits: the data set inside scikit-learn, with a split that never changes."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from robustbook.datasets._types import Arrays, DatasetSpec

__all__ = ["digits_order", "read_digits"]

_DIGITS_SEED: Final = 20240601


def digits_order() -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Indices of the train and the test split of digits.

    One third of every class (rounded down) is for testing. ``RandomState`` is
    frozen by numpy's compatibility policy, so the split never changes.
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
