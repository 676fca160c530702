"""Which networks meet which attacks, on which images: Part II's one table."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from robustbook.studies.run import Setting

#: ℓ∞ bounds of the PA papers, in gray levels of 255.
LEVELS: Final = (2, 4, 8, 16, 32)
#: Adversarial ratios of the PA papers: the shares of the images that are shifted.
RATIOS: Final = tuple(tenth / 10 for tenth in range(11))
#: At ratio 0 nothing is shifted: for every model PA is log K and all answers stay.
SHIFTING: Final = RATIOS[1:]


@dataclass(frozen=True, kw_only=True)
class AttackSetting(Setting):
    """Networks, images and the attacks on them; bounds in [0, 1] pixel units."""

    #: Names, and how many times fewer steps each is attacked with: large networks
    #: that every attack breaks at once need few.
    models: dict[str, int]
    #: ℓ∞ bounds, and the one that is looked at closely.
    eps: tuple[float, ...]
    focus: float
    #: Attacks, and their steps; numbers of PGD steps whose effect is compared.
    steps: dict[str, int]
    many: tuple[int, ...]
    #: Steps of the attacks that settle on a network only after more of them.
    longer: dict[str, dict[str, int]] = field(default_factory=dict)

    def steps_on(self, model: str, kind: str) -> int:
        """Steps of an attack on one of the networks."""
        fewer = max(1, self.steps[kind] // self.models[model])
        return self.longer.get(model, {}).get(kind, fewer)


SETTINGS: Final = {
    "quick": (
        AttackSetting(
            dataset="digits", samples=100,
            models={
                "digits-cnn-s0": 1, "digits-cnn-noise-s0": 1, "digits-cnn-adv-s0": 1,
                "digits-cnn-s0+jpeg-rs": 2,
            },
            eps=(0.05, 0.1, 0.2), focus=0.1,
            steps={
                "pgd": 10, "pgd-surrogate": 10, "fmn": 20, "apgd-ce": 10,
                "apgd-dlr": 10, "fab": 4,
            },
            many=(1, 2, 5, 10, 20),
        ),
    ),
    "full": (
        AttackSetting(
            dataset="cifar10", split="test1000",
            models={
                "cifar10-resnet20": 8, "cifar10-resnet4b_adv": 1,
                "cifar10-cnn_a_adv4": 1, "cifar10-cnn_a_adv_alt": 1,
                "cifar10-oval_wide_kw": 1, "cifar10-conv_small_pgd": 1,
                "cifar10-marabou_large+jpeg-rs": 2,
            },
            eps=tuple(level / 255 for level in LEVELS), focus=8 / 255,
            steps={
                "pgd": 200, "pgd-surrogate": 200, "fmn": 200, "apgd-ce": 100,
                "apgd-dlr": 100, "fab": 40,
            },
            many=(1, 2, 5, 10, 20, 50, 200, 1000),
            longer={
                "cifar10-resnet20": {"fmn": 200},
                "cifar10-marabou_large+jpeg-rs": {"fmn": 1000, "fab": 100},
            },
        ),
    ),
    # Our own larger networks, a plain and a robust one.
    "larger": (
        AttackSetting(
            dataset="cifar10", split="test1000",
            models={"cifar10-blocks-s0": 2, "cifar10-blocks-adv-s0": 1},
            eps=tuple(level / 255 for level in LEVELS), focus=8 / 255,
            steps={"pgd": 20}, many=(),
        ),
    ),
    "mnist": (
        AttackSetting(
            dataset="mnist",
            models={
                "mnist-conv_small_nat": 1, "mnist-advertorch_lenet5_adv": 2,
                "mnist-cnn_a_adv": 1, "mnist-madry_tiny_adv": 1, "mnist-kw": 1,
            },
            eps=(0.05, 0.1, 0.2, 0.3, 0.4), focus=0.2, steps={"pgd": 40, "fmn": 40},
            many=(1, 2, 5, 10, 20, 40),
        ),
    ),
}  # fmt: skip
