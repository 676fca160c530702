"""How far the measured margins are above those of a much longer search."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import partial
from typing import Final

import torch
from torch import Tensor, nn
from tqdm import tqdm

from robustbook._store.cache import Arrays, cached_arrays
from robustbook._store.provenance import code_sha256
from robustbook.attacks import fab, fmn
from robustbook.datasets import Dataset
from robustbook.margins import input_margin, logit_margin
from robustbook.margins import margin_consistency as consistency_of
from robustbook.models import load_model, logits_of, resolve_device
from robustbook.studies.margins._measured import (
    SEARCH_VERSION,
    MarginSetting,
    Recipe,
    detection_row,
    linear_head,
    margin_settings,
    measure_bounds,
    share_row,
    tau_row,
)
from robustbook.studies._rows import Row
from robustbook.studies.adversarial.attacked import data_sha256, model_sha256

__all__ = ["data_sums", "linear_margins", "margin_convergence"]

#: What the bounds are compared with.
LONG: Final = Recipe(targets=4, steps=40, refine_steps=150, rounds=8, apgd_steps=30)
#: The model whose margins are known.
EXACT: Final = "digits-linear-s0"


@dataclass(frozen=True)
class _Plan:
    models: tuple[str, ...]
    images: int


_PLANS: Final = {
    "quick": _Plan((EXACT, "digits-cnn-adv-s0"), 60),
    "full": _Plan(
        (
            "cifar10-cnn_a_adv4",
            "cifar10-resnet4b_adv",
            "mnist-cnn_a_adv",
            "mnist-kw",
            "mnist-madry_tiny_adv",
        ),
        100,
    ),
}


def margin_convergence(
    *, profile: str = "full", seed: int = 0, device: str = "auto"
) -> list[Row]:
    """Compare searches for the input margin, from a single attack to a long one.

    Parameters
    ----------
    profile : {"quick", "full"}
        "quick" takes digits, with a linear model whose margins are known.
    seed : int
        Of APGD.
    device : str
        Where the attacks run.

    Returns
    -------
    list of dict
        One row for each model and ``search``: "fmn" and "fab", 100 steps and
        untargeted (FAB is what the margin paper takes); "input_margin", the defaults
        of :func:`robustbook.margins.input_margin`; "recipe", what the other
        experiments of Part VI take; "long", three to five times longer. The excess
        over the smallest bound of all (or over the exact margin, where ``exact``):
        ``excess_mean``, ``excess_q50``, ``excess_q90``, ``excess_max``, counted as 1
        where nothing was found (``failed``); and what comes of it, with 95 %
        intervals: ``tau`` of the logit margin, ``auroc`` and ``robust_accuracy`` at
        ``eps``.

    Notes
    -----
    Margin paper, Appendix B.1, where the check is robust accuracy alone. Chapter 23
    of this book.
    """
    plan = _PLANS[profile]
    rows: list[Row] = []
    for setting in margin_settings(profile):
        models = [model for model in plan.models if model in setting.models]
        for model in tqdm(models, desc="margin_convergence", disable=None):
            data = setting.data(model).subset(slice(plan.images))
            key = {"dataset": setting.dataset, "model": model}
            rows += [
                {**key, **row} for row in _compared(model, data, setting, seed, device)
            ]
    return rows


def data_sums(profile: str) -> dict[str, str]:
    """sha256 of the models and of the images."""
    plan, sums = _PLANS[profile], dict[str, str]()
    for setting in margin_settings(profile):
        models = [model for model in plan.models if model in setting.models]
        sums |= {model: model_sha256(load_model(model)) for model in models}
        if models:
            data = setting.data(models[0]).subset(slice(plan.images))
            sums[f"{setting.dataset} {setting.split}"] = data_sha256(data)
    return sums


def _compared(
    name: str, data: Dataset, setting: MarginSetting, seed: int, device: str
) -> Iterator[Row]:
    model = load_model(name).eval().to(resolve_device(device))
    images, eps = data.images, setting.focus
    recipe = setting.models[name][0]
    searches = {
        "fmn": partial(_one_attack, fmn, model, images),
        "fab": partial(_one_attack, fab, model, images),
        "input_margin": partial(_defaults, model, images, seed),
        "recipe": partial(_searched, model, images, recipe, seed),
        # Other random starts than the recipe's.
        "long": partial(_searched, model, images, LONG, seed + 100),
    }
    shared: dict[str, str | int] = {
        "what": "margin searches",
        "version": SEARCH_VERSION,
        "model": name,
        "model_sha256": model_sha256(model),
        "data_sha256": data_sha256(data),
        "seed": seed,
        "attacks_sha256": code_sha256(["robustbook.attacks"], follow_imports=False),
    }
    options = {"recipe": asdict(recipe), "long": asdict(LONG)}
    found = {
        search: torch.from_numpy(
            cached_arrays(
                {**shared, "search": search, **options.get(search, {})}, compute
            )["bounds"]
        )
        for search, compute in searches.items()
    }
    logits = logits_of(model, images)
    best = torch.stack(list(found.values())).amin(dim=0)
    exact = name == EXACT
    if exact:
        best = linear_margins(model, images)
    scores = logit_margin(logits)
    correct = logits.argmax(dim=1) == data.labels
    for search, bounds in found.items():
        excess = (bounds / best - 1).clamp(max=1.0)
        quantiles = excess.quantile(torch.tensor([0.5, 0.9], dtype=torch.float64))
        yield {
            "search": search,
            "samples": len(images),
            "exact": exact,
            "excess_mean": float(excess.mean()),
            "excess_q50": float(quantiles[0]),
            "excess_q90": float(quantiles[1]),
            "excess_max": float(excess.max()),
            "failed": float(bounds.isinf().double().mean()),
            **tau_row("tau", consistency_of(scores, bounds)),
            "eps": eps,
            **detection_row(scores, bounds, eps),
            **share_row("robust_accuracy", correct & (bounds > eps)),
        }


def _one_attack(attack: object, model: nn.Module, images: Tensor) -> Arrays:
    result = attack(model, images, steps=100, progress=False)  # type: ignore[operator]
    return {"bounds": result.norms.numpy()}


def _defaults(model: nn.Module, images: Tensor, seed: int) -> Arrays:
    result = input_margin(model, images, seed=seed, progress=False)
    return {"bounds": result.margins.numpy()}


def _searched(model: nn.Module, images: Tensor, recipe: Recipe, seed: int) -> Arrays:
    return {"bounds": measure_bounds(model, images, recipe, seed=seed).margins.numpy()}


def linear_margins(model: nn.Module, images: Tensor) -> Tensor:
    """Exact ℓ∞ margins of a linear model on images that stay in [0, 1].

    Parameters
    ----------
    model : torch.nn.Module
        One linear layer on the pixels.
    images : Tensor, shape (N, ...)
        Images in [0, 1].

    Returns
    -------
    Tensor, shape (N,)
        Float64; infinite where no image in [0, 1] is of another class.

    Notes
    -----
    A change of size ε moves the gap of two logits by at most Σ_p |v_p| min(ε, r_p),
    with v the difference of their weights and r_p how far pixel p can go in the
    direction that narrows the gap. The margin is the ε at which this is the gap,
    found by bisection; without bounds on the pixels it is gap / ‖v‖₁.
    """
    weights = linear_head(model)[0].double()
    logits, pixels = logits_of(model, images).double(), images.double().flatten(1)
    top, predicted = logits.max(dim=1)
    gaps = top[:, None] - logits
    steps = weights - weights[predicted][:, None]
    rooms = torch.where(steps > 0, 1 - pixels[:, None], pixels[:, None])
    low, high = torch.zeros_like(gaps), torch.ones_like(gaps)
    for _ in range(60):
        middle = (low + high) / 2
        reached = (steps.abs() * rooms.minimum(middle[..., None])).sum(dim=2) >= gaps
        low, high = (
            torch.where(reached, low, middle),
            torch.where(reached, middle, high),
        )
    reachable = (steps.abs() * rooms).sum(dim=2) >= gaps
    distances = torch.where(reachable, high, torch.inf)
    return distances.scatter(1, predicted[:, None], torch.inf).amin(dim=1)
