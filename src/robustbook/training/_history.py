"""What was measured at each epoch, and which epoch is best."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from torch import Tensor

from robustbook._checks.arguments import check_count

__all__ = ["EarlyStopping", "History"]


@dataclass(frozen=True)
class EarlyStopping:
    """When to stop: no better epoch by a criterion for a while.

    Parameters
    ----------
    criterion : str
        A column of :attr:`History.rows`, such as "ID/pa": more is better.
    patience : int
        Epochs without a better one after which training stops.

    Examples
    --------
    >>> EarlyStopping("ID/pa", patience=10)
    EarlyStopping(criterion='ID/pa', patience=10)
    """

    criterion: str
    patience: int

    def __post_init__(self) -> None:
        if not isinstance(self.criterion, str):
            raise TypeError(
                f"criterion: expected a column's name, got {self.criterion!r}"
            )
        # A plain integer, so that equal ones look the same in checkpoints.
        object.__setattr__(self, "patience", check_count("patience", self.patience))


@dataclass
class History:
    """What was measured at each epoch of one training.

    Attributes
    ----------
    rows : list of dict
        One for each epoch: "epoch" (from 1), "loss" and "risk" (nats), for each
        validation pair NAME "NAME/accuracy" and so on as the measure has them, for
        each test set "test/NAME".
    seconds : list of dict
        How long each epoch took: "train" for the steps, "logits" for evaluating the
        model, "measure" for the scores of the pairs.
    weights : dict of str to dict
        For each criterion that is kept, the weights of its best epoch.
    watched : dict of str to list of Tensor
        For each thing that is watched, what it was after each epoch.
    finished : bool
        Whether training came to its end, by the number of epochs or by early stopping.

    Examples
    --------
    >>> history = History(
    ...     rows=[{"epoch": 1, "ID/pa": 0.2}, {"epoch": 2, "ID/pa": 0.3}]
    ... )
    >>> history.best("ID/pa")["epoch"]
    2
    """

    rows: list[dict[str, float]] = field(default_factory=list)
    seconds: list[dict[str, float]] = field(default_factory=list)
    weights: dict[str, dict[str, Tensor]] = field(default_factory=dict)
    watched: dict[str, list[Tensor]] = field(default_factory=dict)
    finished: bool = False

    def best(self, criterion: str, *, ties: str = "first") -> dict[str, float]:
        """Return the row of the epoch that a criterion selects.

        Parameters
        ----------
        criterion : str
            A column of `rows`: the largest value is selected.
        ties : str, default "first"
            Which epoch, if several are best: "first" or "last".

        Returns
        -------
        dict
            The row.

        Raises
        ------
        ValueError
            If there is no epoch, no such column, or `ties` is another word.
        """
        if ties not in ("first", "last"):
            raise ValueError(f"ties: expected 'first' or 'last', got {ties!r}")
        if not self.rows or criterion not in self.rows[0]:
            known = ", ".join(self.rows[0]) if self.rows else "none: no epoch yet"
            raise ValueError(f"criterion: expected one of {known}; got {criterion!r}")
        # NaN is worse than any number.
        column = [row[criterion] for row in self.rows]
        values = [-math.inf if math.isnan(value) else value for value in column]
        place = values.index(max(values))
        if ties == "last":
            place = len(values) - 1 - values[::-1].index(max(values))
        return self.rows[place]
