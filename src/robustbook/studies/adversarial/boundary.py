"""Agreement under attacks that stop at the decision boundary."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from robustbook.agreement import posterior_agreement
from robustbook.studies.adversarial.attacked import (
    Attack,
    AttackedLogits,
    attack_model,
    lead_of,
    unbounded_attacks,
)
from robustbook.studies.adversarial.settings import AttackSetting
from robustbook.studies.run import Row, Run

parts = unbounded_attacks


def measure(run: Run[AttackSetting], model: str, attack: Attack) -> Iterator[Row]:
    """Measure by how much FMN and FAB overshoot, and the effect on agreement.

    One row for each model and attack, all samples attacked: ``wrong`` and ``found``,
    the shares of samples that were wrong before and that are misled; ``overshoot``, by
    how much the wrong class leads on the attacked image, over the lead of the right one
    on the clean image: the median over the misled; ``pa`` with its standard error;
    ``limit``, its value for an attack that stops on the boundary itself; ``tied``, its
    value if, for each of the misled, the logits of these two classes are replaced by
    their mean; ``before`` and ``after``, the mean confidence in the prediction on the
    misled, at inverse temperature 1.
    """
    row = _at_the_boundary(attack_model(run, model, attack))
    keys = {"dataset": run.data.name, "model": model, "attack": attack.kind}
    yield {**keys, "steps": attack.steps, **row}


def _at_the_boundary(pair: AttackedLogits) -> Row:
    clean, shifted = pair.logits.double(), pair.shifted_logits.double()
    result = posterior_agreement(clean, shifted)
    misled = (pair.norms > 0) & pair.norms.isfinite()
    share = float(misled.double().mean())
    classes = clean.shape[1]
    row = {
        "samples": len(clean),
        "wrong": float((pair.norms == 0).double().mean()),
        "found": share,
        "pa": result.pa,
        "pa_se": result.standard_error,
        "limit": math.log(classes) - share * math.log(2),
    }
    if not bool(misled.any()):
        unknown = dict.fromkeys(("overshoot", "before", "after"))
        return {**row, "tied": result.pa, **unknown}
    right = pair.labels[misled]
    over = -lead_of(shifted[misled], right) / lead_of(clean[misled], right)
    before, after = (
        float(side[misled].softmax(1).amax(1).mean()) for side in (clean, shifted)
    )
    shifted[misled] = _tied(shifted[misled], right)
    return {
        **row,
        "tied": posterior_agreement(clean, shifted).pa,
        "overshoot": float(over.quantile(0.5)),
        "before": before,
        "after": after,
    }


def _tied(logits: Tensor, right: Tensor) -> Tensor:
    """Put the mean in place of the largest logit and of that of the right class."""
    two = torch.stack([right, logits.argmax(1)], 1)
    mean = logits.gather(1, two).mean(1, keepdim=True)
    return logits.scatter(1, two, mean.expand(-1, 2))
