"""How far the measured margins are above those of a much longer search."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import torch
from torch import Tensor, nn

from robustbook.attacks import fab, fmn
from robustbook.margins import input_margin, logit_margin
from robustbook.models import logits_of
from robustbook.studies.margins.columns import exact_share, tau_row
from robustbook.studies.margins.measured import linear_head
from robustbook.studies.margins.search import Recipe, measure_bounds
from robustbook.studies.margins.settings import SETTINGS as ALL
from robustbook.studies.margins.settings import MarginSetting
from robustbook.studies.run import Row, Run

#: The references with which the bounds are compared.
LONG: Final = {
    "quick": Recipe(targets=4, steps=20, refine_steps=60, rounds=4, apgd_steps=20),
    "full": Recipe(targets=4, steps=40, refine_steps=150, rounds=8, apgd_steps=30),
}
#: The model whose margins are known.
EXACT: Final = "digits-linear-s0"
#: Images of each network.
IMAGES: Final = {"quick": 20, "full": 100}
_COMPARED: Final = {
    "quick": (EXACT, "digits-cnn-adv-s0"),
    "full": (
        *("cifar10-cnn_a_adv4", "cifar10-resnet4b_adv"),
        *("mnist-cnn_a_adv", "mnist-kw", "mnist-madry_tiny_adv"),
    ),
}
SETTINGS: Final = {
    profile: tuple(setting.only(*names) for setting in ALL[profile])
    for profile, names in _COMPARED.items()
}


def measure(run: Run[MarginSetting], model: str) -> Iterator[Row]:
    """Compare searches for the input margin, from a single attack to a long one.

    One row for each model and ``search``: "fmn" and "fab", 100 steps and untargeted
    (FAB is what the margin paper takes); "input_margin", the defaults of
    :func:`robustbook.margins.input_margin`; "recipe", what the other studies of Part V
    take; "long", three to five times longer. The excess over the smallest bound of all
    (or over the exact margin, where ``exact``): ``excess_mean``, ``excess_q50``,
    ``excess_max``, counted as 1 where nothing was found (``failed``); and what comes of
    it, with 95 % intervals: ``tau`` of the logit margin, and ``robust_accuracy`` at
    ``eps``.

    Margin paper, Appendix B.1, where the check is robust accuracy alone. Chapter 22 of
    this book. The quick profile has a linear model whose margins are known.
    """
    setting, (recipe, count) = run.setting, run.setting.models[model]
    data = run.data.subset(slice(min(count, IMAGES[run.profile])))
    network, images, seed = run.model(model), data.images, run.seed
    quiet: Any = {"progress": False}
    bounds_by = {
        "fmn": fmn(network, images, steps=100, **quiet).norms,
        "fab": fab(network, images, steps=100, **quiet).norms,
        "input_margin": input_margin(network, images, seed=seed, **quiet).margins,
        "recipe": measure_bounds(network, images, recipe, seed=seed)[0],
        # Other random starts than the recipe's.
        "long": measure_bounds(network, images, LONG[run.profile], seed=seed + 100)[0],
    }
    logits, exact = logits_of(network, images), model == EXACT
    best = torch.stack(list(bounds_by.values())).amin(dim=0)
    if exact:
        best = linear_margins(network, images)
    correct = logits.argmax(dim=1) == data.labels
    for search, bounds in bounds_by.items():
        excess = (bounds / best - 1).clamp(max=1.0)
        yield {
            "dataset": setting.dataset,
            "model": model,
            "search": search,
            "samples": len(images),
            "exact": exact,
            "excess_mean": float(excess.mean()),
            "excess_max": float(excess.max()),
            "excess_q50": float(excess.quantile(0.5)),
            "failed": float(bounds.isinf().double().mean()),
            **tau_row("tau", logit_margin(logits), bounds),
            "eps": setting.focus,
            **exact_share("robust_accuracy", correct & (bounds > setting.focus)),
        }


def linear_margins(model: nn.Module, images: Tensor) -> Tensor:
    """Exact ℓ∞ margins (N,) of a linear model on images that stay in [0, 1].

    A change of size ε moves the gap of two logits by at most Σ_p |v_p| min(ε, r_p),
    with v the difference of their weights and r_p how far pixel p can go in the
    direction that narrows the gap. The margin is the ε at which this is the gap, found
    by bisection; without bounds on the pixels it is gap / ‖v‖₁. Infinite where no image
    in [0, 1] is of another class.
    """
    weights = linear_head(model)[0].double().cpu()
    logits, pixels = logits_of(model, images).double(), images.double().flatten(1)
    top, predicted = logits.max(dim=1)
    gaps = top[:, None] - logits
    steps = weights - weights[predicted][:, None]
    rooms = torch.where(steps > 0, 1 - pixels[:, None], pixels[:, None])
    low, high = torch.zeros_like(gaps), torch.ones_like(gaps)
    for _ in range(60):
        middle = (low + high) / 2
        reached = (steps.abs() * rooms.minimum(middle[..., None])).sum(dim=2) >= gaps
        low = torch.where(reached, low, middle)
        high = torch.where(reached, middle, high)
    reachable = (steps.abs() * rooms).sum(dim=2) >= gaps
    distances = torch.where(reachable, high, torch.inf)
    return distances.scatter(1, predicted[:, None], torch.inf).amin(dim=1)
