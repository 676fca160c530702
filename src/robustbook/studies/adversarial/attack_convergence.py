"""How robust accuracy under PGD falls with the number of its steps."""

from __future__ import annotations

from collections.abc import Iterator

from robustbook.agreement import posterior_agreement
from robustbook.scores import accuracy
from robustbook.studies._run import Row, Run
from robustbook.studies._statistics import share_row
from robustbook.studies.adversarial.attacked import Attack
from robustbook.studies.adversarial.attacked import attacked as measure
from robustbook.studies.adversarial.settings import AttackSetting


def rows(run: Run[AttackSetting]) -> Iterator[Row]:
    """Attack every network at one bound with more and more steps of PGD.

    One row for each model and number of steps: ``shifted_accuracy`` and ``pa`` with
    their standard errors. Networks that are attacked with fewer steps elsewhere stop
    earlier here, too.
    """
    setting, samples = run.setting, len(run.data)
    for model, attack in run.progress(jobs(run)):
        pair = measure(run, model, attack)
        result = posterior_agreement(pair.logits, pair.shifted_logits)
        yield {
            "dataset": run.data.name, "model": model, "eps": setting.focus,
            "steps": attack.steps, "samples": samples,
            **share_row(
                "shifted_accuracy", accuracy(pair.shifted_logits, pair.labels), samples
            ),
            "pa": result.pa, "pa_se": result.standard_error,
        }  # fmt: skip


def jobs(run: Run[AttackSetting]) -> Iterator[tuple[str, Attack]]:
    """The attacks that the rows are computed from."""
    setting = run.setting
    for model, fewer in setting.models.items():
        for steps in setting.many:
            if steps <= max(setting.many) // fewer**2:
                yield model, Attack("pgd", setting.focus, steps)
