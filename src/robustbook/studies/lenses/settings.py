"""Which networks all measures are taken of, and how."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from robustbook.studies.margins.measured import Recipe
from robustbook.studies.margins.settings import SETTINGS as MARGINS
from robustbook.studies.run import Setting


@dataclass(frozen=True, kw_only=True)
class LensSetting(Setting):
    """Networks, images, and how they are measured; sizes in [0, 1] pixel units."""

    #: Names, and how thoroughly their input margins are looked for.
    models: dict[str, Recipe]
    samples: int
    #: ℓ∞ bound of PGD, and its steps.
    eps: float
    attack_steps: int
    #: Standard deviation of the noise, smaller ones for which nothing is counted, and
    #: noisy copies of each image.
    sigma: float
    small: tuple[float, ...]
    noise_samples: int
    #: Severity of the corruptions.
    severity: int = 3


#: Part V looks for margins of the same networks on CIFAR-10: the cache has them.
_CIFAR10: Final = MARGINS["full"][0]

SETTINGS: Final = {
    "quick": (
        LensSetting(
            dataset="digits", samples=100,
            models=dict.fromkeys(
                (
                    "digits-linear-s0", "digits-cnn-s0", "digits-cnn-noise-s0",
                    "digits-cnn-adv-s0", "digits-cnn-grad1e-3-s0",
                    "digits-cnn-grad1e-2-s0", "digits-cnn-grad1e-1-s0",
                    "digits-cnn-grad1-s0",
                ),
                Recipe(targets=3, steps=10, refine_steps=0, rounds=0),
            ),
            eps=0.1, attack_steps=10, sigma=0.2, small=(0.02, 0.06), noise_samples=60,
        ),
    ),
    "full": (
        LensSetting(
            dataset="cifar10", split="test1000", samples=1000,
            models={
                name: _CIFAR10.models[name][0]
                for name in (
                    "cifar10-resnet20", "cifar10-marabou_large", "cifar10-captum_lenet",
                    "cifar10-cnn_a_mix", "cifar10-cnn_a_mix4", "cifar10-cnn_a_adv",
                    "cifar10-cnn_a_adv4", "cifar10-cnn_a_adv_alt",
                    "cifar10-resnet2b_adv", "cifar10-resnet4b_adv",
                    "cifar10-conv_small_pgd", "cifar10-preact-adv-s0",
                    "cifar10-oval_wide_kw",
                )
            },
            eps=8 / 255, attack_steps=40, sigma=0.1, small=(0.01, 0.03),
            noise_samples=500,
        ),
    ),
}  # fmt: skip
