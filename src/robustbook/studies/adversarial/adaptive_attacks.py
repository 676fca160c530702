"""What every network keeps under one protocol of attacks, the same for all."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Final

import torch
from torch import Tensor

from robustbook.agreement import posterior_agreement
from robustbook.scores import same_answer_rate
from robustbook.studies._scores import agreement_row
from robustbook.studies.adversarial.attacked import Attack, attack_model, lead_of
from robustbook.studies.adversarial.settings import AttackSetting
from robustbook.studies.margins.columns import exact_share
from robustbook.studies.run import Row, Run

#: Steps of each attack of the protocol.
STEPS: Final = {
    "quick": {
        "pgd": 20,
        "apgd-ce": 20,
        "apgd-dlr": 20,
        "apgd-targeted": 20,
        "fmn": 40,
        "square": 80,
    },
    "full": {
        "pgd": 200,
        "apgd-ce": 100,
        "apgd-dlr": 100,
        "apgd-targeted": 100,
        "fab": 100,
        "fmn": 1000,
        "square": 5000,
    },
}
#: Attacks that a defense with a surrogate meets a second time, by its surrogate.
INFORMED: Final = ("pgd", "apgd-ce", "apgd-dlr", "apgd-targeted")
#: Attacks that start again, how often, on the images that all attacks left.
RESTARTED: Final = ("apgd-ce", "apgd-targeted")
RESTARTS: Final = {"quick": 1, "full": 4}
#: Every attack also runs with a quarter and with half of its steps.
SHARES: Final = (4, 2, 1)


def measure(run: Run[AttackSetting], model: str) -> Iterator[Row]:
    """Attack a network at the bound in focus in every way that the protocol has.

    A defended network is attacked directly and by its surrogate, and evaluated as it
    is. The undefended network meets fewer steps, since every attack breaks it at once.
    Images that all attacks left are attacked again from other random starts.

    ``what="attack"``: for each attack and number of ``steps``, the ``accuracy`` that it
    leaves; ``share`` is 1 for all of its steps, 4 for a quarter. ``what="joint"``: for
    each ``share`` the ``accuracy`` that all attacks together leave, what it is among
    the images that were right before (``of_right``), and what it was before the
    restarts (``single``), all with exact 95 % intervals; and on the image, of all that
    were found, on which the label is furthest behind, agreement (``pa``, with its error
    and parts) and the ``same_answer_rate``. An image that was wrong before is moved by
    PGD only.
    """
    setting, defended = run.setting, model.endswith("+jpeg-rs")
    steps = STEPS[run.profile]
    kinds = [*steps, *(f"{kind}-surrogate" for kind in INFORMED if defended)]
    again = [kind for kind in kinds if kind.removesuffix("-surrogate") in RESTARTED]
    fewer = 1 if defended else setting.models[model]
    keys = {"dataset": run.data.name, "model": model, "eps": setting.focus}

    def attacked(kind: str, share: int) -> Attack:
        count = max(1, steps[kind.removesuffix("-surrogate")] // (share * fewer))
        return Attack(kind, setting.focus, count)

    first = attack_model(run, model, attacked(kinds[0], SHARES[0]))
    clean, labels = first.logits, first.labels
    right = clean.argmax(1) == labels
    for share in SHARES:
        worst = clean
        for kind in kinds:
            attack = attacked(kind, share)
            shifted = attack_model(run, model, attack).shifted_logits
            worst = _worse(worst, shifted, labels)
            kept = right & (shifted.argmax(1) == labels)
            named = {"what": "attack", "attack": kind, "steps": attack.steps}
            yield {**keys, **named, "share": share, **exact_share("accuracy", kept)}
        single = worst.argmax(1) == labels
        for seed, kind in product(run.seeds(RESTARTS[run.profile] + 1)[1:], again):
            left = (worst.argmax(1) == labels).nonzero().flatten()
            if len(left):
                part = run.data.subset(left)
                found = attack_model(run, model, attacked(kind, share), part, seed)
                worst[left] = _worse(worst[left], found.shifted_logits, labels[left])
        kept = worst.argmax(1) == labels
        yield {
            **keys,
            "what": "joint",
            "share": share,
            **exact_share("accuracy", kept),
            **exact_share("of_right", kept[right]),
            **exact_share("single", single),
            **agreement_row(posterior_agreement(clean, worst)),
            "same_answer_rate": same_answer_rate(clean, worst),
        }


def _worse(logits: Tensor, others: Tensor, labels: Tensor) -> Tensor:
    """Image by image, those of two logits that put the label further behind."""
    lower = lead_of(others, labels) < lead_of(logits, labels)
    return torch.where(lower[:, None], others, logits)
