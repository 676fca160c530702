"""What the attacks of Part II beside PGD would still change with more steps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from robustbook.agreement import compare_agreement
from robustbook.studies._run import Row, Run
from robustbook.studies._statistics import mean_row
from robustbook.studies.adversarial.attacked import Attack
from robustbook.studies.adversarial.attacked import attacked as measure
from robustbook.studies.adversarial.settings import SETTINGS as ALL
from robustbook.studies.adversarial.settings import AttackSetting

__all__ = ["SETTINGS", "jobs", "measure", "rows"]

#: How many images, and how many times as many steps at least.
IMAGES: Final = {"quick": 20, "full": 80}
TIMES: Final = 3
SETTINGS: Final = {
    profile: tuple(replace(one, samples=count) for one in ALL[profile])
    for profile, count in IMAGES.items()
}


def rows(run: Run[AttackSetting]) -> Iterator[Row]:
    """Attack the first images as in other studies, and with three times as many steps.

    Networks that get fewer steps than others elsewhere get no fewer here.

    One row for each model and attack ("apgd-ce" and "apgd-dlr" at the bound in focus,
    "fmn" and "fab" without one), all of ``samples`` images attacked by ``steps`` and by
    ``more``: ``pa`` after the former, and ``robust``, the share of images that are
    right and for which nothing within the bound in focus was found; by how much each
    falls then, ``pa_fall`` and ``robust_fall``, with standard errors of paired
    differences; for attacks without a bound ``shorter``, by which share the median
    perturbation of the images that both mislead is shorter.

    PA paper, section 4.1: 1000 steps of FMN, AutoAttack's numbers of the others.
    Chapter 30.
    """
    for model, attack, longer in run.each(_pairs(run)):
        few, many = (measure(run, model, one) for one in (attack, longer))
        before, after = ((one.logits, one.shifted_logits) for one in (few, many))
        fall = compare_agreement(*before, *after)
        # A bound is met up to rounding.
        bound = run.setting.focus * (1 + 1e-4)
        robust, left = ((one.norms > bound).double() for one in (few, many))
        both = (few.norms > 0) & few.norms.isfinite() & many.norms.isfinite()
        sizes = few.norms[both], many.norms[both]
        shorter = None
        if attack.unbounded and bool(both.any()):
            shorter = 1 - float(sizes[1].median() / sizes[0].median())
        yield {
            "model": model, **attack.keys, "more": longer.steps, "samples": len(robust),
            "pa": fall.a.pa, "pa_se": fall.a.standard_error,
            "pa_fall": fall.difference, "pa_fall_se": fall.standard_error,
            **mean_row("robust", robust), **mean_row("robust_fall", robust - left),
            "shorter": shorter,
        }  # fmt: skip


def jobs(run: Run[AttackSetting]) -> Iterator[tuple[str, Attack]]:
    """The attacks that the rows start from."""
    for model, *both in _pairs(run):
        yield from ((model, attack) for attack in both)


def _pairs(run: Run[AttackSetting]) -> Iterator[tuple[str, Attack, Attack]]:
    setting = run.setting
    for model in setting.models:
        for kind in ("fmn", "fab", "apgd-ce", "apgd-dlr"):
            steps = setting.steps_on(model, kind)
            more = max(TIMES * steps, setting.steps[kind])
            bound = None if kind in ("fmn", "fab") else setting.focus
            yield model, Attack(kind, bound, steps), Attack(kind, bound, more)
