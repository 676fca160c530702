"""What an attack that stops at the boundary leaves for agreement to measure."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from pathlib import Path

import torch
from torch import Tensor
from tqdm import tqdm

from robustbook.agreement import posterior_agreement
from robustbook.experiments._rows import Row, store
from robustbook.experiments._settings import settings_of
from robustbook.experiments.attacked import Attack, AttackedLogits, attack_model
from robustbook.experiments.norm_quantiles import steps_of

__all__ = ["boundary"]


def boundary(
    *,
    profile: str = "full",
    seed: int = 0,
    device: str = "auto",
    directory: Path | None = None,
    larger: str = "cifar10",
    name: str = "boundary",
) -> list[Row]:
    """Measure by how much FMN and FAB overshoot, and what agreement makes of it.

    Parameters
    ----------
    profile : {"quick", "full"}
        "quick" takes digits.
    seed : int
        Of the attacks.
    device : str
        Where they run.
    directory : Path, optional
        Where to store the rows.
    larger : {"cifar10", "mnist"}
        What "full" takes.
    name : str
        Of the file.

    Returns
    -------
    list of dict
        One row for each model and attack, all samples attacked: ``wrong`` and
        ``found``, the shares of samples that were wrong before and that are misled;
        ``overshoot``, by how much the wrong class leads on the attacked image, over
        the lead of the right one on the clean image: the median over the misled,
        with quartiles ``overshoot_low``, ``overshoot_high``; ``pa`` with its standard
        error; ``limit``, its value for an attack that stops on the boundary itself;
        ``tied``, its value if, for each of the misled, the logits of these two
        classes are replaced by their mean.
    """
    started = datetime.now(UTC)
    setting = settings_of(profile, larger=larger)
    data = setting.data()
    jobs = [
        (model, Attack(kind, None, steps_of(setting, kind, model)))
        for model in setting.models
        for kind in ("fmn", "fab")
        if kind in setting.steps
    ]
    rows: list[Row] = []
    for model, attack in tqdm(jobs, desc=name, disable=None):
        found = attack_model(model, attack, data, seed=seed, device=device)
        key = {"dataset": data.name, "model": model, "attack": attack.kind}
        rows.append({**key, "steps": attack.steps, **_at_the_boundary(found)})
    return store(
        name, rows, setting=setting, profile=profile, seed=seed, device=device,
        started=started, directory=directory,
    )  # fmt: skip


def _at_the_boundary(found: AttackedLogits) -> Row:
    clean, shifted = found.logits.double(), found.shifted_logits.double()
    result = posterior_agreement(clean, shifted)
    misled = (found.norms > 0) & found.norms.isfinite()
    share = float(misled.double().mean())
    classes = clean.shape[1]
    row = {
        "samples": len(clean),
        "wrong": float((found.norms == 0).double().mean()),
        "found": share,
        "pa": result.pa,
        "pa_se": result.standard_error,
        "limit": math.log(classes) - share * math.log(2),
    }
    if not bool(misled.any()):
        empty = dict.fromkeys(("overshoot", "overshoot_low", "overshoot_high"))
        return {**row, "tied": result.pa, **empty}
    right = found.labels[misled]
    before = _lead(clean[misled], right)
    after = -_lead(shifted[misled], right)
    low, middle, high = (
        float(value)
        for value in (after / before).quantile(torch.tensor([0.25, 0.5, 0.75]).double())
    )
    shifted[misled] = _tied(shifted[misled], right)
    return {
        **row,
        "tied": posterior_agreement(clean, shifted).pa,
        "overshoot": middle,
        "overshoot_low": low,
        "overshoot_high": high,
    }


def _lead(logits: Tensor, classes: Tensor) -> Tensor:
    """By how much the logit of a class exceeds the largest of the others."""
    own = logits.gather(1, classes[:, None])
    others = logits.scatter(1, classes[:, None], -torch.inf)
    return (own[:, 0] - others.amax(1)).double()


def _tied(logits: Tensor, right: Tensor) -> Tensor:
    """Put the mean in place of the largest logit and of that of the right class."""
    two = torch.stack([right, logits.argmax(1)], 1)
    mean = logits.gather(1, two).mean(1, keepdim=True)
    return logits.scatter(1, two, mean.expand(-1, 2))
