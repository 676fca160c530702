"""What the scores of accuracy without labels are worth, for three questions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.stats import rankdata

from robustbook.label_free import ESTIMATES, SCORES
from robustbook.studies._statistics import Values
from robustbook.studies.families import design_of
from robustbook.studies.run import Row, significant

#: Positions in an array.
Places = npt.NDArray[np.intp]

#: Scores beside those of ``score_pairs``, of the first kind estimates.
MORE: Final = (
    "agreement_on_the_line",
    "generalization_disagreement",
    "hellinger",
    "disagreement_bound",
)
_RESAMPLES: Final = 200


def family_of(network: str) -> str:
    """The family of a network: its training, or its design if others publish it."""
    stem, _, seed = network.rpartition("-s")
    return stem if seed.isdigit() else design_of(network)


def _error(scores: Values, accuracy: Values) -> float:
    return float(np.abs(scores - accuracy).mean())


def _bias(scores: Values, accuracy: Values) -> float:
    return float((scores - accuracy).mean())


def _rank_correlation(scores: Values, accuracy: Values) -> float:
    """Spearman's, over networks, mean over shifts; NaN if all are equal everywhere."""
    a, b = (rankdata(values, axis=0) for values in (scores, accuracy))
    a, b = a - a.mean(0), b - b.mean(0)
    scale = np.sqrt((a**2).sum(0) * (b**2).sum(0))
    known = scale > 0
    if not known.any():
        return np.nan
    return float(((a * b).sum(0)[known] / scale[known]).mean())


def _over_sets(scores: Values, accuracy: Values) -> float:
    return _rank_correlation(scores.T, accuracy.T)


def _regret(scores: Values, accuracy: Values) -> float:
    """Accuracy that the network of the largest score has less than the best."""
    # Equal scores share the choice.
    chosen = scores == scores.max(0)
    taken = (accuracy * chosen).sum(0) / chosen.sum(0)
    return float((accuracy.max(0) - taken).mean())


Statistic = Callable[[Values, Values], float]
_STATISTICS: Final[Mapping[str, tuple[Statistic, bool]]] = {
    "error": (_error, True),
    "sets": (_over_sets, False),
    "networks": (_rank_correlation, False),
    "regret": (_regret, True),
    "bias": (_bias, True),
}
_OF_ESTIMATES: Final = ("error", "bias")
_ORDERS: Final = (*SCORES, "hellinger", "disagreement_bound")


def summarize(cells: list[Row], unlike: bool = False) -> Iterator[Row]:
    """Return each statistic of each score, with intervals, of the cells of a world.

    The mean signed error is among them where clean and shifted inputs are unlike.
    """
    frame = pd.DataFrame(cells)
    for group, part in frame.groupby("group", sort=False):
        table = part.pivot(index="network", columns="shift")
        accuracy = table["accuracy"].to_numpy(float)
        networks, shifts = [*table.index], [*table["accuracy"].columns]
        ours = table["paired_accuracy"].to_numpy(float)
        for score in (*ESTIMATES, *SCORES, *MORE):
            if score not in part or part[score].isna().all():
                continue
            values = table[score].to_numpy(float)
            kept = ~np.isnan(values).any(1)
            block = np.stack([values[kept], ours[kept], accuracy[kept]])
            families = [
                family_of(n) for n, keep in zip(networks, kept, strict=True) if keep
            ]
            # Problems with the same target are of one kind, whatever their seeds.
            grouped = group == "natural" or unlike
            kinds = [s.split()[0] for s in shifts] if grouped else shifts
            for name, (statistic, small) in _STATISTICS.items():
                if name in _OF_ESTIMATES and score in _ORDERS:
                    continue
                if name == "bias" and not unlike:
                    continue
                least = block.shape[2] if name == "sets" else block.shape[1]
                if name not in _OF_ESTIMATES and least < 3:
                    continue
                ends = _interval(statistic, block, families, kinds, small)
                yield {
                    "what": "summary",
                    "group": group,
                    "score": score,
                    "statistic": name,
                    **ends,
                }


def _interval(
    statistic: Statistic,
    block: Values,
    families: Sequence[str],
    kinds: Sequence[str],
    small: bool,
) -> Row:
    """Return value and difference from ours, with intervals over families and kinds."""

    def measured(part: Values) -> tuple[float, float]:
        scores, ours, accuracy = part
        value = statistic(scores, accuracy)
        # Without pairs there is nothing of ours to compare with.
        known = not np.isnan(ours).any()
        best = statistic(ours, accuracy) if known else np.nan
        return value, value - best if small else best - value

    draws = np.random.default_rng(0)
    rows, columns = _members(families), _members(kinds)
    drawn = []
    for _ in range(_RESAMPLES):
        i, j = (_drawn(members, draws) for members in (rows, columns))
        drawn.append(measured(block[:, i][:, :, j]))
    half = 1.96 * pd.DataFrame(drawn).std()  # of the values that are known
    row: Row = {}
    for name, value, width in zip(("", "behind"), measured(block), half, strict=True):
        prefix = f"{name}_" if name else ""
        row[name or "value"] = _plain(value)
        row[f"{prefix}low"], row[f"{prefix}high"] = (
            _plain(value - width),
            _plain(value + width),
        )
    return row


def _members(names: Sequence[str]) -> list[Places]:
    return [np.flatnonzero([n == name for n in names]) for name in dict.fromkeys(names)]


def _drawn(members: list[Places], draws: np.random.Generator) -> Places:
    """Draw as many groups as there are, and take all their members."""
    taken = draws.integers(len(members), size=len(members))
    return np.concatenate([members[k] for k in taken])


def _plain(value: float) -> float | None:
    return None if np.isnan(value) else significant(value)
