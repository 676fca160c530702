"""What an attack that stops at the boundary leaves for agreement to measure."""

from __future__ import annotations

import math
from typing import Final

import torch
from torch import Tensor
from tqdm import tqdm

from robustbook.agreement import posterior_agreement
from robustbook.studies._rows import Row
from robustbook.studies._settings import settings_of
from robustbook.studies.attacked import Attack, AttackedLogits, attack_model
from robustbook.studies.norm_quantiles import steps_of

__all__ = ["boundary"]

#: Columns that need a sample that is misled.
OF_THE_MISLED: Final = (
    "overshoot",
    "overshoot_low",
    "overshoot_high",
    "before",
    "after",
    "after_se",
    "drop_se",
)


def boundary(
    *,
    profile: str = "full",
    seed: int = 0,
    device: str = "auto",
    larger: str = "cifar10",
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
    larger : {"cifar10", "mnist"}
        What "full" takes.

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
        classes are replaced by their mean; ``before`` and ``after``, the mean
        confidence in the prediction on the misled, at inverse temperature 1, with
        ``after_se`` and the standard error of their difference, ``drop_se``.
    """
    setting = settings_of(profile, larger=larger)
    data = setting.data()
    jobs = [
        (model, Attack(kind, None, steps_of(setting, kind, model)))
        for model in setting.models
        for kind in ("fmn", "fab")
        if kind in setting.steps
    ]
    rows: list[Row] = []
    for model, attack in tqdm(jobs, desc="boundary", disable=None):
        found = attack_model(model, attack, data, seed=seed, device=device)
        key = {"dataset": data.name, "model": model, "attack": attack.kind}
        rows.append({**key, "steps": attack.steps, **_at_the_boundary(found)})
    return rows


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
        return {**row, "tied": result.pa, **dict.fromkeys(OF_THE_MISLED)}
    right = found.labels[misled]
    before = _lead(clean[misled], right)
    after = -_lead(shifted[misled], right)
    low, middle, high = (
        float(value)
        for value in (after / before).quantile(torch.tensor([0.25, 0.5, 0.75]).double())
    )
    confident = [side[misled].softmax(1).amax(1) for side in (clean, shifted)]
    shifted[misled] = _tied(shifted[misled], right)
    values = (
        middle,
        low,
        high,
        float(confident[0].mean()),
        float(confident[1].mean()),
        standard_error(confident[1]),
        standard_error(confident[0] - confident[1]),
    )
    return {
        **row,
        "tied": posterior_agreement(clean, shifted).pa,
        **dict(zip(OF_THE_MISLED, values, strict=True)),
    }


def standard_error(values: Tensor) -> float:
    """Of a mean; 0 for a single value."""
    count = len(values)
    return float(values.std(correction=int(count > 1))) / math.sqrt(count)


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
