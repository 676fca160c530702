"""The effect of more steps on the attacks of Part II other than PGD."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import Final

from robustbook.agreement import compare_agreement
from robustbook.studies._statistics import mean_row
from robustbook.studies.adversarial.attacked import Attack, attack_model
from robustbook.studies.adversarial.settings import SETTINGS as ALL
from robustbook.studies.adversarial.settings import AttackSetting
from robustbook.studies.run import Row, Run

#: The least factor by which steps are increased, and the attacks.
TIMES: Final = 3
KINDS: Final = ("fmn", "fab", "apgd-ce", "apgd-dlr")


def _settings(
    profile: str, images: int, *closer: tuple[str, int, str, int, int | None]
) -> tuple[AttackSetting, ...]:
    setting = replace(ALL[profile][0], longer={})
    return replace(setting, samples=images), *(
        replace(setting, models={model: times}, steps={kind: steps}, samples=count)
        for model, times, kind, steps, count in closer
    )


#: All networks on the first images. Then closer, where those settle nothing: a network,
#: how many times fewer steps it starts from, an attack, steps, images.
SETTINGS: Final = {
    "quick": _settings(
        "quick",
        20,
        ("digits-cnn-s0", 5, "fmn", 100, 100),
        ("digits-cnn-s0", 1, "fmn", 100, 20),
        ("digits-cnn-s0+jpeg-rs", 4, "fab", 8, 100),
        ("digits-cnn-s0+jpeg-rs", 1, "fab", 8, 20),
    ),
    "full": _settings(
        "full",
        80,
        ("cifar10-resnet20", 8, "fmn", 200, None),
        ("cifar10-resnet20", 1, "fmn", 200, 80),
        ("cifar10-marabou_large+jpeg-rs", 10, "fmn", 1000, None),
        ("cifar10-marabou_large+jpeg-rs", 1, "fmn", 1000, 80),
        ("cifar10-marabou_large+jpeg-rs", 5, "fab", 100, None),
        ("cifar10-marabou_large+jpeg-rs", 1, "fab", 100, 80),
        ("cifar10-marabou_large+jpeg-rs", 2, "apgd-ce", 100, None),
        ("cifar10-marabou_large+jpeg-rs", 1, "apgd-ce", 150, None),
        ("cifar10-marabou_large+jpeg-rs", 2, "apgd-dlr", 100, None),
        ("cifar10-marabou_large+jpeg-rs", 1, "apgd-dlr", 150, None),
    ),
}


def measure(
    run: Run[AttackSetting], model: str, attack: Attack, longer: Attack
) -> Iterator[Row]:
    """Attack images with as many steps as most networks get, and with more.

    Networks that get fewer steps than others elsewhere get no fewer here. What the
    first images do not settle is attacked further, or on more of them; the other
    studies take these steps (``longer`` of their settings).

    One row for each model, attack ("apgd-ce" and "apgd-dlr" at the bound in focus,
    "fmn" and "fab" without one) and setting, all of ``samples`` images attacked by
    ``steps`` and by ``more``: ``pa`` and ``pa_more`` after these, and ``robust``, the
    share of images that are right and for which nothing within the bound in focus was
    found by ``steps``; by how much PA and that share fall by ``more``, ``pa_fall`` and
    ``robust_fall``, with standard errors of paired differences.

    PA paper, section 4.1: 1000 steps of FMN, AutoAttack's numbers of the others.
    Chapter 32.
    """
    few, many = (attack_model(run, model, pair) for pair in (attack, longer))
    before, after = ((pair.logits, pair.shifted_logits) for pair in (few, many))
    fall = compare_agreement(*before, *after)
    # A bound is met up to rounding.
    bound = run.setting.focus * (1 + 1e-4)
    robust, left = ((pair.norms > bound).double() for pair in (few, many))
    yield {
        "model": model,
        **attack.keys,
        "more": longer.steps,
        "samples": len(robust),
        "pa": fall.first.pa,
        "pa_se": fall.first.standard_error,
        "pa_more": fall.second.pa,
        "pa_more_se": fall.second.standard_error,
        "pa_fall": fall.value,
        "pa_fall_se": fall.standard_error,
        **mean_row("robust", robust),
        **mean_row("robust_fall", robust - left),
    }


def parts(run: Run[AttackSetting]) -> Iterator[tuple[str, Attack, Attack]]:
    """Each network with an attack, and the same with more steps."""
    setting = run.setting
    for model, kind in product(setting.models, KINDS):
        if kind in setting.steps:
            steps = setting.steps_on(model, kind)
            more = max(TIMES * steps, setting.steps[kind])
            bound = None if kind in ("fmn", "fab") else setting.focus
            yield model, Attack(kind, bound, steps), Attack(kind, bound, more)
