"""How robust accuracy under PGD falls with the number of its steps."""

from __future__ import annotations

from collections.abc import Iterator

from robustbook.agreement import posterior_agreement
from robustbook.scores import accuracy
from robustbook.studies._statistics import share_row
from robustbook.studies.adversarial.attacked import Attack, attack_model
from robustbook.studies.adversarial.settings import AttackSetting
from robustbook.studies.run import Row, Run


def parts(run: Run[AttackSetting]) -> Iterator[tuple[str, Attack]]:
    """Each network with PGD of more and more steps."""
    setting = run.setting
    for model, fewer in setting.models.items():
        for steps in setting.many:
            if steps <= max(setting.many) // fewer**2:
                yield model, Attack("pgd", setting.focus, steps)


def measure(run: Run[AttackSetting], model: str, attack: Attack) -> Iterator[Row]:
    """Attack every network at one bound with more and more steps of PGD.

    One row for each model and number of steps: ``shifted_accuracy`` and ``pa`` with
    their standard errors. Networks that are attacked with fewer steps elsewhere stop
    earlier here, too.
    """
    pair, samples = attack_model(run, model, attack), len(run.data)
    result = posterior_agreement(pair.logits, pair.shifted_logits)
    right = accuracy(pair.shifted_logits, pair.labels)
    yield {
        "dataset": run.data.name,
        "model": model,
        "eps": attack.eps,
        "steps": attack.steps,
        "samples": samples,
        **share_row("shifted_accuracy", right, samples),
        "pa": result.pa,
        "pa_se": result.standard_error,
    }
