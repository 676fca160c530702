"""All three measures of one model on the same images, from the cache where they are."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import torch
from torch import Tensor, nn

from robustbook._store.cache import Arrays, Configuration, cached_arrays
from robustbook._store.provenance import code_sha256
from robustbook.agreement import Agreement, posterior_agreement
from robustbook.average_case import mmse, monte_carlo
from robustbook.corruptions import CORRUPTIONS, corrupt
from robustbook.datasets import Dataset, load_dataset
from robustbook.margins import gradient_normalized_margin
from robustbook.models import load_model, logits_of, resolve_device
from robustbook.studies.margins._measured import (
    MeasuredMargins,
    Recipe,
    margins_of,
    scores_of,
)
from robustbook.studies.adversarial.attacked import (
    Attack,
    attack_model,
    data_sha256,
    model_sha256,
)

__all__ = ["LensSetting", "SeenModel", "lens_setting", "see"]

#: Images whose noisy copies are counted at once, and kept in one file of the cache.
_BLOCK: Final = 200


@dataclass(frozen=True)
class LensSetting:
    """Models and images that belong together, and with what they are measured.

    Attributes
    ----------
    dataset, split : str
        The images.
    samples : int
        How many of them, from the first.
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

    dataset: str
    split: str
    samples: int
    models: dict[str, Recipe]
    eps: float
    attack_steps: int
    sigma: float
    small: tuple[float, ...]
    noise_samples: int
    severity: int = 3

    def data(self) -> Dataset:
        """Load the images."""
        return load_dataset(self.dataset, self.split).subset(slice(self.samples))

    def sums(self) -> dict[str, str]:
        """sha256 of the models and of the images."""
        sums = {name: model_sha256(load_model(name)) for name in self.models}
        return {**sums, f"{self.dataset} {self.split}": data_sha256(self.data())}


# Those of Part VI, whose margins are then in the cache.
_CIFAR: Final = Recipe(targets=3, steps=10, refine_steps=50, rounds=1)
_DEEP: Final = Recipe(targets=3, steps=10, refine_steps=30, rounds=1, apgd_steps=10)
_DIGITS: Final = Recipe(targets=3, steps=10, refine_steps=0, rounds=0)

_SETTINGS: Final = {
    "quick": LensSetting(
        dataset="digits",
        split="test",
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
            _DIGITS,
        ),
        eps=0.1,
        attack_steps=10,
        sigma=0.2,
        small=(0.02, 0.06),
        noise_samples=100,
    ),
    "full": LensSetting(
        dataset="cifar10",
        split="test1000",
        samples=1000,
        models={
            "cifar10-resnet20": _DEEP,
            **dict.fromkeys(
                (
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
                ),
                _CIFAR,
            ),
        },
        eps=8 / 255,
        attack_steps=40,
        sigma=0.1,
        small=(0.01, 0.03),
        noise_samples=500,
    ),
}


def lens_setting(profile: str) -> LensSetting:
    """Return the setting of a profile: digits for "quick"."""
    return _SETTINGS[profile]


@dataclass(frozen=True, eq=False)
class SeenModel:
    """What the three lenses see of a model.

    Attributes
    ----------
    margins : MeasuredMargins
        Clean logits, labels, input margins, and what is known without an attack.
    shifted_logits : dict of str to Tensor, shape (N, K)
        Under "adversarial", "noise", weaker noise ("noise_0.03"), and each
        corruption.
    agreements : dict of str to Agreement
        Between clean and shifted, by the same names.
    kept : Tensor, shape (N,)
        Average-case robustness: the share of noisy copies with the same prediction.
    linearized : dict of float to Tensor, shape (N,)
        Its estimate by linearization, which has no ties at 1, for each standard
        deviation; the last is that of the rest.
    first_order : Tensor, shape (N,)
        ℓ2 distance to the border to first order, by which the average case orders
        images when the noise is weak.
    """

    margins: MeasuredMargins
    shifted_logits: dict[str, Tensor]
    agreements: dict[str, Agreement]
    kept: Tensor
    linearized: dict[float, Tensor]
    first_order: Tensor

    @property
    def correct(self) -> Tensor:
        """Whether the clean prediction is right, bool (N,)."""
        return self.margins.correct

    def changed(self, shift: str) -> Tensor:
        """Whether a shift changes the prediction, bool (N,)."""
        shifted = self.shifted_logits[shift].argmax(dim=1)
        return shifted != self.margins.logits.argmax(dim=1)

    def wrong(self, shift: str) -> Tensor:
        """Whether the prediction on the shifted image is wrong, bool (N,)."""
        return self.shifted_logits[shift].argmax(dim=1) != self.margins.labels

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
        """What is known of each image before a corruption: the larger, the safer.

        Parameters
        ----------
        held_out : str, optional
            The corruption, which must not be seen.

        Returns
        -------
        dict of str to Tensor, shape (N,)
            Float64, by the name of the score.
        """
        free = scores_of(self.margins)
        *small, sigma = self.linearized
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
            **{
                f"pa_noise_{s:g}": self.agreements[f"noise_{s:g}"].per_sample
                for s in small
            },
        }


def see(
    name: str, setting: LensSetting, *, seed: int = 0, device: str = "auto"
) -> SeenModel:
    """Measure a model with all lenses, or read what was measured.

    Parameters
    ----------
    name : str
        One of the setting's models.
    setting : LensSetting
        Images, and with what they are measured.
    seed : int, default 0
        Of noise and attacks.
    device : str, default "auto"
        Where to run.

    Returns
    -------
    SeenModel
        On the CPU.
    """
    data = setting.data()
    margins = margins_of(name, data, setting.models[name], seed=seed, device=device)
    model = load_model(name).eval()
    # Attacks go against the prediction: no lens needs a label.
    decided = replace(data, labels=margins.logits.argmax(dim=1))
    attack = Attack("pgd", setting.eps, setting.attack_steps)
    attacked = attack_model(name, attack, decided, seed=seed, device=device)
    kept, linearized = _average(model, data, setting, seed=seed, device=device)
    model.to(resolve_device(device))
    first_order = gradient_normalized_margin(
        model, data.images, norm="l2", nearest=True
    ).cpu()
    drawn = np.random.default_rng([seed, 0]).standard_normal(data.images.shape)
    noise = torch.from_numpy(drawn).float()
    shifted = {
        "adversarial": attacked.shifted_logits,
        "noise": logits_of(model, data.images + setting.sigma * noise),
        **{
            f"noise_{sigma:g}": logits_of(model, data.images + sigma * noise)
            for sigma in setting.small
        },
        **{
            kind: logits_of(
                model, corrupt(data.images, kind, severity=setting.severity)
            )
            for kind in CORRUPTIONS
        },
    }
    agreements = {
        shift: posterior_agreement(margins.logits, logits)
        for shift, logits in shifted.items()
    }
    return SeenModel(margins, shifted, agreements, kept, linearized, first_order)


def _average(
    model: nn.Module, data: Dataset, setting: LensSetting, *, seed: int, device: str
) -> tuple[Tensor, dict[float, Tensor]]:
    """Average-case robustness of each image, counted and linearized, in blocks."""
    code = code_sha256(["robustbook.average_case"], follow_imports=False)
    sigmas = (*setting.small, setting.sigma)

    def estimated(name: str, estimate: Callable[..., Arrays], sigma: float) -> Tensor:
        parts = []
        for start in range(0, len(data), _BLOCK):
            block = data.subset(slice(start, start + _BLOCK))
            configuration: Configuration = {
                "what": "average case",
                "estimate": name,
                "model_sha256": model_sha256(model),
                "data_sha256": data_sha256(block),
                "sigma": sigma,
                "samples": setting.noise_samples,
                "seed": seed,
                "code_sha256": code,
            }
            on = model.to(resolve_device(device))
            compute = functools.partial(
                estimate, on, block.images, sigma, setting.noise_samples, seed
            )
            parts.append(cached_arrays(configuration, compute)["probability"])
        return torch.from_numpy(np.concatenate(parts))

    kept = estimated("kept", _counted, setting.sigma)
    linearized = {
        sigma: estimated("linearized", _linearized, sigma) for sigma in sigmas
    }
    model.cpu()
    return kept, linearized


def _counted(
    model: nn.Module, images: Tensor, sigma: float, samples: int, seed: int
) -> Arrays:
    found = monte_carlo(model, images, sigma, samples=samples, seed=seed)
    return {"probability": found.probability.cpu().numpy()}


def _linearized(
    model: nn.Module, images: Tensor, sigma: float, _: int, seed: int
) -> Arrays:
    found = mmse(model, images, sigma, seed=seed)
    return {"probability": found.probability.cpu().numpy()}
