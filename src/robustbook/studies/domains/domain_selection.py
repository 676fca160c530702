"""Which epoch to take: by accuracy, by agreement of predictions, or by PA?"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Final

from robustbook.datasets.diagvib import OPPORTUNITIES
from robustbook.studies.domains._pictures import FACTORS
from robustbook.studies.domains._recorded import scored_epochs, stored_columns
from robustbook.studies.domains._training import (
    COMPARED_LEARNERS,
    FULL,
    QUICK,
    TrainingSetting,
    trainings,
)
from robustbook.studies.run import Row, Run, with_keys

#: Experiment 6, where source domains differ in a factor; Experiment 7, where that
#: factor gives the class away.
SETTINGS: Final = {
    "full": (
        FULL(count=3000, epochs=20, batch_size=64, lr=1e-3, validated=600, tested=800),
    ),
    "quick": (QUICK(count=200, epochs=4, lr=5e-3),),
    "full shortcuts": (
        FULL(count=2000, epochs=15, batch_size=32, lr=1e-3, validated=600, tested=600),
    ),
    "quick shortcuts": (QUICK(count=120, epochs=4, lr=5e-3, validated=40, tested=40),),
}


def parts(
    run: Run[TrainingSetting], *, shortcuts: bool = False
) -> Iterator[tuple[str, str, int]]:
    """The trainings that the rows are computed from."""
    if not shortcuts:
        return trainings(run, FACTORS, COMPARED_LEARNERS)
    setups = [" ".join(both) for both in product(FACTORS, OPPORTUNITIES)]
    return trainings(run, setups, ["ERM", "IRM"])


def measure(
    run: Run[TrainingSetting], setup: str, learner: str, training_seed: int
) -> Iterator[Row]:
    """Train where two source domains differ in a factor; score every epoch.

    One row for each ``factor`` ("hue" or "position"), ``learner``, ``training_seed``
    (0, 1, ... after the seed of the validation and test images) and ``epoch``:
    ``loss``, ``risk``; for each validation pair NAME ("SD", "ID", "1F-MD", "5F-MD",
    "OOD") ``NAME/accuracy``, ``NAME/same_answer_rate``, ``NAME/pa``,
    ``NAME/other_same_answer_rate``, ``NAME/other_pa``; ``test/0`` to ``test/5``. In a
    pair are the same digits, for ``other_`` different ones of the same class. In "SD"
    with the same digits both samples are the same.

    With shortcuts, where the factor gives the class away more and less: also for each
    ``setting`` of :data:`robustbook.datasets.diagvib.OPPORTUNITIES`, the pair "ID"
    alone, and for the pair "tests" of test environments 0 and 1
    ``tests/same_answer_rate``, ``tests/pa`` and ``tests/beta``.

    PA thesis, sections 5.1 and 5.2, Experiments 6 and 7, Tables 5.3 to 5.7 and B.1 to
    B.4; PA paper, Table 1. Chapter 16 of this book.
    """
    epochs = scored_epochs(run, run.setting, setup, learner, training_seed)
    shifted = dict(zip(("factor", "setting"), setup.split(), strict=False))
    of_tests = ("same_answer_rate", "pa", "beta") if "setting" in shifted else ()
    keys = {**shifted, "learner": learner, "training_seed": training_seed}
    return with_keys(keys, (stored_columns(epoch, of_tests) for epoch in epochs))
