"""Trainings in one of several regimes; each epoch is scored by every criterion."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Any, Final

from robustbook.datasets.diagvib import (
    OPPORTUNITIES,
    SELECTION_HUE,
    SELECTION_POSITION,
    Setup,
    opportunities,
)
from robustbook.studies._run import Row, Run, decimals
from robustbook.studies.domains._epochs import criteria, held_out
from robustbook.studies.domains._pairs import LEARNERS as WITHOUT_CUTMIX
from robustbook.studies.domains._pictures import (
    training_pictures,
)
from robustbook.studies.domains._training import TrainingSetting, new_network
from robustbook.training import LISA, Learner, train_domains

#: Those of the sources; LISA mixes in one way or the other.
LEARNERS: Final[Mapping[str, Learner]] = MappingProxyType(
    {**WITHOUT_CUTMIX, "LISA, CutMix": LISA(mix="cutmix")}
)
#: Domains that differ in the hue: it tells nothing of the class (Experiment 6), or it
#: gives the class away, more and less (Experiment 7).
HUES: Final = ("two hues", *OPPORTUNITIES)
#: These, and domains that differ in the position, which tells nothing of the class.
SETUPS: Final[Mapping[str, Setup]] = MappingProxyType(
    {"two hues": SELECTION_HUE, "two positions": SELECTION_POSITION}
    | {name: opportunities(name) for name in OPPORTUNITIES}
)


@dataclass(frozen=True, kw_only=True)
class Regime(TrainingSetting):
    """One way to train."""

    own: bool = True
    learner: str = "ERM"
    optimizer: str = "adam"
    #: Of `SETUPS`, those in which it is part of a study.
    setups: tuple[str, ...] = HUES

    @property
    def keys(self) -> Row:
        """What tells regimes apart in a table."""
        names = "network", "size", "own", "borrowed", "lr"
        return {name: getattr(self, name) for name in names}


def measure(
    run: Run[Any], regime: Regime, setting: str, training_seed: int, *, digits: int = 6
) -> list[Row]:
    """Train and score every epoch, or read what that gave, to so many decimals."""
    rows = run.rows(
        "training in a regime", partial(_trained, run, regime, setting, training_seed),
        **replace(regime, setups=()).depends, setup=setting,
        training_seed=training_seed, code=__name__,
    )  # fmt: skip
    return [{name: round(one, digits) for name, one in row.items()} for row in rows]


def _trained(
    run: Run[Any], regime: Regime, setting: str, training_seed: int
) -> Iterator[Row]:
    setup = SETUPS[setting]
    # The pictures are those of all learners.
    plan = replace(regime, learner="", optimizer="", lr=0.0, setups=(), borrowed=False)
    sources = training_pictures(setup, plan, training_seed)
    pairs, tests = held_out(setup, plan, training_seed)
    model = new_network(regime, len(setup.shapes), training_seed)
    began = time.process_time()
    history = train_domains(
        model, LEARNERS[regime.learner], sources, epochs=regime.epochs, lr=regime.lr,
        optimizer=regime.optimizer, batch_size=regime.batch_size, seed=training_seed,
        pairs={**pairs, "tests": (tests[0], tests[1])}, measure=criteria,
        tests={str(k): test for k, test in enumerate(tests)}, device=run.device,
        precision=regime.precision, progress=False,
    )  # fmt: skip
    seconds = decimals(time.process_time() - began, 1)
    for row in history.rows:
        scores = {name: float(row[name]) for name in row if "/" in name}
        yield {"epoch": row["epoch"], "loss": row["loss"], **scores, "seconds": seconds}
