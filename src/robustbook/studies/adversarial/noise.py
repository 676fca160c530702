"""Gaussian noise of growing strength, and on growing shares of the images."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any, Final

import torch
from torch import Tensor

from robustbook.agreement import (
    adam_agreement,
    agreement_curve,
    posterior_agreement,
    shift_by_ratio,
)
from robustbook.models import logits_of
from robustbook.scores import accuracy
from robustbook.studies._scores import confidence, measure_pair
from robustbook.studies._statistics import share_row
from robustbook.studies.adversarial.settings import LEVELS, RATIOS
from robustbook.studies.adversarial.settings import SETTINGS as ATTACKED
from robustbook.studies.run import Row, Run, Setting, with_keys
from robustbook.training import add_gaussian_noise

#: Standard deviations that fit a bound of 32 gray levels: as the thesis explains
#: it, a third of the bound; as the thesis prints it, three times the bound.
FOCUS: Final = {"third": 32 / 255 / 3, "triple": 3 * 32 / 255}
CURVES: Final = (0.0, 0.1, 0.2, 0.5, 1.0)
OPTIMIZED: Final = (0.0, 0.5)
BETAS: Final = torch.logspace(-2, 1.5, 57, dtype=torch.float64)
_BOTH: Final = (*(k / 765 for k in LEVELS), *(3 * k / 255 for k in LEVELS))


@dataclass(frozen=True, kw_only=True)
class NoiseSetting(Setting):
    """Networks and images; strengths and draws of noise, and epochs of Adam."""

    sigmas: tuple[float, ...]
    draws: int
    epochs: int


def _on_those_attacked(profile: str, **options: Any) -> tuple[NoiseSetting]:
    (other,) = ATTACKED[profile]
    shared = {field.name: getattr(other, field.name) for field in fields(Setting)}
    return (NoiseSetting(**shared, **options),)


SETTINGS: Final = {
    "quick": _on_those_attacked(
        "quick",
        sigmas=(FOCUS["third"], 0.1, 0.2, FOCUS["triple"], 0.6, 1.0, 2.0),
        draws=2,
        epochs=50,
    ),
    "full": _on_those_attacked(
        "full",
        sigmas=tuple(sorted((*_BOTH, 0.07, 0.14, 0.26, 0.5, 0.75, 1.0, 2.0, 4.0))),
        draws=5,
        epochs=500,
    ),
}


def parts(run: Run[NoiseSetting]) -> Iterator[tuple[str, int, tuple[float, ...]]]:
    """Each network with each draw of the noise; curves of the first network alone."""
    for place, model in enumerate(run.setting.models):
        for draw in range(run.setting.draws):
            yield model, draw, CURVES if (place, draw) == (0, 0) else ()


def measure(
    run: Run[NoiseSetting], model: str, draw: int, curves: tuple[float, ...]
) -> Iterator[Row]:
    """Measure every network under Gaussian noise, clipped to [0, 1].

    Rows with ``what`` =
    "model": clean accuracy and mean confidence;
    "strength": scores for each model, ``sigma`` and ``draw`` of the noise;
    "ratio": scores for each model, ``sigma``, ``draw`` and share of noisy images, taken
    in random order;
    "kernel": J(``beta``) of the first model for some of these shares;
    "adam": the papers' optimization there, epoch by epoch.

    Experiment 2 of the PA thesis (section 4.1, Figures 4.3 and 4.4). Chapter 14 of this
    book.
    """
    keys = {"dataset": run.data.name, "model": model, "samples": len(run.data)}
    return with_keys(keys, _of_draw(run, model, draw, curves))


def _of_draw(
    run: Run[NoiseSetting], name: str, draw: int, curves: tuple[float, ...]
) -> Iterator[Row]:
    data, seed, network = run.data, run.seed + draw, run.model(name)
    clean = logits_of(network, data.images)
    if draw == 0:
        correct = share_row("accuracy", accuracy(clean, data.labels), len(data))
        yield {"what": "model", **correct, "confidence": confidence(clean)}
    for sigma in run.setting.sigmas:
        # The noise is the same for all strengths but for its scale.
        generator = torch.Generator().manual_seed(seed)
        noisy = add_gaussian_noise(data.images, sigma, generator=generator)
        shifted = logits_of(network, noisy)
        scores = measure_pair(clean, shifted, data.labels)
        yield {"what": "strength", "sigma": sigma, "draw": draw, **scores}
        if sigma not in FOCUS.values():
            continue
        for ratio in RATIOS:
            mixed = shift_by_ratio(clean, shifted, ratio, seed=seed)
            keys = {"sigma": sigma, "draw": draw, "ratio": ratio}
            scores = measure_pair(clean, mixed, data.labels)
            yield {"what": "ratio", **keys, **scores}
        for ratio in curves:
            mixed = shift_by_ratio(clean, shifted, ratio, seed=seed)
            keys = {"sigma": sigma, "draw": draw, "ratio": ratio}
            epochs = run.setting.epochs if ratio in OPTIMIZED else 0
            yield from with_keys(keys, _kernel(clean, mixed, epochs))


def _kernel(clean: Tensor, mixed: Tensor, epochs: int) -> Iterator[Row]:
    best = posterior_agreement(clean, mixed)
    shared = {"best_pa": best.pa, "best_beta": best.beta}
    curve = agreement_curve(clean, mixed, BETAS)
    for beta, value in zip(BETAS.tolist(), curve.tolist(), strict=True):
        yield {"what": "kernel", **shared, "beta": beta, "kernel": value}
    if epochs:
        trace = adam_agreement(clean, mixed, epochs=epochs, batch_size=16)
        for epoch in _spread(epochs):
            yield {
                "what": "adam",
                **shared,
                "epoch": epoch,
                "beta": float(trace.beta[epoch]),
                "kernel": float(trace.pa[epoch]),
            }


def _spread(epochs: int) -> list[int]:
    """Every epoch at first, then fewer and fewer."""
    return sorted(
        {0, *(round(1.15**k) for k in range(60)), epochs} & {*range(epochs + 1)}
    )
