"""How large the smallest perturbation is that an attack finds: its quantiles."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

import torch
from scipy.stats import binom
from torch import Tensor
from tqdm import tqdm

from robustbook.studies._rows import Row
from robustbook.studies._settings import Setting, settings_of
from robustbook.studies.attacked import Attack, attack_model

__all__ = ["norm_quantiles"]

#: Shares of the samples, in hundredths.
PERCENTS: Final = tuple(range(2, 100, 2))


def norm_quantiles(
    *,
    profile: str = "full",
    seed: int = 0,
    device: str = "auto",
    larger: str = "cifar10",
) -> list[Row]:
    """Measure how large the smallest perturbations are that FMN and FAB find.

    The share of samples whose norm is above ε is the robust accuracy at ε: a
    quantile of the norms is a point of that curve.

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
        One row for each model, attack ("fmn", "fab", and "closest", the smaller of
        the two for each sample) and ``quantile``: ``norm``, the size that this share
        of the samples does not exceed, with the ends of a 95 % interval from order
        statistics (``norm_low``, ``norm_high``); ``wrong``, the share with norm 0,
        as the model was wrong before; ``found``, that with a perturbation that
        misleads. Where nothing was found, the norm is infinite.
    """
    setting = settings_of(profile, larger=larger)
    data = setting.data()
    kinds = [kind for kind in ("fmn", "fab") if kind in setting.steps]
    rows: list[Row] = []
    for model in tqdm(setting.models, desc="norm_quantiles", disable=None):
        norms: dict[str, Tensor] = {}
        for kind in kinds:
            attack = Attack(kind, None, steps_of(setting, kind, model))
            found = attack_model(model, attack, data, seed=seed, device=device)
            norms[kind] = found.norms.double()
        if len(kinds) > 1:
            norms["closest"] = torch.stack(list(norms.values())).amin(0)
        for attacked_by, values in norms.items():
            key = {"dataset": data.name, "model": model, "attack": attacked_by}
            rows += [{**key, **row} for row in _quantiles(values)]
    return rows


def steps_of(setting: Setting, kind: str, model: str) -> int:
    """How many steps the attack takes on this model."""
    return next(a.steps for a in setting.attacks(model) if a.kind == kind)


def _quantiles(norms: Tensor) -> Iterator[Row]:
    """Quantiles with intervals that hold whatever the distribution is."""
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
        yield {
            **shares,
            "quantile": percent / 100,
            "norm": ordered[place],
            "norm_low": ordered[low - 1] if low > 0 else 0.0,
            "norm_high": ordered[high] if high < count else math.inf,
        }
