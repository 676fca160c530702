"""What criteria select among the epochs of trainings, and means over trainings."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
from scipy.stats import t as student

from robustbook._checks.arguments import check_choice

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["mean_interval", "select_epochs"]

#: Columns that tell one training from another, as far as a table has them.
TRAINING: Final = (
    *("factor", "setting", "dataset", "world", "target"),
    *("learner", "head", "lr", "training_seed"),
)


def select_epochs(
    epochs: pd.DataFrame,
    criterion: str,
    *,
    guard: str = "",
    least: float = 0.0,
    ties: str = "first",
) -> pd.DataFrame:
    """Return the epoch that a criterion selects, of each training in a table.

    Chapter 15.

    Parameters
    ----------
    epochs : DataFrame
        One row for each epoch: "epoch", the columns of ``TRAINING`` that tell the
        trainings apart, and whatever was measured.
    criterion : str
        The column that is to be largest.
    guard : str, optional
        A column, such as validation accuracy, of which an epoch must reach a share.
    least : float, default 0
        That share of the training's best value; with 1 only the best take part.
    ties : {"first", "last"}, default "first"
        Which epoch, if several are best.

    Returns
    -------
    DataFrame
        One row for each training, which is its index, in the order of the table.

    Raises
    ------
    ValueError
        If a column is missing, the rule for ties is unknown, the guard is no share of a
        best value, or a training has no value of the criterion.

    Examples
    --------
    >>> import pandas as pd
    >>> epochs = pd.DataFrame(
    ...     {"training_seed": [0, 0, 1, 1], "epoch": [1, 2, 1, 2],
    ...      "pa": [1.1, 0.9, 0.2, 0.7], "accuracy": [0.3, 0.9, 0.4, 0.8]}
    ... )
    >>> select_epochs(epochs, "pa").epoch.tolist()
    [1, 2]
    >>> select_epochs(epochs, "pa", guard="accuracy", least=0.9).epoch.tolist()
    [2, 2]
    """
    check_choice("ties", ties, ("first", "last"))
    for column in ("epoch", criterion, *([guard] if guard else [])):
        if column not in epochs:
            raise ValueError(f"epochs: no column {column!r}, among {list(epochs)}")
    keys = [key for key in TRAINING if key in epochs]
    if not keys:
        raise ValueError(f"epochs: none of the columns {TRAINING}")
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


def mean_interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Return the mean of independent values and its 95 % interval of Student.

    Parameters
    ----------
    values : sequence of float
        At least two; those of trainings that share nothing but their design.

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
    """
    known = np.asarray(values, dtype=np.float64)
    if known.ndim != 1 or len(known) < 2 or not np.isfinite(known).all():
        raise ValueError(f"values: expected at least 2 finite numbers, got {values!r}")
    half = student.ppf(0.975, len(known) - 1) * known.std(ddof=1)
    half /= math.sqrt(len(known))
    return float(known.mean()), float(known.mean() - half), float(known.mean() + half)
