"""How robust accuracy under PGD falls with the number of its steps."""

from __future__ import annotations

from tqdm import tqdm

from robustbook.agreement import posterior_agreement
from robustbook.scores import accuracy
from robustbook.studies._rows import Row, share_error
from robustbook.studies._settings import settings_of
from robustbook.studies.attacked import Attack, attack_model

__all__ = ["attack_convergence"]


def attack_convergence(
    *,
    profile: str = "full",
    seed: int = 0,
    device: str = "auto",
) -> list[Row]:
    """Attack every model at one bound with more and more steps of PGD.

    Parameters
    ----------
    profile : {"quick", "full"}
        "quick" takes digits.
    seed : int
        Of the attacks.
    device : str
        Where they run.

    Returns
    -------
    list of dict
        One row for each model and number of steps: ``afr_true`` and ``pa`` with
        their standard errors. Models that are attacked with fewer steps elsewhere
        stop earlier here, too.
    """
    setting = settings_of(profile)
    data = setting.data()
    jobs = [
        (model, steps)
        for model, fewer in setting.models.items()
        for steps in setting.many
        if steps <= max(setting.many) // fewer**2
    ]
    rows: list[Row] = []
    for model, steps in tqdm(jobs, desc="attack_convergence", disable=None):
        attack = Attack("pgd", setting.focus, steps)
        found = attack_model(model, attack, data, seed=seed, device=device)
        result = posterior_agreement(found.logits, found.shifted_logits)
        share = accuracy(found.shifted_logits, found.labels)
        rows.append(
            {
                "dataset": data.name,
                "model": model,
                "eps": setting.focus,
                "steps": steps,
                "samples": len(data),
                "afr_true": share,
                "afr_true_se": share_error(share, len(data)),
                "pa": result.pa,
                "pa_se": result.standard_error,
            }
        )
    return rows
