"""Does a measure rank models alike over bounds and ratios? With its uncertainty."""

from __future__ import annotations

from itertools import product
from typing import Final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from tqdm import tqdm

from robustbook.agreement import posterior_agreement, shift_by_ratio
from robustbook.scores import accuracy, afr_pred, rank_concordance
from robustbook.studies._rows import Row
from robustbook.studies._settings import Setting, settings_of
from robustbook.studies.attacked import AttackedLogits, attack_model

__all__ = ["rank_stability"]

MEASURES: Final = ("pa", "afr_true", "afr_pred")
#: At ratio 0 nothing is shifted: PA is log K and AFR_P is 1 for every model.
RATIOS: Final = tuple(tenth / 10 for tenth in range(1, 11))
#: Draws in the quick profile; in "full" as many as are asked for.
QUICK_DRAWS: Final = 10
#: Certified to this, in nats: ranks do not need more.
TOLERANCE: Final = 1e-6

Scores = npt.NDArray[np.float64]


def rank_stability(
    *,
    profile: str = "full",
    seed: int = 0,
    device: str = "auto",
    larger: str = "cifar10",
    bootstraps: int = 200,
) -> list[Row]:
    """Kendall's W of the rankings of models over bounds and adversarial ratios.

    The bootstrap draws test images with replacement, the same for all models, and
    an order in which they are attacked.

    Parameters
    ----------
    profile : {"quick", "full"}
        "quick" takes digits.
    seed : int
        Of the attacks, the orders and the bootstrap.
    device : str
        Where the attacks run.
    larger : {"cifar10", "mnist"}
        What "full" takes.
    bootstraps : int
        Draws that "full" takes.

    Returns
    -------
    list of dict
        One row for each set of models ("all", or "defended": without the first),
        conditions ("bounds and ratios", "ratios" at the bound in focus, "bounds" at
        ratio 1), measure and bootstrap; bootstrap -1 is the sample itself.
    """
    setting = settings_of(profile, larger=larger)
    data = setting.data()
    conditions = list(product(setting.eps, RATIOS))
    found = {
        (model, attack.eps): attack_model(model, attack, data, seed=seed, device=device)
        for model in setting.models
        for attack in setting.attacks(model)
        if attack.kind == "pgd"
    }
    rows: list[Row] = []
    random = np.random.default_rng([seed, len(data)])
    draws = range(-1, QUICK_DRAWS if profile == "quick" else bootstraps)
    for draw in tqdm(draws, desc="rank_stability", disable=None):
        index = np.arange(len(data))
        if draw >= 0:
            index = random.integers(len(data), size=len(data))
        scores = _scores(found, setting, conditions, torch.from_numpy(index), seed)
        rows += [
            {"dataset": data.name, "bootstrap": draw, **row}
            for row in _concordances(scores, setting, conditions)
        ]
    return rows


def _scores(
    found: dict[tuple[str, float | None], AttackedLogits],
    setting: Setting,
    conditions: list[tuple[float, float]],
    index: Tensor,
    seed: int,
) -> Scores:
    """Every measure under every condition for every model."""
    table = np.empty((len(MEASURES), len(conditions), len(setting.models)))
    for row, (eps, ratio) in enumerate(conditions):
        for column, model in enumerate(setting.models):
            one = found[model, eps]
            clean, labels = one.logits[index], one.labels[index]
            mixed = shift_by_ratio(clean, one.shifted_logits[index], ratio, seed=seed)
            table[:, row, column] = (
                posterior_agreement(clean, mixed, tol=TOLERANCE).pa,
                accuracy(mixed, labels),
                afr_pred(clean, mixed),
            )
    return table


def _concordances(
    scores: Scores, setting: Setting, conditions: list[tuple[float, float]]
) -> list[Row]:
    chosen = {
        "bounds and ratios": [True] * len(conditions),
        "ratios": [eps == setting.focus for eps, _ in conditions],
        "bounds": [ratio == 1 for _, ratio in conditions],
    }
    undefended = {"all": 0, "defended": 1}
    return [
        {
            "models": models,
            "conditions": name,
            "measure": measure,
            "concordance": rank_concordance(table[mask][:, first:]),
        }
        for name, mask in chosen.items()
        for models, first in undefended.items()
        for measure, table in zip(MEASURES, scores, strict=True)
    ]
