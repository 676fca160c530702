"""Agreement and attack failure rates over attacks, bounds and adversarial ratios."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from statistics import fmean, pstdev
from typing import Final

from torch import Tensor
from tqdm import tqdm

from robustbook.agreement import shift_by_ratio
from robustbook.studies._pairs import measure_pair
from robustbook.studies._rows import Row
from robustbook.studies._settings import settings_of
from robustbook.studies.attacked import Attack, AttackedLogits, attack_model

__all__ = ["adversarial_sweep"]

#: Adversarial ratios of the PA paper.
RATIOS: Final = tuple(tenth / 10 for tenth in range(11))
#: Random orders in which a fixed-norm attack reaches the samples.
ORDERS: Final = 5


def adversarial_sweep(
    *,
    profile: str = "full",
    seed: int = 0,
    device: str = "auto",
    larger: str = "cifar10",
    kinds: Sequence[str] = ("pgd", "pgd-surrogate"),
) -> list[Row]:
    """Measure every model under every attack, for growing shares of attacked samples.

    Fixed-norm attacks reach the samples in random orders, the same for all models;
    those that look for the smallest perturbation, from the smallest on.

    Parameters
    ----------
    profile : {"quick", "full"}
        "quick" takes digits.
    seed : int
        Of the attacks and of the first order.
    device : str
        Where the attacks run.
    larger : {"cifar10", "mnist"}
        What "full" takes.
    kinds : sequence of str
        The attacks.

    Returns
    -------
    list of dict
        One row for each model, attack, bound and ratio: ``pa`` with its standard
        error over samples (``pa_se``) and its standard deviation over orders
        (``pa_order_sd``), in nats; ``beta`` of the first order; ``hard_part`` and
        ``confidence_part``; ``afr_true`` and ``afr_pred`` with theirs.
    """
    setting = settings_of(profile, larger=larger)
    data = setting.data()
    jobs = [
        (model, attack)
        for model in setting.models
        for attack in setting.attacks(model)
        if attack.kind in kinds
    ]
    rows: list[Row] = []
    for model, attack in tqdm(jobs, desc="adversarial_sweep", disable=None):
        found = attack_model(model, attack, data, seed=seed, device=device)
        rows += [
            {
                "dataset": data.name,
                "model": model,
                "attack": attack.kind,
                "eps": attack.eps,
                "steps": attack.steps,
                **row,
            }
            for row in _over_ratios(found, attack, seed)
        ]
    return rows


def _over_ratios(found: AttackedLogits, attack: Attack, seed: int) -> Iterator[Row]:
    norms = found.norms if attack.unbounded else None
    for ratio in RATIOS:
        several = norms is None and 0 < ratio < 1
        orders = [
            _at_ratio(found, shift_by_ratio(
                found.logits, found.shifted_logits, ratio, norms=norms, seed=seed + k
            ))
            for k in range(ORDERS if several else 1)
        ]  # fmt: skip
        row = {key: fmean(order[key] for order in orders) for key in orders[0]}
        row["beta"] = orders[0]["beta"]
        yield {
            "ratio": ratio,
            "order": "random" if norms is None else "norm",
            "orders": len(orders),
            "samples": len(found.labels),
            **row,
            **{
                f"{key}_order_sd": pstdev(order[key] for order in orders)
                for key in ("pa", "afr_true", "afr_pred")
            },
        }


def _at_ratio(found: AttackedLogits, shifted: Tensor) -> dict[str, float]:
    row: dict[str, float] = measure_pair(found.logits, shifted, found.labels)
    count, classes = shifted.shape
    return {**row, "log_pa": count * (row["pa"] - math.log(classes))}
