"""Does agreement select better where networks see shapes and hue?"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import product
from typing import Final

from robustbook.datasets.diagvib import OPPORTUNITIES
from robustbook.studies.domains._pictures import HUES, POSITIONS
from robustbook.studies.domains._recorded import scored_epochs as measure
from robustbook.studies.domains._recorded import stored_columns
from robustbook.studies.domains._training import Regime
from robustbook.studies.run import Row, Run, with_keys

#: The columns that distinguish optimization processes: a learner, and its training.
COLUMNS: Final = ("learner", "optimizer", "lr")
_FULL: Final = partial(
    Regime, dataset="mnist", network="cifar10-resnet20", borrowed=True, size=32,
    width=16, count=800, batch_size=32, epochs=4, seeds=5, validated=240, tested=200,
    precision="bfloat16", setups=HUES,
)  # fmt: skip
_QUICK: Final = partial(
    Regime, dataset="digits", network="cifar10-preact-adv-s0", borrowed=True, size=24,
    width=8, count=60, batch_size=30, epochs=2, seeds=1, validated=30, tested=30,
)  # fmt: skip
_MIXED: Final = "two hues"
# The thesis's rates in Experiment 6, times two (Adam) and a hundred (SGD), since there
# are 400 steps here and tens of thousands there.
_PROCESSES: Final = (
    *(("adam", lr) for lr in (2e-3, 1e-3, 2e-4, 1e-4)),
    *(("sgd", lr) for lr in (1e-1, 5e-2, 1e-2, 5e-3)),
)
_LONG: Final = partial(_FULL, epochs=16, seeds=3, setups=(_MIXED,))
SETTINGS: Final[dict[str, tuple[Regime, ...]]] = {
    # Learners as the thesis has them: LISA in Experiment 6 alone.
    "full": (
        *(
            _LONG(learner=learner, optimizer=optimizer, lr=lr)
            for learner in ("ERM", "IRM", "LISA")
            for optimizer, lr in _PROCESSES
        ),
        *(_LONG(learner=f"LISA, CutMix{p}", lr=1e-3) for p in (", p=0", "", ", p=1")),
        *(
            _FULL(learner=learner, lr=lr, setups=OPPORTUNITIES)
            for learner in ("ERM", "IRM")
            for lr in (1e-3, 1e-2)
        ),
        # One that comes nearer to print.
        _FULL(learner="ERM", lr=1e-4, setups=OPPORTUNITIES),
    ),
    "quick": (
        _QUICK(learner="ERM", lr=5e-3, setups=("ZGO",)),
        _QUICK(learner="LISA, CutMix", lr=5e-3, setups=(_MIXED,)),
    ),
    "full positions": (
        _FULL(learner="ERM", lr=1e-3, setups=POSITIONS),
        _FULL(learner="IRM", lr=1e-3, setups=POSITIONS),
        _FULL(learner="LISA", lr=1e-3, setups=POSITIONS[:1]),
        _FULL(learner="ERM", lr=1e-2, setups=POSITIONS[1:]),
        _FULL(learner="IRM", lr=1e-2, setups=POSITIONS[1:]),
    ),
    "quick positions": (_QUICK(learner="IRM", lr=5e-3, setups=POSITIONS[:2]),),
}


def rows(run: Run[Regime]) -> Iterator[Row]:
    """Train where two source domains differ in hue or position; score every epoch.

    The regime of the study `domain_regime` that comes nearest to the printed
    accuracies: a network with borrowed weights, pictures standardized in each
    environment.

    One row for each ``setting`` ("two hues" or one of
    :data:`robustbook.datasets.diagvib.OPPORTUNITIES`; in the study
    ``regime_positions`` "two positions", or "position" and one of them), ``learner``,
    ``optimizer``, ``lr``, ``training_seed`` (also of all pictures) and ``epoch``:
    ``loss``; for each validation pair NAME ``NAME/accuracy`` and so on, as the function
    ``criteria`` defines them, but for the inverse temperature; ``test/0`` to
    ``test/5``.

    PA thesis, Experiments 6 and 7, Tables 5.3, 5.4, B.3 and B.4; PA paper, Table 1. The
    book's audit of domain shift.
    """
    for job in run.progress(parts(run)):
        process, setting, _, training_seed = job
        process_keys = {name: getattr(process, name) for name in COLUMNS}
        keys = {"setting": setting, **process_keys, "training_seed": training_seed}
        yield from with_keys(keys, map(stored_columns, measure(run, *job)))


def parts(run: Run[Regime]) -> Iterator[tuple[Regime, str, str, int]]:
    """The trainings that the rows are computed from."""
    # Seed after seed, so that a stopped run has complete seeds.
    for number in range(max(process.seeds for process in run.settings)):
        for setting, process in product((*HUES, *POSITIONS), run.settings):
            if setting in process.setups and number < process.seeds:
                yield process, setting, process.learner, run.seed + number
