"""Networks on test images and on training images that they have not seen."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from torch import Tensor, nn

from robustbook.attacks import apgd
from robustbook.datasets import Dataset, load_dataset
from robustbook.models import logits_of
from robustbook.studies.margins.columns import exact_share
from robustbook.studies.run import Row, Run, Setting, decimals


@dataclass(frozen=True, kw_only=True)
class HeldOutSetting(Setting):
    """Networks, the larger sample beside the usual one, and attacks."""

    #: The split of other images.
    other: str
    #: Networks that are attacked, each on this number of the usual images.
    attacked: dict[str, int] = field(default_factory=dict)
    eps: float
    steps: int


#: Penalties of the networks of two seeds.
STRIDED: Final = ("", "-grad1e-4", "-grad1e-3", "-grad1e-2")
SETTINGS: Final = {
    "quick": (
        HeldOutSetting(
            dataset="digits", other="train", models=("digits-cnn-adv-s0",),
            attacked={"digits-cnn-adv-s0": 60}, eps=0.1, steps=8,
        ),
    ),
    "full": (
        HeldOutSetting(
            dataset="cifar10", split="test1000", other="held_out",
            models=(
                *(f"cifar10-strided{kind}-s{k}" for kind in STRIDED for k in (0, 1)),
                "cifar10-strided-adv-s0", "cifar10-blocks-s0", "cifar10-blocks-adv-s0",
            ),
            attacked={"cifar10-strided-adv-s0": 1000, "cifar10-blocks-adv-s0": 200},
            eps=8 / 255, steps=100,
        ),
    ),
}  # fmt: skip


def measure(run: Run[HeldOutSetting], model: str) -> Iterator[Row]:
    """Measure a network on both samples.

    ``what="accuracy"``: the ``accuracy`` on the ``images`` of a ``split``, with its
    exact 95 % interval. ``what="difference"``: the usual sample minus the other one, in
    ``difference``. ``what="attack"``: the share of the first ``images`` of the usual
    sample that stays right under two attacks, one after the other, APGD on the
    cross-entropy and targeted APGD, with ``steps`` steps and with half of them. That
    is AutoAttack without FAB and Square, which hardly ever add to these two on such
    networks.
    """
    setting, network = run.setting, run.model(model)
    keys = {"dataset": setting.dataset, "model": model}
    samples = {
        setting.split: run.data,
        setting.other: load_dataset(setting.dataset, setting.other),
    }
    right = {name: _right(network, data) for name, data in samples.items()}
    for split, mask in right.items():
        share = exact_share("accuracy", mask)
        yield {"what": "accuracy", **keys, "split": split, "images": len(mask), **share}
    usual, other = ((float(m.double().mean()), len(m)) for m in right.values())
    gap = usual[0] - other[0]
    error = math.sqrt(sum(p * (1 - p) / n for p, n in (usual, other)))
    yield {
        "what": "difference", **keys, "difference": decimals(gap),
        "difference_low": decimals(gap - 1.96 * error),
        "difference_high": decimals(gap + 1.96 * error),
    }  # fmt: skip
    if model in setting.attacked:
        data = run.data.subset(range(setting.attacked[model]))
        for steps in (setting.steps // 2, setting.steps):
            mask = _robust(network, data, setting.eps, steps, run.seed)
            yield {
                "what": "attack", **keys, "images": len(data), "eps": setting.eps,
                "steps": steps, **exact_share("accuracy", mask),
            }  # fmt: skip


def _right(network: nn.Module, data: Dataset) -> Tensor:
    answers = logits_of(network, data.images).argmax(1)
    return answers.cpu() == data.labels


def _robust(
    network: nn.Module, data: Dataset, eps: float, steps: int, seed: int
) -> Tensor:
    """Which images stay right under both attacks, the second on what is left."""
    left = _right(network, data)
    for loss in ("ce", "targeted"):
        rows = left.nonzero()[:, 0]
        if len(rows):
            batch = data.images[rows], data.labels[rows]
            found = apgd(
                network, *batch, eps=eps, loss=loss, steps=steps, seed=seed,
                progress=False,
            )  # fmt: skip
            left[rows] = ~found.success.cpu()
    return left
