"""Attacked logits, computed once, from which the studies of Part II start."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from robustbook.datasets import Dataset
from robustbook.studies.adversarial._attack import Attack as Attack
from robustbook.studies.adversarial._attack import attacked_arrays
from robustbook.studies.adversarial.settings import AttackSetting
from robustbook.studies.run import Run


@dataclass(frozen=True, eq=False)
class AttackedLogits:
    """Logits and features of a model for N clean images and for attacked ones.

    Logits (N, K); true classes; ℓ∞ sizes of the perturbations that changed the
    prediction away from the label, 0 where the model was wrong before, inf where the
    attack failed; and features (N, D), the inputs of the last linear layer.
    """

    logits: Tensor
    shifted_logits: Tensor
    labels: Tensor
    norms: Tensor
    features: Tensor
    shifted_features: Tensor

    def within(self, eps: float | None) -> AttackedLogits:
        """Keep the clean image where the perturbation is larger than a bound."""
        if eps is None:
            return self
        inside = self.norms <= eps
        shown = inside[:, None]
        return replace(
            self,
            shifted_logits=torch.where(shown, self.shifted_logits, self.logits),
            norms=torch.where(inside, self.norms, torch.inf),
            shifted_features=torch.where(shown, self.shifted_features, self.features),
        )


def attack_model(
    run: Run[Any], name: str, attack: Attack, data: Dataset
) -> AttackedLogits:
    """Attack a model, or read the results from the cache; they are on the CPU."""
    # Minimum-norm attacks run once: a bound only selects from their results.
    once = replace(attack, eps=None) if attack.unbounded else attack
    arguments = once, data, run.seed
    arrays = run.arrays("attacked logits", attacked_arrays, *arguments, network=name)
    tensors = {key: torch.from_numpy(value) for key, value in arrays.items()}
    for key in ("features", "shifted_features"):
        tensors[key] = tensors[key].float()
    return AttackedLogits(**tensors).within(attack.eps if attack.unbounded else None)


def attacks_on(setting: AttackSetting, model: str) -> Iterator[Attack]:
    """The attacks on one of the networks, each at every bound."""
    for kind in setting.steps:
        if kind == "pgd-surrogate" and not model.endswith("+jpeg-rs"):
            continue
        bounds: tuple[float | None, ...] = (None,) if kind == "fmn" else setting.eps
        for eps in bounds:
            yield Attack(kind, eps, setting.steps_on(model, kind))


def unbounded_attacks(run: Run[AttackSetting]) -> Iterator[tuple[str, Attack]]:
    """Each network with the attacks that look for the smallest perturbation."""
    for model in run.setting.models:
        for kind in ("fmn", "fab"):
            if kind in run.setting.steps:
                yield model, Attack(kind, None, run.setting.steps_on(model, kind))


def pgd_attacks(run: Run[AttackSetting], **_: Any) -> Iterator[tuple[str, Attack]]:
    """Each network with PGD at every bound."""
    for model in run.setting.models:
        for attack in attacks_on(run.setting, model):
            if attack.kind == "pgd":
                yield model, attack


def attacked(run: Run[AttackSetting], model: str, attack: Attack) -> AttackedLogits:
    """The images of a run under an attack."""
    return attack_model(run, model, attack, run.data)
