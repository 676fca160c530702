"""Agreement and attack failure rates over attacks, bounds and adversarial ratios."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from statistics import fmean
from typing import Final

from torch import Tensor

from robustbook.agreement import shift_by_ratio
from robustbook.studies._scores import measure_pair
from robustbook.studies.adversarial.attacked import (
    Attack,
    AttackedLogits,
    attack_model,
    list_attacks,
)
from robustbook.studies.adversarial.settings import RATIOS, AttackSetting
from robustbook.studies.run import Row, Run

#: Random orders in which a fixed-norm attack reaches the samples.
ORDERS: Final = {"quick": 2, "full": 5}


#: Each network with each attack of these kinds, or of those of the study.
parts: Final = partial(list_attacks, kinds=("pgd", "pgd-surrogate"))


def measure(run: Run[AttackSetting], model: str, attack: Attack) -> Iterator[Row]:
    """Measure every network under every attack, for growing shares of attacked samples.

    Fixed-norm attacks reach the samples in random orders, the same for all networks;
    those that look for the smallest perturbation, from the smallest on.

    One row for each model, attack, bound and ratio: means over the orders of ``pa`` and
    its standard error over samples (``pa_se``), in nats; ``beta`` of the first order;
    ``hard_part``, ``confidence_part``, ``shifted_accuracy`` and ``same_answer_rate``.
    """
    pair = attack_model(run, model, attack)
    norms = pair.norms if attack.unbounded else None
    for ratio in RATIOS:
        orders = [
            _at_ratio(
                pair,
                shift_by_ratio(
                    pair.logits, pair.shifted_logits, ratio, norms=norms, seed=seed
                ),
            )
            for seed in run.seeds(ORDERS[run.profile])
            if seed == run.seed or (norms is None and 0 < ratio < 1)
        ]
        row = {key: fmean(order[key] for order in orders) for key in orders[0]}
        row["beta"] = orders[0]["beta"]
        yield {
            "dataset": run.data.name,
            "model": model,
            **attack.keys,
            "ratio": ratio,
            "order": "random" if norms is None else "norm",
            "orders": len(orders),
            "samples": len(pair.labels),
            **row,
        }


def _at_ratio(pair: AttackedLogits, shifted: Tensor) -> dict[str, float]:
    row: dict[str, float] = measure_pair(pair.logits, shifted, pair.labels)
    count, classes = shifted.shape
    return {**row, "log_pa": count * (row["pa"] - math.log(classes))}
