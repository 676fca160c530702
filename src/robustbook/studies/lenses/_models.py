"""Which networks meet all three measures, and these of one of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import torch
from torch import Tensor

from robustbook._store.cache import Arrays
from robustbook.agreement import Agreement, posterior_agreement
from robustbook.corruptions import CORRUPTIONS, corrupt
from robustbook.margins import gradient_normalized_margin
from robustbook.models import logits_of
from robustbook.studies.adversarial.attacked import Attack, attack_model
from robustbook.studies.lenses._survival import counted, linearized
from robustbook.studies.margins.measured import MeasuredMargins, margins_of, scores_of
from robustbook.studies.margins.search import Recipe
from robustbook.studies.margins.settings import SETTINGS as MARGINS
from robustbook.studies.run import Run, Setting

#: Images per cache file.
_BLOCK: Final = 200


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


@dataclass(frozen=True, eq=False)
class LensedModel:
    """A network as it is measured by the three lenses."""

    #: Clean logits, labels, input margins, and scores that need no attack.
    margins: MeasuredMargins
    #: Logits (N, K) under "adversarial", "noise" and each corruption; and the
    #: agreements between clean and shifted.
    shifted_logits: dict[str, Tensor]
    agreements: dict[str, Agreement]
    #: Average-case robustness: the share of noisy copies that keep the class, (N,).
    kept: Tensor
    #: Its estimate by linearization, for each standard deviation; the last is that of
    #: the rest.
    linearized: dict[float, Tensor]
    #: log(1 - p) by the same linearizations, where p itself is rounded to 1.
    log_failure: dict[float, Tensor]
    #: ℓ2 distance to the border to first order, by which the average case orders
    #: images when the noise is weak: (N,).
    first_order: Tensor

    def changed(self, shift: str) -> Tensor:
        """Whether a shift changes the prediction, bool (N,)."""
        shifted = self.shifted_logits[shift].argmax(dim=1)
        return shifted != self.margins.logits.argmax(dim=1)

    def robust(self, eps: float) -> Tensor:
        """Whether neither the search for margins nor PGD changed the prediction."""
        return (self.margins.bounds > eps) & ~self.changed("adversarial")

    def domain(self, held_out: str | None = None) -> Tensor:
        """Mean contribution to agreement over the corruptions but one, (N,)."""
        kinds = [kind for kind in CORRUPTIONS if kind != held_out]
        return torch.stack([self.agreements[kind].per_sample for kind in kinds]).mean(0)

    def survived(self) -> Tensor:
        """How many corruptions leave the prediction as it is, int64 (N,)."""
        return torch.stack([~self.changed(kind) for kind in CORRUPTIONS]).sum(dim=0)

    def scores(self, held_out: str | None = None) -> dict[str, Tensor]:
        """Scores of each image before a corruption; a larger one means safer.

        Float64 (N,) by the name of the score; none has seen the corruption held out.
        """
        free = scores_of(self.margins)
        *small, sigma = self.log_failure
        return {
            "logit_margin": free["logit_margin"],
            "softmax_margin": free["softmax_margin"],
            "gradient_margin": free["gradient_margin"].nan_to_num(nan=0.0),
            "input_margin": self.margins.bounds,
            "average_case": self.kept,
            "average_case_mmse": self.linearized[sigma],
            "pa_noise": self.agreements["noise"].per_sample,
            "pa_adversarial": self.agreements["adversarial"].per_sample,
            "pa_domain": self.domain(held_out),
            "first_order_l2": self.first_order,
            **{f"average_case_mmse_{s:g}": self.linearized[s] for s in small},
            # Many probabilities tie at 1; the logarithms of their failures do not.
            "average_case_log": -self.log_failure[sigma],
            **{f"average_case_log_{s:g}": -self.log_failure[s] for s in small},
        }


def measure_model(
    run: Run[LensSetting], setting: LensSetting, name: str
) -> LensedModel:
    """Measure a network with all lenses, or read the results from the cache."""
    data, seed = run.data, run.seed
    margins = margins_of(run, name, data, setting.models[name])
    model = run.model(name)
    # Attacks are untargeted against the prediction, so that no lens needs a label.
    decided = replace(data, labels=margins.logits.argmax(dim=1))
    attack = Attack("pgd", setting.eps, setting.attack_steps)
    attacked = attack_model(run, name, attack, decided)
    drawn = np.random.default_rng([seed, 0]).standard_normal(data.images.shape)
    noisy = data.images + setting.sigma * torch.from_numpy(drawn).float()
    shifted = {"adversarial": attacked.shifted_logits, "noise": logits_of(model, noisy)}
    for kind in CORRUPTIONS:
        corrupted = corrupt(data.images, kind, severity=setting.severity, seed=seed)
        shifted[kind] = logits_of(model, corrupted)

    def survival(estimate: Callable[..., Arrays], sigma: float) -> dict[str, Tensor]:
        arrays = run.arrays_by_block(
            f"average case {estimate.__name__}", estimate, data, sigma,
            setting.noise_samples, seed, size=_BLOCK, network=name,
        )  # fmt: skip
        return {key: torch.from_numpy(values) for key, values in arrays.items()}

    fits = {
        sigma: survival(linearized, sigma) for sigma in (*setting.small, setting.sigma)
    }
    return LensedModel(
        margins=margins,
        shifted_logits=shifted,
        agreements={
            shift: posterior_agreement(margins.logits, logits)
            for shift, logits in shifted.items()
        },
        kept=survival(counted, setting.sigma)["probability"],
        linearized={sigma: fit["probability"] for sigma, fit in fits.items()},
        log_failure={sigma: fit["log_failure"] for sigma, fit in fits.items()},
        first_order=gradient_normalized_margin(
            model, data.images, norm="l2", nearest=True
        ).cpu(),
    )
