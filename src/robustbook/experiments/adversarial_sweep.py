"""Agreement and attack failure rates over attacks, bounds and adversarial ratios."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean, pstdev
from typing import Final

from torch import Tensor
from tqdm import tqdm

from robustbook.agreement import posterior_agreement, shift_by_ratio
from robustbook.experiments._rows import Row, share_error, store
from robustbook.experiments._settings import settings_of
from robustbook.experiments.attacked import Attack, AttackedLogits, attack_model
from robustbook.scores import accuracy, afr_pred

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
    directory: Path | None = None,
    larger: str = "cifar10",
    kinds: Sequence[str] = ("pgd", "pgd-surrogate"),
    name: str = "adversarial_sweep",
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
    directory : Path, optional
        Where to store the rows.
    larger : {"cifar10", "mnist"}
        What "full" takes.
    kinds : sequence of str
        The attacks.
    name : str
        Of the file.

    Returns
    -------
    list of dict
        One row for each model, attack, bound and ratio: ``pa`` with its standard
        error over samples (``pa_se``) and its standard deviation over orders
        (``pa_order_sd``), in nats; ``beta`` of the first order; ``hard_part`` and
        ``confidence_part``; ``afr_true`` and ``afr_pred`` with theirs.
    """
    started = datetime.now(UTC)
    setting = settings_of(profile, larger=larger)
    data = setting.data()
    jobs = [
        (model, attack)
        for model in setting.models
        for attack in setting.attacks(model)
        if attack.kind in kinds
    ]
    rows: list[Row] = []
    for model, attack in tqdm(jobs, desc=name, disable=None):
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
    return store(
        name, rows, setting=setting, profile=profile, seed=seed, device=device,
        started=started, directory=directory,
    )  # fmt: skip


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
    result = posterior_agreement(found.logits, shifted)
    count = result.num_samples
    true, pred = accuracy(shifted, found.labels), afr_pred(found.logits, shifted)
    return {
        "pa": result.pa,
        "pa_se": result.standard_error,
        "log_pa": result.log_pa,
        "beta": result.beta,
        "hard_part": result.hard_part,
        "confidence_part": result.confidence_part,
        "afr_true": true,
        "afr_true_se": share_error(true, count),
        "afr_pred": pred,
        "afr_pred_se": share_error(pred, count),
    }
