"""Which networks are searched how, on how many images: Part V's one table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from robustbook.datasets import Dataset
from robustbook.studies.margins.search import Recipe
from robustbook.studies.run import Setting


@dataclass(frozen=True, kw_only=True)
class MarginSetting(Setting):
    """Networks, images and bounds in [0, 1] pixel units."""

    #: Names, how they are searched, and on how many images, from the first.
    models: dict[str, tuple[Recipe, int]]
    #: Bounds at which decisions are called brittle, and the usual one of them.
    eps: tuple[float, ...]
    focus: float

    def images_of(self, model: str) -> Dataset:
        """Load the images on which a network is measured."""
        return self.data().subset(slice(self.models[model][1]))


CIFAR: Final = Recipe(targets=3, steps=10, refine_steps=50, rounds=1)
DEEP: Final = Recipe(targets=3, steps=10, refine_steps=30, rounds=1, apgd_steps=10)
MNIST: Final = Recipe(targets=2, steps=10, refine_steps=30, rounds=5)
DIGITS: Final = Recipe(targets=3, steps=10, refine_steps=20, rounds=0)

_BY_DATASET: Final = {
    "digits": MarginSetting(
        dataset="digits",
        models={
            "digits-linear-s0": (DIGITS, 200), "digits-cnn-s0": (DIGITS, 200),
            "digits-cnn-noise-s0": (DIGITS, 200), "digits-cnn-adv-s0": (DIGITS, 200),
        },
        eps=(0.05, 0.1, 0.2), focus=0.1,
    ),
    "cifar10": MarginSetting(
        dataset="cifar10", split="test1000",
        models={
            **{
                f"cifar10-{name}": (CIFAR, 1000)
                for name in (
                    "cnn_a_adv", "cnn_a_adv4", "cnn_a_adv_alt", "cnn_a_mix",
                    "cnn_a_mix4", "resnet2b_adv", "resnet4b_adv", "conv_small_pgd",
                    "oval_wide_kw", "preact-adv-s0", "marabou_large", "captum_lenet",
                )
            },
            "cifar10-resnet20": (DEEP, 500),
        },
        eps=(1 / 255, 2 / 255, 4 / 255, 8 / 255), focus=8 / 255,
    ),
    "mnist": MarginSetting(
        dataset="mnist",
        models={
            "mnist-madry_tiny_adv": (MNIST, 10_000), "mnist-cnn_a_adv": (MNIST, 10_000),
            "mnist-conv_small_nat": (MNIST, 10_000), "mnist-kw": (MNIST, 10_000),
            "mnist-advertorch_lenet5_clean": (MNIST, 1000),
            "mnist-advertorch_lenet5_adv": (MNIST, 1000),
        },
        eps=(0.05, 0.1, 0.2, 0.3), focus=0.2,
    ),
}  # fmt: skip

SETTINGS: Final = {
    "quick": (_BY_DATASET["digits"],),
    "full": (_BY_DATASET["cifar10"], _BY_DATASET["mnist"]),
}
