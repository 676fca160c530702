"""A few real images under every attack, small enough to keep."""

from __future__ import annotations

import base64
import io
from typing import Final

import torch
from torch import Tensor

from robustbook.datasets import Dataset
from robustbook.models import load_model, logits_of, resolve_device
from robustbook.studies._rows import Row
from robustbook.studies._settings import Setting, settings_of
from robustbook.studies.attacked import Attack

__all__ = ["attack_examples"]

#: Images for each model.
IMAGES: Final = 4


def attack_examples(
    *,
    profile: str = "full",
    seed: int = 0,
    device: str = "auto",
) -> list[Row]:
    """Attack the first images that the undefended and a defended model get right.

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
        One row for each model, image and attack ("clean" among them): ``png``, the
        image in base64; ``label``, ``predicted``, ``confidence``; ``norm``, the
        ℓ∞ size of the perturbation.
    """
    setting = settings_of(profile)
    rows: list[Row] = []
    for model in list(setting.models)[:2]:
        rows += _examples(model, setting, seed, device)
    return rows


def _examples(name: str, setting: Setting, seed: int, device: str) -> list[Row]:
    model = load_model(name).eval().to(resolve_device(device))
    data = setting.data().subset(slice(100))
    right = (logits_of(model, data.images).argmax(1) == data.labels).nonzero()[:, 0]
    index = right[:IMAGES]
    chosen: Dataset = data.subset(index)
    versions: dict[str, Tensor] = {"clean": chosen.images}
    for kind, steps in setting.steps.items():
        if kind == "pgd-surrogate":
            continue  # neither of the two models has one
        eps = None if kind in ("fmn", "fab") else setting.focus
        attack = Attack(kind, eps, min(steps, 100))
        versions[kind] = attack.run(model, chosen, seed=seed).adversarial
    rows: list[Row] = []
    for kind, images in versions.items():
        posterior = logits_of(model, images).softmax(1)
        norms = (images - chosen.images).abs().flatten(1).amax(1)
        for place in range(len(index)):
            rows.append(
                {
                    "dataset": data.name,
                    "model": name,
                    "attack": kind,
                    "image": int(index[place]),
                    "label": int(chosen.labels[place]),
                    "predicted": int(posterior[place].argmax()),
                    "confidence": float(posterior[place].max()),
                    "norm": float(norms[place]),
                    "png": _png(images[place]),
                }
            )
    return rows


def _png(image: Tensor) -> str:
    from PIL import Image

    levels = (image * 255).round().to(torch.uint8).permute(1, 2, 0).numpy()
    buffer = io.BytesIO()
    Image.fromarray(levels.squeeze()).save(buffer, "PNG", optimize=True)
    return base64.b64encode(buffer.getvalue()).decode("ascii")
