"""Trainings where shapes and hue compete; each epoch is scored by every criterion."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import lru_cache, partial
from types import MappingProxyType
from typing import Final

from robustbook.datasets import Dataset
from robustbook.datasets.diagvib import Setup
from robustbook.studies._run import Row, Run, cached_rows, decimals
from robustbook.studies.domains._epochs import criteria
from robustbook.studies.domains._pairs import LEARNERS as WITHOUT_CUTMIX
from robustbook.studies.domains._pictures import (
    held_out_scenes,
    pictures,
    training_pictures,
)
from robustbook.studies.domains._regime import (
    SETUPS,
    Regime,
    new_network,
    standardized,
)
from robustbook.training import LISA, Learner, train_domains

#: Those of the sources; LISA mixes in one way or the other.
LEARNERS: Final[Mapping[str, Learner]] = MappingProxyType(
    {**WITHOUT_CUTMIX, "LISA, CutMix": LISA(mix="cutmix")}
)


@dataclass(frozen=True, kw_only=True)
class Process(Regime):
    """What the sources call an optimization process: a learner, how it is trained."""

    learner: str
    optimizer: str = "adam"
    #: Of `SETUPS`, those in which it is part of a study.
    setups: tuple[str, ...] = tuple(SETUPS)

    @property
    def keys(self) -> Row:
        """What tells processes apart in a table."""
        return {name: getattr(self, name) for name in ("learner", "optimizer", "lr")}


def measure(
    run: Run[Process], process: Process, setting: str, training_seed: int
) -> list[Row]:
    """Train and score every epoch, or read what that gave."""
    # Not part of it: how many other trainings there are, and where.
    others = {"seeds", "models", "device", "setups"}
    plan = {name: one for name, one in asdict(process).items() if name not in others}
    return cached_rows(
        {**plan, "setting": setting, "training_seed": training_seed},
        partial(_trained, run, process, setting, training_seed),
        code=__name__,
    )


def _trained(
    run: Run[Process], process: Process, setting: str, training_seed: int
) -> Iterator[Row]:
    setup = SETUPS[setting]
    # The pictures are those of all processes.
    plan = replace(process, learner="", optimizer="", lr=0.0, setups=())
    sources = training_pictures(setup, plan, training_seed)
    pairs, tests = _held_out(setup, plan, training_seed)
    model = new_network(process, len(setup.shapes), training_seed)
    began = time.process_time()
    history = train_domains(
        model, LEARNERS[process.learner], [standardized(one) for one in sources],
        epochs=process.epochs, lr=process.lr, optimizer=process.optimizer,
        batch_size=process.batch_size, seed=training_seed, device=run.device,
        pairs={**pairs, "tests": (tests[0], tests[1])}, measure=criteria,
        tests={str(k): test for k, test in enumerate(tests)},
        precision=process.precision, progress=False,
    )  # fmt: skip
    seconds = decimals(time.process_time() - began, 1)
    for row in history.rows:
        scores = {name: row[name] for name in row if "/" in name}
        yield {
            "epoch": row["epoch"], "loss": decimals(row["loss"]),
            **{name: decimals(value) for name, value in scores.items()},
            "seconds": seconds,
        }  # fmt: skip


@lru_cache(maxsize=1)
def _held_out(
    setup: Setup, plan: Process, seed: int
) -> tuple[dict[str, tuple[Dataset, Dataset]], list[Dataset]]:
    """Validation pairs, and tests: the same digits in all environments of a part."""
    wanted = setup.validation
    environments = list(dict.fromkeys(one for pair in wanted.values() for one in pair))
    samples, tests = (
        [
            standardized(one)
            for one in pictures(
                held_out_scenes(setup, some, split, plan, seed, most=most), plan
            )
        ]
        for some, split, most in (
            (environments, "validation", plan.validated),
            (setup.tests, "test", plan.tested),
        )
    )
    pairs = {
        name: (samples[environments.index(one)], samples[environments.index(two)])
        for name, (one, two) in wanted.items()
    }
    return pairs, tests
