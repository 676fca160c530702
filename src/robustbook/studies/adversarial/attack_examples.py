"""A few real images under every attack, small enough to keep."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from torch import Tensor

from robustbook.models import logits_of
from robustbook.studies.adversarial._attack import Attack
from robustbook.studies.adversarial.settings import AttackSetting
from robustbook.studies.run import Row, Run, png

#: Images for each model.
IMAGES: Final = 4


def parts(run: Run[AttackSetting]) -> list[tuple[str]]:
    """The undefended and a defended network."""
    return [(model,) for model in [*run.setting.models][:2]]


def measure(run: Run[AttackSetting], name: str) -> Iterator[Row]:
    """Attack the first images that the undefended and a defended network get right.

    One row for each model, image and attack ("clean" among them): ``png``, the image in
    base64; ``label``, ``predicted``, ``confidence``; ``norm``, the ℓ∞ size of the
    perturbation.
    """
    setting = run.setting
    model, data = run.model(name), run.data.subset(slice(100))
    right = logits_of(model, data.images).argmax(1) == data.labels
    index = right.nonzero()[:IMAGES, 0]
    chosen = data.subset(index)
    versions: dict[str, Tensor] = {"clean": chosen.images}
    for kind, steps in setting.steps.items():
        if kind == "pgd-surrogate":
            continue  # neither of the two models has one
        attack = Attack(kind, setting.focus, min(steps, 100))
        versions[kind] = attack.run(model, chosen, seed=run.seed).adversarial
    for kind, images in versions.items():
        posterior = logits_of(model, images).softmax(1)
        norms = (images - chosen.images).abs().flatten(1).amax(1)
        for place in range(len(index)):
            yield {
                "dataset": data.name,
                "model": name,
                "attack": kind,
                "image": int(index[place]),
                "label": int(chosen.labels[place]),
                "predicted": int(posterior[place].argmax()),
                "confidence": float(posterior[place].max()),
                "norm": float(norms[place]),
                "png": png(images[place]),
            }
