"""Gaussian noise of growing strength, and on growing shares of the images."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from itertools import product
from typing import Any, Final

import torch
from torch import Tensor, nn

from robustbook._store.cache import cached_arrays
from robustbook._store.sums import model_sum
from robustbook.agreement import (
    adam_agreement,
    agreement_curve,
    posterior_agreement,
    shift_by_ratio,
)
from robustbook.datasets import Dataset
from robustbook.models import logits_of
from robustbook.scores import accuracy
from robustbook.studies._run import Row, Run, Setting, data_sum, under
from robustbook.studies._scores import confidence, measure_pair
from robustbook.studies._statistics import share_row
from robustbook.studies.adversarial.settings import LEVELS
from robustbook.studies.adversarial.settings import SETTINGS as ATTACKED
from robustbook.training import add_gaussian_noise

#: Standard deviations that fit a bound of 32 gray levels: as the thesis explains
#: it, a third of the bound; as the thesis prints it, three times the bound.
FOCUS: Final = {"third": 32 / 255 / 3, "triple": 3 * 32 / 255}
#: Shares of noisy images.
RATIOS: Final = tuple(tenth / 10 for tenth in range(11))
CURVES: Final = (0.0, 0.1, 0.2, 0.5, 1.0)
OPTIMIZED: Final = (0.0, 0.5)
BETAS: Final = torch.logspace(-2, 1.5, 57, dtype=torch.float64)


_BOTH: Final = (*(k / 765 for k in LEVELS), *(3 * k / 255 for k in LEVELS))


@dataclass(frozen=True, kw_only=True)
class NoiseSetting(Setting):
    """Networks, images, and strengths, draws and epochs of Adam."""

    sigmas: tuple[float, ...]
    draws: int
    epochs: int


def _on_those_attacked(profile: str, **options: Any) -> tuple[NoiseSetting]:
    (other,) = ATTACKED[profile]
    shared = {field.name: getattr(other, field.name) for field in fields(Setting)}
    return (NoiseSetting(**shared, **options),)


SETTINGS: Final = {
    "quick": _on_those_attacked(
        "quick", sigmas=(FOCUS["third"], 0.1, 0.2, FOCUS["triple"], 0.6, 1.0, 2.0),
        draws=2, epochs=50,
    ),
    "full": _on_those_attacked(
        "full",
        sigmas=tuple(sorted((*_BOTH, 0.07, 0.14, 0.26, 0.5, 0.75, 1.0, 2.0, 4.0))),
        draws=5, epochs=500,
    ),
}  # fmt: skip


def rows(run: Run[NoiseSetting]) -> Iterator[Row]:
    """Measure every network under Gaussian noise, clipped to [0, 1].

    Rows with ``what`` =
    "model": clean accuracy and mean confidence;
    "strength": scores for each model, ``sigma`` and ``draw`` of the noise;
    "ratio": scores for each model, ``sigma``, ``draw`` and share of noisy images, taken
    in random order;
    "kernel": J(``beta``) of the first model for some of these shares;
    "adam": the papers' optimization there, epoch by epoch.

    Experiment 2 of the PA thesis (section 4.1, Figures 4.3 and 4.4). Chapter 13 of this
    book.
    """
    for place, name in enumerate(run.each(run.setting.models)):
        model = run.model(name)
        keys = {"dataset": run.data.name, "model": name, "samples": len(run.data)}
        yield from under(keys, _of_model(run, model, first=place == 0))


def _of_model(
    run: Run[NoiseSetting], model: nn.Module, *, first: bool
) -> Iterator[Row]:
    setting, data, seed = run.setting, run.data, run.seed
    clean = logits_of(model, data.images)
    noisy = {d: _noisy(model, data, setting, seed + d) for d in range(setting.draws)}
    known = share_row("accuracy", accuracy(clean, data.labels), len(data))
    yield {"what": "model", **known, "confidence": confidence(clean)}
    for draw in range(setting.draws):
        for sigma in setting.sigmas:
            shifted = noisy[draw][sigma]
            measured = measure_pair(clean, shifted, data.labels)
            yield {"what": "strength", "sigma": sigma, "draw": draw, **measured}
            if sigma in FOCUS.values():
                for ratio in RATIOS:
                    mixed = shift_by_ratio(clean, shifted, ratio, seed=seed + draw)
                    yield {
                        "what": "ratio", "sigma": sigma, "draw": draw, "ratio": ratio,
                        **measure_pair(clean, mixed, data.labels),
                    }  # fmt: skip
                if first and draw == 0:
                    yield from _kernels(clean, shifted, sigma, setting.epochs, seed)


def jobs(run: Run[NoiseSetting]) -> Iterator[tuple[str, int]]:
    """Each network with each draw of the noise."""
    return product(run.setting.models, range(run.setting.draws))


def measure(run: Run[NoiseSetting], name: str, draw: int) -> None:
    """Leave the logits under a draw in the cache."""
    _noisy(run.model(name), run.data, run.setting, run.seed + draw)


def _noisy(
    model: nn.Module, data: Dataset, setting: NoiseSetting, seed: int
) -> dict[float, Tensor]:
    """Logits by strength; one seed draws the same noise, scaled, for all."""

    def logits(sigma: float) -> Tensor:
        generator = torch.Generator().manual_seed(seed)
        noisy = add_gaussian_noise(data.images, sigma, generator=generator)
        return logits_of(model, noisy)

    arrays = cached_arrays(
        {
            "what": "noisy logits", "device": str(next(model.parameters()).device),
            "model": model_sum(model), "data": data_sum(data),
            "sigmas": repr(setting.sigmas), "seed": seed,
        },
        lambda: {repr(sigma): logits(sigma).numpy() for sigma in setting.sigmas},
        code=("robustbook.models", add_gaussian_noise.__module__),
    )  # fmt: skip
    return {sigma: torch.from_numpy(arrays[repr(sigma)]) for sigma in setting.sigmas}


def _kernels(
    clean: Tensor, shifted: Tensor, sigma: float, epochs: int, seed: int
) -> Iterator[Row]:
    """The kernel over beta, its certified maximum, and where Adam goes."""
    for ratio in CURVES:
        mixed = shift_by_ratio(clean, shifted, ratio, seed=seed)
        best = posterior_agreement(clean, mixed)
        shared = {
            "sigma": sigma, "draw": 0, "ratio": ratio,
            "best_pa": best.pa, "best_beta": best.beta,
        }  # fmt: skip
        curve = agreement_curve(clean, mixed, BETAS)
        for beta, value in zip(BETAS.tolist(), curve.tolist(), strict=True):
            yield {"what": "kernel", **shared, "beta": beta, "kernel": value}
        if ratio not in OPTIMIZED:
            continue
        trace = adam_agreement(clean, mixed, epochs=epochs, batch_size=16)
        for epoch in _spread(epochs):
            yield {
                "what": "adam", **shared, "epoch": epoch,
                "beta": float(trace.beta[epoch]), "kernel": float(trace.pa[epoch]),
            }  # fmt: skip


def _spread(epochs: int) -> list[int]:
    """Every epoch at first, then fewer and fewer."""
    return sorted(
        {0, *(round(1.15**k) for k in range(60)), epochs} & {*range(epochs + 1)}
    )
