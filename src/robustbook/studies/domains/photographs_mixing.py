"""How often LISA mixes across domains, chosen by validation: heads on photographs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import product
from typing import Any, Final

from robustbook.studies._run import Row, Run, with_keys
from robustbook.studies.domains.photographs import SETTINGS as ALL
from robustbook.studies.domains.photographs import (
    Samples,
    WorldSetting,
    measured,
    world_domains,
)
from robustbook.training import LISA

#: Probabilities of mixing a batch across domains.
ACROSS: Final = (0.0, 0.25, 0.5, 0.75, 1.0)
_COLUMNS: Final = (
    *("head", "lr", "across", "epoch"),
    *("accuracy", "test", "worst", "pa/label", "same/label"),
)


def _mixed(setting: Any) -> WorldSetting:
    return replace(setting, learners=ACROSS, heads=setting.heads[1:])


#: The first world, without the first head, which validation never chose.
SETTINGS: Final = {profile: (_mixed(ALL[profile][0]),) for profile in ("quick", "full")}


def rows(run: Run[WorldSetting]) -> Iterator[Row]:
    """Train heads by LISA with mixup, for several probabilities of its two ways.

    For each ``target`` left out, ``training_seed``, ``head``, ``lr``, ``epoch`` and
    probability ``across`` of mixing across domains within the classes (else across
    classes within the domains; the thesis's p is that of the latter): what the rows
    "epoch" of the study ``photographs`` have, of pairs by label. Samples, weights and
    orders are that study's, and so are the rows of ``across`` one half.

    PA thesis, sections 3.5 and 4.3. The book's audit of domain shift.
    """
    setting = run.setting
    domains = world_domains(setting)
    seeds = range(run.seed, run.seed + setting.seeds)
    for training_seed, target in run.progress(product(seeds, domains)):
        keys: Row = {"target": target, "training_seed": training_seed}
        samples = replace(setting, seeds=0), domains, target, training_seed
        rows = run.rows("one domain left out, mixed", _measured, *samples)
        yield from with_keys(keys, rows)


def _measured(
    setting: WorldSetting, domains: Mapping[str, Samples], target: str, seed: int
) -> Iterator[Row]:
    learners = {across: LISA(across_domains=across) for across in ACROSS}
    for row in measured(setting, domains, None, target, seed, learners):
        if row["what"] == "epoch":
            row["across"] = row["learner"]
            yield {name: row[name] for name in _COLUMNS}
