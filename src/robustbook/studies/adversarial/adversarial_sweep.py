"""Agreement and attack failure rates over attacks, bounds and adversarial ratios."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from statistics import fmean
from typing import Final

from torch import Tensor

from robustbook.agreement import shift_by_ratio
from robustbook.studies._run import Row, Run, with_keys
from robustbook.studies._scores import measure_pair
from robustbook.studies.adversarial.attacked import Attack, AttackedLogits, attacks_on
from robustbook.studies.adversarial.attacked import attacked as measure
from robustbook.studies.adversarial.settings import AttackSetting

KINDS: Final = ("pgd", "pgd-surrogate")
#: Adversarial ratios of the PA paper.
RATIOS: Final = tuple(tenth / 10 for tenth in range(11))
#: Random orders in which a fixed-norm attack reaches the samples.
ORDERS: Final = {"quick": 2, "full": 5}


def rows(run: Run[AttackSetting], kinds: Collection[str] = KINDS) -> Iterator[Row]:
    """Measure every network under every attack, for growing shares of attacked samples.

    Fixed-norm attacks reach the samples in random orders, the same for all networks;
    those that look for the smallest perturbation, from the smallest on.

    One row for each model, attack, bound and ratio: means over the orders of ``pa`` and
    its standard error over samples (``pa_se``), in nats; ``beta`` of the first order;
    ``hard_part``, ``confidence_part``, ``shifted_accuracy`` and ``same_answer_rate``.
    """
    for model, attack in run.progress(jobs(run, kinds)):
        pair, orders = measure(run, model, attack), ORDERS[run.profile]
        arguments = pair, attack, orders, run.seed
        rows = run.rows("scores over ratios", _over_ratios, *arguments)
        keys = {"dataset": run.data.name, "model": model, **attack.keys}
        yield from with_keys(keys, rows)


def jobs(
    run: Run[AttackSetting], kinds: Collection[str] = KINDS
) -> Iterator[tuple[str, Attack]]:
    """The attacks that the rows are computed from."""
    for model in run.setting.models:
        for attack in attacks_on(run.setting, model):
            if attack.kind in kinds:
                yield model, attack


def _over_ratios(
    pair: AttackedLogits, attack: Attack, most: int, seed: int
) -> Iterator[Row]:
    norms = pair.norms if attack.unbounded else None
    for ratio in RATIOS:
        several = norms is None and 0 < ratio < 1
        logits = pair.logits, pair.shifted_logits
        orders = [
            _at_ratio(pair, shift_by_ratio(*logits, ratio, norms=norms, seed=seed + k))
            for k in range(most if several else 1)
        ]
        row = {key: fmean(order[key] for order in orders) for key in orders[0]}
        row["beta"] = orders[0]["beta"]
        yield {
            "ratio": ratio, "order": "random" if norms is None else "norm",
            "orders": len(orders), "samples": len(pair.labels), **row,
        }  # fmt: skip


def _at_ratio(pair: AttackedLogits, shifted: Tensor) -> dict[str, float]:
    row: dict[str, float] = measure_pair(pair.logits, shifted, pair.labels)
    count, classes = shifted.shape
    return {**row, "log_pa": count * (row["pa"] - math.log(classes))}
