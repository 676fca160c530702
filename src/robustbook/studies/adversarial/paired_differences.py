"""Which models can a measure tell apart, on the images at hand?"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from torch import Tensor

from robustbook.agreement import posterior_agreement, shift_by_ratio
from robustbook.studies._scores import sample_terms
from robustbook.studies._statistics import mean_row
from robustbook.studies.adversarial.attacked import (
    AttackedLogits,
    attack_model,
    pgd_attacks,
)
from robustbook.studies.adversarial.settings import SHIFTING, AttackSetting
from robustbook.studies.run import Row, Run, with_keys


def parts(run: Run[AttackSetting]) -> list[tuple[float]]:
    """Each bound."""
    return [(eps,) for eps in run.setting.eps]


def measure(run: Run[AttackSetting], eps: float) -> Iterator[Row]:
    """Differences between any two networks under PGD, with paired standard errors.

    All networks are attacked on the same images, in the same random order. Every
    measure is then a mean of terms, one for each image: contributions at the best
    inverse temperature for PA (envelope theorem, chapter 7), zeros and ones for the
    attack failure rates. The standard error is that of the mean difference.

    One row for each bound, ratio and pair of models (``first``, ``second``): ``pa``,
    ``shifted_accuracy`` and ``same_answer_rate`` of the first minus that of the second,
    and their standard errors, ``pa_se`` and so on.
    """
    pairs = {
        model: attack_model(run, model, attack)
        for model, attack in pgd_attacks(run)
        if attack.eps == eps
    }
    for ratio in SHIFTING:
        terms = {model: _terms(pair, ratio, run.seed) for model, pair in pairs.items()}
        keys = {"dataset": run.data.name, "eps": eps, "ratio": ratio}
        yield from with_keys(keys, _differences(terms))


def _terms(pair: AttackedLogits, ratio: float, seed: int) -> dict[str, Tensor]:
    shifted = shift_by_ratio(pair.logits, pair.shifted_logits, ratio, seed=seed)
    result = posterior_agreement(pair.logits, shifted)
    return sample_terms(result, pair.logits, shifted, pair.labels)


def _differences(terms: dict[str, dict[str, Tensor]]) -> Iterator[Row]:
    for first, second in combinations(terms, 2):
        row: Row = {"first": first, "second": second}
        for name, values in terms[first].items():
            difference = values - terms[second][name]
            row |= {"samples": len(difference), **mean_row(name, difference)}
        yield row
