"""Are networks trained with a gradient-norm penalty easier to estimate?"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final

from robustbook.studies._run import Row, Run
from robustbook.studies.average_case import average_case_errors
from robustbook.studies.average_case.average_case_errors import EstimateSetting

_TWICE: Final = ("s0", "s1", "grad1e-1-s0", "grad1e-1-s1", "grad1-s0")


def _trainings(dataset: str, *names: str) -> tuple[str, ...]:
    return tuple(f"{dataset}-cnn-{name}" for name in names)


_setting = partial(EstimateSetting, estimators=("taylor", "mmse_pairs"), budget=100)
SETTINGS: Final = {
    "quick": (
        _setting(
            dataset="digits", models=_trainings("digits", "s0", "grad1-s0"),
            sigmas=(0.1, 0.2, 0.4), samples=24, budget=300,
        ),
    ),
    "full": (
        _setting(
            dataset="mnist", models=_trainings("mnist", *_TWICE, "grad1-s1"),
            sigmas=(0.1, 0.2, 0.4, 0.8), step=10,
        ),
        _setting(
            dataset="fashion-mnist", models=_trainings("fashion-mnist", *_TWICE),
            sigmas=(0.1, 0.2, 0.4, 0.8), step=10,
        ),
        _setting(
            dataset="cifar10", split="test1000",
            models=_trainings("cifar10", *_TWICE, "grad1-s1"),
            sigmas=(0.02, 0.05, 0.1, 0.2),
        ),
    ),
}  # fmt: skip


def rows(run: Run[EstimateSetting]) -> Iterator[Row]:
    """Measure what ``average_case_errors`` does, on networks trained alike but for λ.

    Its rows of the first four kinds, on a thousand images a data set, from one start
    (s0) and another (s1), where both were trained.

    Average-case paper, Section 4.1, Figures 1b and 9. Chapter 32 of this book.
    """
    return average_case_errors.rows(run)


measure = average_case_errors.measure
