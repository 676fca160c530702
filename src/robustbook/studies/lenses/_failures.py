"""How well the scores of single images foretell failure under a shift."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Final

import numpy as np
import numpy.typing as npt

from robustbook.corruptions import CORRUPTIONS
from robustbook.studies._run import Row
from robustbook.studies._statistics import Values, interval_row, middle_95
from robustbook.studies.lenses._models import LensedModel

#: With fewer failures, or fewer survivors, no AUROC is measured.
_FEWEST: Final = 5


def failure_rows(models: dict[str, LensedModel], weights: Values) -> Iterator[Row]:
    """Say how well each score foretells failure under a corruption it has not seen.

    Two failures: the prediction changes; a right prediction becomes wrong. `weights`
    (R, N) say how often each image is in each resample.
    """
    for failure in ("changed", "wrong"):
        by_score: dict[str, list[Values]] = {}
        for (name, one), kind in itertools.product(models.items(), CORRUPTIONS):
            among = np.ones(len(one.kept), dtype=bool)
            failed = one.changed(kind).numpy()
            if failure == "wrong":
                among, failed = one.correct.numpy(), one.wrong(kind).numpy()
            bad, count = int((failed & among).sum()), int(among.sum())
            if not _FEWEST <= bad <= count - _FEWEST:
                continue
            for score, values in one.scores(kind).items():
                aurocs = weighted_auroc(
                    values.numpy()[among], failed[among], weights[:, among]
                )
                by_score.setdefault(score, []).append(aurocs)
                yield {
                    "what": "foresight", "failure": failure, "model": name,
                    "shift": kind, "score": score, "failed": bad / count,
                    **_resampled_row("auroc", aurocs),
                }  # fmt: skip
        means = {score: np.mean(all_, axis=0) for score, all_ in by_score.items()}
        for score, mean in means.items():
            cases = len(by_score[score])
            row: Row = {"failure": failure, "score": score, "cases": cases}
            yield {"what": "mean", **row, **_resampled_row("auroc", mean)}
            gain = mean - means["logit_margin"]
            yield {"what": "gain", **row, **_resampled_row("gain", gain)}


def weighted_auroc(
    scores: Values, failed: npt.NDArray[np.bool_], weights: Values
) -> Values:
    """Return the chance that a failure scores lower than a survivor; ties count half.

    First that of the samples (N,) themselves, then that of the resamples with these
    weights (R, N); NaN where a resample has no failure or no survivor.

    Examples
    --------
    >>> weighted_auroc(
    ...     np.array([1.0, 2.0, 2.0]), np.array([True, False, True]), np.ones((1, 3))
    ... )
    array([0.75, 0.75])
    """
    order = np.argsort(scores, kind="stable")
    ranked = scores[order]
    starts = np.flatnonzero(np.r_[True, ranked[1:] != ranked[:-1]])
    counts = np.vstack([np.ones(len(scores)), weights])[:, order]
    bad = np.add.reduceat(counts * failed[order], starts, axis=1)
    good = np.add.reduceat(counts * ~failed[order], starts, axis=1)
    below = np.cumsum(bad, axis=1) - bad / 2
    pairs = bad.sum(axis=1) * good.sum(axis=1)
    with np.errstate(invalid="ignore"):
        aurocs: Values = (good * below).sum(axis=1) / pairs
    return aurocs


def _resampled_row(name: str, values: Values) -> Row:
    """The first value, and the middle 95 % of the others."""
    return interval_row(name, float(values[0]), middle_95(values[1:]))
