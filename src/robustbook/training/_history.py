"""What was measured at each epoch, and which epoch is best."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from torch import Tensor

from robustbook._checks.arguments import check_choice, check_count


@dataclass(frozen=True)
class EarlyStopping:
    """When to stop: after `patience` epochs without a better one by a criterion.

    Parameters
    ----------
    criterion : str
        A column of :attr:`History.rows`, such as "ID/pa": more is better.
    patience : int
        At least 1.

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
        One for each epoch: "epoch" (from 1), "loss" and "risk" (nats), the measure's
        "NAME/accuracy" and so on of each validation pair, "test/NAME" of each test set.
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
        """Return the row of the epoch with the largest value of a criterion.

        Parameters
        ----------
        criterion : str
            A column of `rows`; NaN is worse than any number.
        ties : {"first", "last"}, default "first"
            Which epoch, if several are best.

        Raises
        ------
        ValueError
            If there is no epoch or no such column.
        """
        check_choice("ties", ties, ("first", "last"))
        if not self.rows or criterion not in self.rows[0]:
            known = ", ".join(self.rows[0]) if self.rows else "none: no epoch yet"
            raise ValueError(f"criterion: expected one of {known}; got {criterion!r}")
        rows = self.rows if ties == "first" else self.rows[::-1]

        def value(row: dict[str, float]) -> float:
            return -math.inf if math.isnan(row[criterion]) else row[criterion]

        return max(rows, key=value)
