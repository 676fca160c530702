"""Accuracy without labels: every score of the package, for three questions."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Final

import torch

from robustbook.datasets import Dataset, load_dataset
from robustbook.studies._run import Setting
from robustbook.studies._shifted_logits import Shift, shifts_of


@dataclass(frozen=True, kw_only=True)
class WorldSetting(Setting):
    """Networks, the shifts of their images, and how many images calibrate and judge."""

    world: str
    source: int
    judged: int
    shifts: tuple[Shift, ...]
    steps: int = 10

    def checkpoints(self) -> list[str]:
        """Those that this project or others publish; packages have their own sums."""
        return [name for name in self.models if not name.startswith("imagenet:")]

    def halves(self, seed: int) -> tuple[Dataset, Dataset]:
        """Draw the images that calibrate, and others that judge."""
        data = load_dataset(self.dataset, self.split)
        draws = torch.Generator().manual_seed(seed)
        order = torch.randperm(len(data), generator=draws)
        rest = order[self.source : self.source + self.judged]
        return data.subset(order[: self.source]), data.subset(rest)


_PENALTIES: Final = ("", "-grad1e-4", "-grad1e-3", "-grad1e-2", "-grad1e-1", "-grad1")


def _seeds(stem: str, count: int, kinds: tuple[str, ...] = _PENALTIES) -> list[str]:
    return [f"{stem}{kind}-s{seed}" for kind in kinds for seed in range(count)]


_digits: Final = partial(WorldSetting, world="digits", dataset="digits")
SETTINGS: Final = {
    "full": (
        _digits(
            source=298, judged=298,
            models=_seeds("digits-cnn", 5, (*_PENALTIES, "-noise", "-adv"))
            + _seeds("digits-linear", 5, ("",)),
            shifts=shifts_of((0.2, 0.4, 0.6), (3, 5), (0.05, 0.1, 0.2)),
        ),
        WorldSetting(
            world="MNIST", dataset="mnist", source=500, judged=500,
            models=[
                *_seeds("mnist-cnn", 2), "mnist-conv_small_nat", "mnist-cnn_a_adv",
                "mnist-advertorch_lenet5_clean", "mnist-advertorch_lenet5_adv",
                "mnist-madry_tiny_adv", "mnist-kw",
            ],
            shifts=shifts_of((0.2, 0.4, 0.6), (3, 5), (0.05, 0.1, 0.2)),
        ),
        WorldSetting(
            world="Fashion-MNIST", dataset="fashion-mnist", source=500, judged=500,
            models=[
                *_seeds("fashion-mnist-cnn", 2, ("", "-grad1e-1")),
                *_seeds("fashion-mnist-cnn", 1, _PENALTIES[1:4] + _PENALTIES[5:]),
                "fashion-kw",
            ],
            shifts=shifts_of((0.1, 0.2, 0.4), (3, 5), (0.02, 0.05, 0.1)),
        ),
        WorldSetting(
            world="CIFAR-10", dataset="cifar10", split="test1000", source=500,
            judged=500,
            models=[
                *_seeds("cifar10-cnn", 2), "cifar10-preact-adv-s0",
                *(
                    f"cifar10-{name}"
                    for name in (
                        "captum_lenet", "cnn_a_adv", "cnn_a_adv4", "cnn_a_adv_alt",
                        "cnn_a_mix", "cnn_a_mix4", "conv_small_pgd", "marabou_large",
                        "marabou_medium", "marabou_small", "oval_wide_kw",
                        "resnet2b_adv", "resnet4b_adv", "resnet20", "resnet32",
                        "resnet56",
                    )
                ),
            ],
            shifts=shifts_of((0.05, 0.1, 0.2), (3, 5), (2 / 255, 4 / 255, 8 / 255)),
        ),
        WorldSetting(
            world="ImageNet", dataset="imagenet-nips2017", split="test200", source=100,
            judged=100, models=["imagenet:efficientnet-lite0"],
            shifts=shifts_of((0.1, 0.3), (5,), (2 / 255,)), steps=5,
        ),
    ),
    "quick": (
        _digits(
            source=298, judged=298,
            models=_seeds("digits-cnn", 2, ("", "-noise", "-adv", "-grad1e-1")),
            shifts=shifts_of((0.2, 0.6), (3,), (0.1,)),
        ),
    ),
}  # fmt: skip
