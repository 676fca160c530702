"""Which networks all measures are taken of, and how."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from robustbook.studies._run import Setting
from robustbook.studies.margins.measured import Recipe
from robustbook.studies.margins.settings import SETTINGS as MARGINS

__all__ = ["SETTINGS", "LensSetting"]


@dataclass(frozen=True, kw_only=True)
class LensSetting(Setting):
    """Networks, images, and with what they are measured.

    Attributes
    ----------
    models : dict of str to Recipe
        Names, and how thoroughly their input margins are looked for.
    eps : float
        ℓ∞ bound of the attack, in [0, 1] pixel units.
    attack_steps : int
        Steps of PGD.
    sigma : float
        Standard deviation of the noise, in [0, 1] pixel units.
    small : tuple of float
        Smaller ones, for which nothing is counted.
    noise_samples : int
        Noisy copies of each image.
    severity : int
        Of the corruptions.
    """

    models: dict[str, Recipe]
    samples: int
    eps: float
    attack_steps: int
    sigma: float
    small: tuple[float, ...]
    noise_samples: int
    severity: int = 3


#: Part VI looks for margins of the same networks on CIFAR-10: the cache has them.
_CIFAR10: Final = MARGINS["full"][0]

SETTINGS: Final = {
    "quick": (
        LensSetting(
            dataset="digits",
            samples=200,
            models=dict.fromkeys(
                (
                    "digits-linear-s0",
                    "digits-cnn-s0",
                    "digits-cnn-noise-s0",
                    "digits-cnn-adv-s0",
                    "digits-cnn-grad1e-3-s0",
                    "digits-cnn-grad1e-2-s0",
                    "digits-cnn-grad1e-1-s0",
                    "digits-cnn-grad1-s0",
                ),
                Recipe(targets=3, steps=10, refine_steps=0, rounds=0),
            ),
            eps=0.1,
            attack_steps=10,
            sigma=0.2,
            small=(0.02, 0.06),
            noise_samples=100,
        ),
    ),
    "full": (
        LensSetting(
            dataset="cifar10",
            split="test1000",
            samples=1000,
            models={
                name: _CIFAR10.models[name][0]
                for name in (
                    "cifar10-resnet20",
                    "cifar10-marabou_large",
                    "cifar10-captum_lenet",
                    "cifar10-cnn_a_mix",
                    "cifar10-cnn_a_mix4",
                    "cifar10-cnn_a_adv",
                    "cifar10-cnn_a_adv4",
                    "cifar10-cnn_a_adv_alt",
                    "cifar10-resnet2b_adv",
                    "cifar10-resnet4b_adv",
                    "cifar10-conv_small_pgd",
                    "cifar10-preact-adv-s0",
                    "cifar10-oval_wide_kw",
                )
            },
            eps=8 / 255,
            attack_steps=40,
            sigma=0.1,
            small=(0.01, 0.03),
            noise_samples=500,
        ),
    ),
}
