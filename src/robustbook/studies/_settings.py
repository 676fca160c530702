"""Which models meet which attacks, on which images: Part III's one table."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from robustbook.datasets import Dataset, load_dataset
from robustbook.models import load_model
from robustbook.studies.attacked import Attack, data_sha256, model_sha256

__all__ = ["SETTINGS", "Setting", "settings_of"]

#: ℓ∞ bounds of the PA paper, in gray levels of 255.
LEVELS = (2, 4, 8, 16, 32)


@dataclass(frozen=True)
class Setting:
    """Models, attacks and images that belong together.

    Attributes
    ----------
    dataset, split : str
        The images.
    samples : int or None
        How many of them, from the first; None is all.
    models : dict of str to int
        Names, and how many times fewer steps each is attacked with: large models
        that every attack breaks at once need few.
    eps : tuple of float
        ℓ∞ bounds, in [0, 1] pixel units.
    focus : float
        The bound that is looked at closely.
    steps : dict of str to int
        Attacks, and their steps.
    many : tuple of int
        Numbers of PGD steps whose effect is compared.
    """

    dataset: str
    split: str
    samples: int | None
    models: dict[str, int]
    eps: tuple[float, ...]
    focus: float
    steps: dict[str, int]
    many: tuple[int, ...]

    def data(self) -> Dataset:
        """Load the images."""
        data = load_dataset(self.dataset, self.split)
        return data if self.samples is None else data.subset(slice(self.samples))

    def sums(self) -> dict[str, str]:
        """sha256 of the models and of the images."""
        sums = {name: model_sha256(load_model(name)) for name in self.models}
        return {**sums, f"{self.dataset} {self.split}": data_sha256(self.data())}

    def attacks(self, model: str) -> Iterator[Attack]:
        """The attacks on one of the models, each at every bound."""
        for kind, steps in self.steps.items():
            if kind == "pgd-surrogate" and not model.endswith("+jpeg-rs"):
                continue
            few = max(1, steps // self.models[model])
            bounds: tuple[float | None, ...] = self.eps
            if kind == "fmn":
                bounds = (None,)
            for eps in bounds:
                yield Attack(kind, eps, few)


SETTINGS = {
    "digits": Setting(
        dataset="digits",
        split="test",
        samples=200,
        models={
            "digits-linear-s0": 1,
            "digits-cnn-s0": 1,
            "digits-cnn-noise-s0": 1,
            "digits-cnn-adv-s0": 1,
            "digits-cnn-s0+jpeg-rs": 1,
        },
        eps=(0.05, 0.1, 0.2),
        focus=0.1,
        steps={
            "pgd": 10,
            "pgd-surrogate": 10,
            "fmn": 20,
            "apgd-ce": 10,
            "apgd-dlr": 10,
            "fab": 4,
        },
        many=(1, 2, 5, 10, 20),
    ),
    "cifar10": Setting(
        dataset="cifar10",
        split="test1000",
        samples=None,
        models={
            "cifar10-resnet20": 8,
            "cifar10-resnet4b_adv": 1,
            "cifar10-cnn_a_adv4": 1,
            "cifar10-cnn_a_adv_alt": 1,
            "cifar10-oval_wide_kw": 1,
            "cifar10-conv_small_pgd": 1,
            "cifar10-marabou_large+jpeg-rs": 2,
        },
        eps=tuple(level / 255 for level in LEVELS),
        focus=8 / 255,
        steps={
            "pgd": 200,
            "pgd-surrogate": 200,
            "fmn": 200,
            "apgd-ce": 100,
            "apgd-dlr": 100,
            "fab": 40,
        },
        many=(1, 2, 5, 10, 20, 50, 200, 1000),
    ),
    "mnist": Setting(
        dataset="mnist",
        split="test",
        samples=None,
        models={
            "mnist-conv_small_nat": 1,
            "mnist-advertorch_lenet5_adv": 2,
            "mnist-cnn_a_adv": 1,
            "mnist-madry_tiny_adv": 1,
            "mnist-kw": 1,
        },
        eps=(0.05, 0.1, 0.2, 0.3, 0.4),
        focus=0.2,
        steps={"pgd": 40, "fmn": 40},
        many=(1, 2, 5, 10, 20, 40),
    ),
}


def settings_of(profile: str, *, larger: str = "cifar10") -> Setting:
    """Return the setting of a profile: digits for "quick"."""
    return SETTINGS["digits" if profile == "quick" else larger]
