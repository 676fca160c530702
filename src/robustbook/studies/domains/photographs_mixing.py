"""How often LISA mixes across domains, chosen by validation: heads on photographs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from robustbook.studies.domains.photographs import (
    ACROSS,
    WorldSetting,
    left_out,
    targets,
    world_domains,
)
from robustbook.studies.domains.photographs import SETTINGS as ALL
from robustbook.studies.run import Row, Run

_COLUMNS: Final = (
    *("target", "training_seed", "head", "lr", "across", "epoch"),
    *("accuracy", "test", "worst", "pa/label", "same/label"),
)
_RENAMED: Final = {"across": "learner"}


def _mixed(setting: Any) -> WorldSetting:
    return replace(setting, learners=ACROSS, heads=setting.heads[1:])


#: The first world, without the first head, which validation never chose.
SETTINGS: Final = {profile: (_mixed(ALL[profile][0]),) for profile in ("quick", "full")}


def parts(run: Run[WorldSetting]) -> Iterator[tuple[str, int]]:
    """Each domain as target, with each seed."""
    return targets(run)


def measure(run: Run[WorldSetting], target: str, seed: int) -> Iterator[Row]:
    """Train heads by LISA with mixup, for several probabilities of its two ways.

    For each ``target`` left out, ``training_seed``, ``head``, ``lr``, ``epoch`` and
    probability ``across`` of mixing across domains within the classes (else across
    classes within the domains; the thesis's p is that of the latter): what the rows
    "epoch" of the study ``photographs`` have, of pairs by label. Samples, weights and
    orders are that study's, and so are the rows of ``across`` one half.

    PA thesis, sections 3.5 and 4.3. The book's audit of domain shift.
    """
    domains = world_domains(run.setting.world)
    for row in left_out(run.setting, domains, domains, target, seed):
        if row["what"] == "epoch":
            yield {name: row[_RENAMED.get(name, name)] for name in _COLUMNS}
