"""Which models can a measure tell apart, on the images at hand?"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import combinations, product
from typing import Final

from torch import Tensor
from tqdm import tqdm

from robustbook.agreement import posterior_agreement, shift_by_ratio
from robustbook.studies._rows import Row
from robustbook.studies._settings import settings_of
from robustbook.studies.attacked import AttackedLogits, attack_model

__all__ = ["paired_differences"]

#: At ratio 0 nothing is shifted: PA is log K and AFR_P is 1 for every model.
RATIOS: Final = tuple(tenth / 10 for tenth in range(1, 11))


def paired_differences(
    *,
    profile: str = "full",
    seed: int = 0,
    device: str = "auto",
    larger: str = "cifar10",
) -> list[Row]:
    """Differences between any two models under PGD, with paired standard errors.

    All models are attacked on the same images, in the same random order. Every
    measure is then a mean of terms, one for each image: contributions at the best
    inverse temperature for PA (envelope theorem, chapter 6), zeros and ones for the
    attack failure rates. The standard error is that of the mean difference.

    Parameters
    ----------
    profile : {"quick", "full"}
        "quick" takes digits.
    seed : int
        Of the attacks and of the order.
    device : str
        Where the attacks run.
    larger : {"cifar10", "mnist"}
        What "full" takes.

    Returns
    -------
    list of dict
        One row for each bound, ratio and pair of models (``first``, ``second``):
        ``pa``, ``afr_true`` and ``afr_pred`` of the first less that of the second,
        and their standard errors, ``pa_se`` and so on.
    """
    setting = settings_of(profile, larger=larger)
    data = setting.data()
    found: dict[float | None, dict[str, AttackedLogits]] = {}
    for model in setting.models:
        for attack in setting.attacks(model):
            if attack.kind == "pgd":
                found.setdefault(attack.eps, {})[model] = attack_model(
                    model, attack, data, seed=seed, device=device
                )
    rows: list[Row] = [
        {"dataset": data.name, "eps": eps, "ratio": ratio, **row}
        for eps, ratio in tqdm(
            list(product(found, RATIOS)), desc="paired_differences", disable=None
        )
        for row in _differences(
            {model: _terms(one, ratio, seed) for model, one in found[eps].items()}
        )
    ]
    return rows


def _terms(found: AttackedLogits, ratio: float, seed: int) -> dict[str, Tensor]:
    """What each image adds to each measure."""
    shifted = shift_by_ratio(found.logits, found.shifted_logits, ratio, seed=seed)
    after = shifted.argmax(1)
    return {
        "pa": posterior_agreement(found.logits, shifted).per_sample,
        "afr_true": (after == found.labels).double(),
        "afr_pred": (after == found.logits.argmax(1)).double(),
    }


def _differences(terms: dict[str, dict[str, Tensor]]) -> Iterator[Row]:
    for first, second in combinations(terms, 2):
        row: Row = {"first": first, "second": second}
        for measure, values in terms[first].items():
            difference = values - terms[second][measure]
            row["samples"] = len(difference)
            row[measure] = float(difference.mean())
            row[f"{measure}_se"] = float(difference.std()) / math.sqrt(len(difference))
        yield row
