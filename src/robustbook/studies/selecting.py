"""Epochs that criteria select, and means over trainings."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from scipy.stats import t as student

from robustbook._checks.arguments import check_choice
from robustbook._comparison import paired_rates
from robustbook.lenses import Share

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["mean_interval", "paired_interval", "select_epochs", "share_interval"]


def select_epochs(
    epochs: pd.DataFrame,
    criterion: str,
    *,
    by: Sequence[str],
    among: Sequence[str] = (),
    guard: str = "",
    least: float = 0.0,
    ties: str = "first",
) -> pd.DataFrame:
    """Return the epoch that a criterion selects, of each training in a table.

    Chapter 16.

    Parameters
    ----------
    epochs : DataFrame
        One row for each epoch of each training: "epoch", the columns that `by` and
        `among` name, and whatever was measured.
    criterion : str
        The column that is to be largest.
    by : sequence of str
        The columns that name a training, such as its learner and its seed: one epoch
        is selected for each combination of their values.
    among : sequence of str, optional
        Further columns that name a training, where the criterion is to select the
        training together with its epoch.
    guard : str, optional
        A column, such as validation accuracy, of which an epoch must reach a share.
    least : float, default 0
        That share of the best value among the epochs; with 1 only the best take part.
    ties : {"first", "last"}, default "first"
        Which epoch, if several are best.

    Returns
    -------
    DataFrame
        One row for each combination, which is its index, in the order of the table.

    Raises
    ------
    ValueError
        If a column is missing, `by` and `among` do not tell all trainings apart, the
        rule for ties is unknown, the guard is no share of a best value, or a training
        has no value of the criterion.

    Examples
    --------
    >>> import pandas as pd
    >>> epochs = pd.DataFrame(
    ...     {"training_seed": [0, 0, 1, 1], "epoch": [1, 2, 1, 2],
    ...      "pa": [1.1, 0.9, 0.2, 0.7], "accuracy": [0.3, 0.9, 0.4, 0.8]}
    ... )
    >>> select_epochs(epochs, "pa", by=["training_seed"]).epoch.tolist()
    [1, 2]
    >>> guarded = {"guard": "accuracy", "least": 0.9}
    >>> select_epochs(epochs, "pa", by=["training_seed"], **guarded).epoch.tolist()
    [2, 2]
    """
    check_choice("ties", ties, ("first", "last"))
    keys, named = list(by), [*by, *among, "epoch"]
    if not keys:
        raise ValueError("by: expected the columns that name a training, got none")
    for column in (*named, criterion, *([guard] if guard else [])):
        if column not in epochs:
            raise ValueError(f"epochs: no column {column!r}, among {list(epochs)}")
    twice = epochs[epochs.duplicated(named)]
    if len(twice):
        raise ValueError(
            f"epochs: two rows of {twice[named].iloc[0].to_dict()}; name the columns "
            "that tell their trainings apart in by, or in among to select one of them"
        )
    if guard and not ((epochs[guard] >= 0).all() and 0 <= least <= 1):
        raise ValueError(
            f"expected {guard} of at least 0, and least from 0 to 1, got {least}"
        )
    able = epochs
    if guard:
        best = epochs.groupby(keys)[guard].transform("max")
        able = epochs[epochs[guard] >= least * best]
    largest = able.groupby(keys)[criterion].transform("max")
    chosen = able[able[criterion] == largest].sort_values("epoch", kind="stable")
    chosen = chosen.drop_duplicates(keys, keep=ties)
    if len(chosen) < len(epochs[keys].drop_duplicates()):
        raise ValueError(f"epochs: a training has no epoch with a known {criterion}")
    return chosen.sort_index().set_index(keys)


def mean_interval(
    values: Sequence[float], error: float = 0.0
) -> tuple[float, float, float]:
    """Return the mean of independent values and its 95 % interval of Student.

    Parameters
    ----------
    values : sequence of float
        At least two; those of trainings that share nothing but their design.
    error : float, default 0
        A standard error that all values have in common, such as that of the images on
        which they were measured: more values do not lower it. The squares are added,
        with Satterthwaite's degrees of freedom.

    Returns
    -------
    mean, low, high : float

    Raises
    ------
    ValueError
        If there are fewer than two values, or one is not finite.

    Examples
    --------
    >>> [round(end, 2) for end in mean_interval([1.0, 2.0, 3.0])]
    [2.0, -0.48, 4.48]
    >>> [round(end, 2) for end in mean_interval([1.9, 2.0, 2.1], error=0.2)]
    [2.0, 1.59, 2.41]
    """
    known = np.asarray(values, dtype=np.float64)
    if known.ndim != 1 or len(known) < 2 or not np.isfinite(known).all():
        raise ValueError(f"values: expected at least 2 finite numbers, got {values!r}")
    spread = known.std(ddof=1) / math.sqrt(len(known))
    total = math.hypot(spread, error)
    freedom = (len(known) - 1) * (total / spread) ** 4 if spread else math.inf
    half = student.ppf(0.975, freedom) * total
    return float(known.mean()), float(known.mean() - half), float(known.mean() + half)


def share_interval(count: int, total: int) -> tuple[float, float]:
    """Return Wilson's 95 % interval of the share of independent cases that count.

    Parameters
    ----------
    count, total : int
        How many cases count, and how many there are.

    Returns
    -------
    low, high : float

    Examples
    --------
    >>> [round(end, 3) for end in share_interval(0, 20)]
    [0.0, 0.161]
    """
    return Share.of(torch.arange(total) < count).interval


def paired_interval(first: Any, second: Any) -> tuple[float, float, float]:
    """Return a difference of two shares of the same cases and its 95 % interval.

    Agresti and Min's, which is within ±1 for few cases, too.

    Parameters
    ----------
    first, second : array of bool, shape (N,)
        Which cases count for the first share, and which for the second.

    Returns
    -------
    difference, low, high : float

    Examples
    --------
    >>> difference, low, high = paired_interval([True, True, False], [False] * 3)
    >>> -1 <= low < 0 < difference < high <= 1
    True
    """
    rates = paired_rates(*(torch.tensor([*hits]).bool() for hits in (first, second)))
    return rates.value, *rates.interval
