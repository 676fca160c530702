"""What every network keeps under one protocol of attacks, the same for all."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import torch

from robustbook.studies.adversarial.attacked import Attack, attack_model
from robustbook.studies.adversarial.settings import AttackSetting
from robustbook.studies.margins.columns import exact_share
from robustbook.studies.run import Row, Run

#: Gradient steps of each attack of the protocol.
STEPS: Final = {
    "quick": {"apgd-ce": 20, "apgd-dlr": 20, "apgd-targeted": 20, "fmn": 40},
    "full": {
        "apgd-ce": 100,
        "apgd-dlr": 100,
        "apgd-targeted": 100,
        "fab": 100,
        "fmn": 1000,
    },
}
#: Attacks that a defense with a surrogate meets a second time, by its surrogate.
INFORMED: Final = ("apgd-ce", "apgd-dlr", "apgd-targeted")
#: Every attack also runs with a quarter and with half of its steps.
SHARES: Final = (4, 2, 1)


def measure(run: Run[AttackSetting], model: str) -> Iterator[Row]:
    """Attack a network at the bound in focus in every way that the protocol has.

    A defended network is attacked directly and by its surrogate, and evaluated as it
    is. The undefended network meets fewer steps, since every attack breaks it at once.

    ``what="attack"``: for each attack and number of ``steps``, the ``accuracy`` that it
    leaves. ``what="joint"``: for each ``share`` of the steps (4 is a quarter), the
    ``accuracy`` that all attacks together leave, and what it is among the images that
    were right before (``of_right``). All with exact 95 % intervals.
    """
    setting, defended = run.setting, model.endswith("+jpeg-rs")
    steps = STEPS[run.profile]
    kinds = [*steps, *(f"{kind}-surrogate" for kind in INFORMED if defended)]
    fewer = 1 if defended else setting.models[model]
    keys = {"dataset": run.data.name, "model": model, "eps": setting.focus}
    for share in SHARES:
        joint = torch.ones(len(run.data), dtype=torch.bool)
        for kind in kinds:
            count = max(1, steps[kind.removesuffix("-surrogate")] // (share * fewer))
            attack = Attack(kind, setting.focus, count)
            pair = attack_model(run, model, attack)
            right = pair.logits.argmax(1) == pair.labels
            kept = right & (pair.shifted_logits.argmax(1) == pair.labels)
            joint &= kept
            named = {"what": "attack", "attack": kind, "steps": count, "share": share}
            yield {**keys, **named, **exact_share("accuracy", kept)}
        yield {
            **keys,
            "what": "joint",
            "share": share,
            **exact_share("accuracy", joint),
            **exact_share("of_right", joint[right]),
        }
