"""How large the smallest perturbation is that an attack finds: its quantiles."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

import torch
from scipy.stats import binom
from torch import Tensor

from robustbook.studies._statistics import interval_row
from robustbook.studies.adversarial.attacked import attack_model, unbounded_attacks
from robustbook.studies.adversarial.settings import AttackSetting
from robustbook.studies.run import Row, Run, with_keys

#: Shares of the samples, in hundredths.
PERCENTS: Final = tuple(range(2, 100, 2))


def measure(run: Run[AttackSetting], model: str) -> Iterator[Row]:
    """Measure how large the smallest perturbations are that FMN and FAB find.

    The share of samples whose norm is above ε is the robust accuracy at ε: a quantile
    of the norms is a point of that curve.

    One row for each model, attack ("fmn", "fab", and "closest", the smaller of the two
    for each sample) and ``quantile``: ``norm``, the size that this share of the samples
    does not exceed, with the ends of a 95 % interval from order statistics
    (``norm_low``, ``norm_high``); ``wrong``, the share with norm 0, as the model was
    wrong before; ``found``, that with a perturbation that misleads. Where nothing was
    found, the norm is infinite.
    """
    norms = {
        attack.kind: attack_model(run, model, attack).norms.double()
        for _, attack in unbounded_attacks(run)
    }
    if len(norms) > 1:
        norms["closest"] = torch.stack(list(norms.values())).amin(0)
    for name, values in norms.items():
        keys = {"dataset": run.data.name, "model": model, "attack": name}
        yield from with_keys(keys, _quantiles(values))


def _quantiles(norms: Tensor) -> Iterator[Row]:
    """Quantiles with intervals that hold for any distribution."""
    count = len(norms)
    ordered = norms.sort().values.tolist()
    shares = {
        "samples": count,
        "wrong": float((norms == 0).double().mean()),
        "found": float(((norms > 0) & norms.isfinite()).double().mean()),
    }
    for percent in PERCENTS:
        place = math.ceil(percent * count / 100) - 1
        # How many of `count` samples lie below the true quantile is binomial.
        low, high = binom.ppf([0.025, 0.975], count, percent / 100).astype(int)
        least = ordered[low - 1] if low > 0 else 0.0
        most = ordered[high] if high < count else math.inf
        yield {
            **shares,
            "quantile": percent / 100,
            **interval_row("norm", ordered[place], (least, most)),
        }
