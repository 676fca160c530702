"""Gaussian noise of growing strength, and on growing shares of the images."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor, nn
from tqdm import tqdm

from robustbook.agreement import (
    adam_agreement,
    agreement_curve,
    posterior_agreement,
    shift_by_ratio,
)
from robustbook.datasets import Dataset
from robustbook.models import load_model, logits_of, resolve_device
from robustbook.scores import accuracy
from robustbook.studies._pairs import confidence, measure_pair
from robustbook.studies._rows import Row, share_error
from robustbook.studies._settings import settings_of
from robustbook.training import add_gaussian_noise

__all__ = ["noise"]

#: Bounds of the PA thesis, in gray levels of 255.
LEVELS: Final = (2, 4, 8, 16, 32)
#: Standard deviations that fit a bound of 32 gray levels: as the thesis explains
#: it, a third of the bound; as the thesis prints it, three times the bound.
FOCUS: Final = {"third": 32 / 255 / 3, "triple": 3 * 32 / 255}
#: Shares of noisy images.
RATIOS: Final = tuple(tenth / 10 for tenth in range(11))
CURVES: Final = (0.0, 0.1, 0.2, 0.5, 1.0)
OPTIMIZED: Final = (0.0, 0.5)
BETAS: Final = torch.logspace(-2, 1.5, 57, dtype=torch.float64)


@dataclass(frozen=True)
class _Plan:
    draws: int
    epochs: int
    sigmas: tuple[float, ...]


_BOTH: Final = (*(k / 765 for k in LEVELS), *(3 * k / 255 for k in LEVELS))
_PLANS: Final = {
    "full": _Plan(
        5, 500, tuple(sorted((*_BOTH, 0.07, 0.14, 0.26, 0.5, 0.75, 1.0, 2.0, 4.0)))
    ),
    "quick": _Plan(2, 100, (FOCUS["third"], 0.1, 0.2, FOCUS["triple"], 0.6, 1.0, 2.0)),
}


def noise(
    *,
    profile: str = "full",
    seed: int = 0,
    device: str = "auto",
) -> list[Row]:
    """Measure every model under Gaussian noise, clipped to [0, 1].

    Parameters
    ----------
    profile : {"quick", "full"}
        "quick" takes digits.
    seed : int
        Of the first noise and of the first order of the images.
    device : str
        Where the models run.

    Returns
    -------
    list of dict
        Rows with ``what`` =
        "model": clean accuracy and mean confidence;
        "strength": scores for each model, ``sigma`` and ``draw`` of the noise;
        "ratio": scores for each model, ``sigma``, ``draw`` and share of noisy images,
        taken in random order;
        "kernel": J(``beta``) of the first model for some of these shares;
        "adam": the papers' optimization there, epoch by epoch.

    Notes
    -----
    Experiment 2 of the PA thesis (section 4.1, Figures 4.3 and 4.4). Chapter 13 of this
    book.
    """
    plan = _PLANS[profile]
    setting = settings_of(profile)
    data = setting.data()
    rows: list[Row] = []
    for place, model_name in enumerate(
        tqdm(setting.models, desc="noise", disable=None)
    ):
        model = load_model(model_name).eval().to(resolve_device(device))
        shared = {"dataset": data.name, "model": model_name, "samples": len(data)}
        rows += [
            {"what": row.pop("what"), **shared, **row}
            for row in _of_model(model, data, plan, seed, first=place == 0)
        ]
    return rows


def _of_model(
    model: nn.Module, data: Dataset, plan: _Plan, seed: int, *, first: bool
) -> Iterator[Row]:
    clean = logits_of(model, data.images)
    share = accuracy(clean, data.labels)
    yield {
        "what": "model",
        "accuracy": share,
        "accuracy_se": share_error(share, len(data)),
        "confidence": confidence(clean),
    }
    for draw in range(plan.draws):
        for sigma in plan.sigmas:
            shifted = _noisy(model, data, sigma, seed + draw)
            measured = measure_pair(clean, shifted, data.labels)
            yield {"what": "strength", "sigma": sigma, "draw": draw, **measured}
            if sigma in FOCUS.values():
                yield from _ratios(clean, shifted, data.labels, sigma, draw, seed)
                if first and draw == 0:
                    yield from _kernels(clean, shifted, sigma, plan.epochs, seed)


def _noisy(model: nn.Module, data: Dataset, sigma: float, seed: int) -> Tensor:
    """Logits of noisy images; one seed draws the same noise, scaled, for all."""
    generator = torch.Generator().manual_seed(seed)
    return logits_of(model, add_gaussian_noise(data.images, sigma, generator=generator))


def _ratios(
    clean: Tensor, shifted: Tensor, labels: Tensor, sigma: float, draw: int, seed: int
) -> Iterator[Row]:
    for ratio in RATIOS:
        mixed = shift_by_ratio(clean, shifted, ratio, seed=seed + draw)
        measured = measure_pair(clean, mixed, labels)
        yield {
            "what": "ratio", "sigma": sigma, "draw": draw, "ratio": ratio, **measured
        }  # fmt: skip


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
