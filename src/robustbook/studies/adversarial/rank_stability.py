"""Does a measure rank models alike over bounds and ratios? With its uncertainty."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Final

import numpy as np

from robustbook._store.cache import Arrays
from robustbook.agreement import posterior_agreement, shift_by_ratio
from robustbook.scores import accuracy, rank_concordance, same_answer_rate
from robustbook.studies._statistics import Integers, Values
from robustbook.studies.adversarial.attacked import AttackedLogits
from robustbook.studies.adversarial.attacked import attack_model as measure
from robustbook.studies.adversarial.attacked import pgd_attacks as parts
from robustbook.studies.adversarial.settings import SHIFTING, AttackSetting
from robustbook.studies.run import Row, Run, with_keys

MEASURES: Final = ("pa", "shifted_accuracy", "same_answer_rate")
#: Resamples of the images, by data set.
DRAWS: Final = {"digits": 10, "cifar10": 200, "mnist": 50}
#: Certified to this, in nats: ranks do not need more.
TOLERANCE: Final = 1e-6


def rows(run: Run[AttackSetting]) -> Iterator[Row]:
    """Kendall's W of the rankings of networks over bounds and adversarial ratios.

    The bootstrap draws test images with replacement, the same for all networks, and an
    order in which they are attacked.

    One row for each set of models ("all", or "defended": without the first), conditions
    ("bounds and ratios", "ratios" at the bound in focus, "bounds" at ratio 1), measure
    and bootstrap; bootstrap -1 is the sample itself.
    """
    setting, count = run.setting, len(run.data)
    conditions = list(product(setting.eps, SHIFTING))
    # By bound, the networks in their order: keys of the cache hold no names.
    pairs: dict[float | None, list[AttackedLogits]] = {}
    for model, attack in parts(run):
        pairs.setdefault(attack.eps, []).append(measure(run, model, attack))
    random = np.random.default_rng([run.seed, count])
    for draw in run.progress(range(-1, DRAWS[setting.dataset])):
        index = np.arange(count)
        if draw >= 0:
            index = random.integers(count, size=count)
        scores = run.arrays(
            "scores of resampled images", _scores, pairs, conditions, index, run.seed
        )["scores"]
        keys = {"dataset": run.data.name, "bootstrap": draw}
        yield from with_keys(keys, _concordances(scores, setting, conditions))


def _scores(
    pairs: dict[float | None, list[AttackedLogits]],
    conditions: list[tuple[float, float]],
    index: Integers,
    seed: int,
) -> Arrays:
    """Every measure under every condition for every model."""
    models = len(pairs[conditions[0][0]])
    table = np.empty((len(MEASURES), len(conditions), models))
    for row, (eps, ratio) in enumerate(conditions):
        for column, pair in enumerate(pairs[eps]):
            clean, labels = pair.logits[index], pair.labels[index]
            mixed = shift_by_ratio(clean, pair.shifted_logits[index], ratio, seed=seed)
            table[:, row, column] = (
                posterior_agreement(clean, mixed, tol=TOLERANCE).pa,
                accuracy(mixed, labels),
                same_answer_rate(clean, mixed),
            )
    return {"scores": table}


def _concordances(
    scores: Values, setting: AttackSetting, conditions: list[tuple[float, float]]
) -> Iterator[Row]:
    chosen = {
        "bounds and ratios": [True] * len(conditions),
        "ratios": [eps == setting.focus for eps, _ in conditions],
        "bounds": [ratio == 1 for _, ratio in conditions],
    }
    for (name, mask), (models, first) in product(
        chosen.items(), (("all", 0), ("defended", 1))
    ):
        keys = {"models": models, "conditions": name}
        for measure_name, table in zip(MEASURES, scores, strict=True):
            concordance = rank_concordance(table[mask][:, first:])
            yield {**keys, "measure": measure_name, "concordance": concordance}
