"""Attacked logits, computed once, from which the studies of Part II start."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Any, Final

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
    run: Run[Any],
    name: str,
    attack: Attack,
    data: Dataset | None = None,
    seed: int | None = None,
) -> AttackedLogits:
    """Attack a model, or read the results from the cache; they are on the CPU.

    The images and the seed are those of the run by default.
    """
    # Minimum-norm attacks run once: a bound only selects from their results.
    once = replace(attack, eps=None) if attack.unbounded else attack
    images = run.data if data is None else data
    arguments = once, images, run.seed if seed is None else seed
    arrays = run.arrays("attacked logits", attacked_arrays, *arguments, network=name)
    tensors = {key: torch.from_numpy(value) for key, value in arrays.items()}
    for key in ("features", "shifted_features"):
        tensors[key] = tensors[key].float()
    return AttackedLogits(**tensors).within(attack.eps if attack.unbounded else None)


def lead_of(logits: Tensor, classes: Tensor) -> Tensor:
    """By how much the logit of a class exceeds the largest of the others, (N,)."""
    named = logits.gather(1, classes[:, None])
    others = logits.scatter(1, classes[:, None], -torch.inf)
    return (named[:, 0] - others.amax(1)).double()


def list_attacks(
    run: Run[AttackSetting], kinds: Collection[str], *, bounded: bool = True
) -> Iterator[tuple[str, Attack]]:
    """Each network with its attacks of these kinds, at every bound or without any.

    FMN never has a bound.
    """
    setting = run.setting
    for model, kind in product(setting.models, setting.steps):
        has_no_surrogate = not model.endswith("+jpeg-rs")
        if kind not in kinds or (kind == "pgd-surrogate" and has_no_surrogate):
            continue
        at_bounds = bounded and kind != "fmn"
        bounds: tuple[float | None, ...] = setting.eps if at_bounds else (None,)
        for eps in bounds:
            yield model, Attack(kind, eps, setting.steps_on(model, kind))


#: Each network with the attacks that look for the smallest perturbation.
unbounded_attacks: Final = partial(list_attacks, kinds=("fmn", "fab"), bounded=False)
#: Each network with PGD at every bound.
pgd_attacks: Final = partial(list_attacks, kinds=("pgd",))
