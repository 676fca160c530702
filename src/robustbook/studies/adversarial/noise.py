"""Gaussian noise of growing strength, and on growing shares of the images."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import partial
from itertools import product
from typing import Any, Final

import torch
from torch import Tensor, nn

from robustbook.agreement import (
    adam_agreement,
    agreement_curve,
    posterior_agreement,
    shift_by_ratio,
)
from robustbook.models import logits_of
from robustbook.scores import accuracy
from robustbook.studies._run import Row, Run, Setting, with_keys
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
    for place, name in enumerate(run.progress(run.setting.models)):
        keys = {"dataset": run.data.name, "model": name, "samples": len(run.data)}
        yield from with_keys(keys, _of_model(run, name, first=place == 0))


def _of_model(run: Run[NoiseSetting], name: str, *, first: bool) -> Iterator[Row]:
    data, model = run.data, run.model(name)
    clean = logits_of(model, data.images)
    known = share_row("accuracy", accuracy(clean, data.labels), len(data))
    yield {"what": "model", **known, "confidence": confidence(clean)}
    for draw in range(run.setting.draws):
        scores = measure(run, name, draw)
        for sigma in run.setting.sigmas:
            yield from (row for row in scores if row["sigma"] == sigma)
            if first and draw == 0 and sigma in FOCUS.values():
                yield from _kernels(run, clean, _noisy(run, model, sigma, draw), sigma)


def jobs(run: Run[NoiseSetting]) -> Iterator[tuple[str, int]]:
    """Each network with each draw of the noise."""
    return product(run.setting.models, range(run.setting.draws))


def measure(run: Run[NoiseSetting], name: str, draw: int) -> list[Row]:
    """Scores under one draw, at all strengths and ratios."""
    return run.rows(
        "scores in noise", partial(_scores, run, name, draw),
        networks=name, data=run.data, sigmas=run.setting.sigmas, draw=draw,
        code=__name__,
    )  # fmt: skip


def _scores(run: Run[NoiseSetting], name: str, draw: int) -> Iterator[Row]:
    data, seed, model = run.data, run.seed + draw, run.model(name)
    clean = logits_of(model, data.images)
    for sigma in run.setting.sigmas:
        shifted = _noisy(run, model, sigma, draw)
        scores = measure_pair(clean, shifted, data.labels)
        yield {"what": "strength", "sigma": sigma, "draw": draw, **scores}
        for ratio in RATIOS if sigma in FOCUS.values() else ():
            mixed = shift_by_ratio(clean, shifted, ratio, seed=seed)
            scores = measure_pair(clean, mixed, data.labels)
            keys = {"sigma": sigma, "draw": draw, "ratio": ratio}
            yield {"what": "ratio", **keys, **scores}


def _noisy(run: Run[NoiseSetting], model: nn.Module, sigma: float, draw: int) -> Tensor:
    """Logits under noise, which is the same for all strengths but for its scale."""
    generator = torch.Generator().manual_seed(run.seed + draw)
    return logits_of(
        model, add_gaussian_noise(run.data.images, sigma, generator=generator)
    )


def _kernels(
    run: Run[NoiseSetting], clean: Tensor, shifted: Tensor, sigma: float
) -> Iterator[Row]:
    """The kernel over beta, its certified maximum, and where Adam goes."""
    for ratio in CURVES:
        mixed = shift_by_ratio(clean, shifted, ratio, seed=run.seed)
        epochs = run.setting.epochs if ratio in OPTIMIZED else 0
        rows = run.rows("kernel", _kernel, clean, mixed, epochs)
        yield from with_keys({"sigma": sigma, "draw": 0, "ratio": ratio}, rows)


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
                "what": "adam", **shared, "epoch": epoch,
                "beta": float(trace.beta[epoch]), "kernel": float(trace.pa[epoch]),
            }  # fmt: skip


def _spread(epochs: int) -> list[int]:
    """Every epoch at first, then fewer and fewer."""
    return sorted(
        {0, *(round(1.15**k) for k in range(60)), epochs} & {*range(epochs + 1)}
    )
