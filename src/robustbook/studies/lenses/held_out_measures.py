"""Average case and margins of networks on images that none of them has seen."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from torch import Tensor

from robustbook.average_case import mmse, monte_carlo, taylor
from robustbook.margins import logit_margin, margin_consistency
from robustbook.models import logits_of
from robustbook.studies._statistics import mean_row
from robustbook.studies.lenses.held_out import STRIDED
from robustbook.studies.margins.columns import exact_share, tau_row
from robustbook.studies.margins.search import Recipe, measure_bounds
from robustbook.studies.run import Row, Run, Setting


@dataclass(frozen=True, kw_only=True)
class MeasuresSetting(Setting):
    """Networks and the first `samples` images; sizes in [0, 1] pixel units."""

    sigmas: tuple[float, ...]
    draws: int
    #: Images, and networks, whose input margins are looked for; the bound.
    searched: int
    margins: tuple[str, ...]
    recipe: Recipe
    eps: float


SETTINGS: Final = {
    "quick": (
        MeasuresSetting(
            dataset="digits", models=("digits-cnn-s0", "digits-cnn-grad1e-1-s0"),
            samples=40, sigmas=(0.2,), draws=500, searched=40,
            margins=("digits-cnn-s0",), recipe=Recipe(rounds=0, steps=10), eps=0.1,
        ),
    ),
    "full": (
        MeasuresSetting(
            dataset="cifar10", split="held_out",
            models=(
                *(f"cifar10-strided{kind}-s{k}" for kind in STRIDED for k in (0, 1)),
                "cifar10-strided-adv-s0", "cifar10-blocks-s0", "cifar10-blocks-adv-s0",
            ),
            samples=100, sigmas=(0.05, 0.1), draws=1000, searched=300,
            margins=(
                "cifar10-strided-adv-s0", "cifar10-blocks-s0", "cifar10-blocks-adv-s0",
            ),
            recipe=Recipe(targets=3, steps=10, refine_steps=50, rounds=1), eps=8 / 255,
        ),
    ),
}  # fmt: skip


def measure(run: Run[MeasuresSetting], model: str) -> Iterator[Row]:
    """Measure a network.

    ``what="average case"``: at each ``sigma``, the mean probability that an answer
    survives noise (``counted``), and by how much estimates of it are off on average, in
    absolute value: ``mmse`` and ``taylor`` (linearizations) and ``softmax`` (the
    largest probability), each with its standard error over images. ``what="margins"``:
    ``tau``, how well the logit margin orders the input margins of the ``images``, and
    the share of images that are right and keep their answer within ``eps``,
    ``robust_accuracy``, both with 95 % intervals. Average-case paper, Figures 3 and 9;
    margin paper, Table 1.
    """
    setting, network = run.setting, run.model(model)
    keys = {"dataset": setting.dataset, "model": model}
    images, how = run.data.images, dict[str, Any](seed=run.seed)
    counted = monte_carlo(network, images, setting.sigmas, samples=setting.draws, **how)
    largest = logits_of(network, images).double().softmax(1).amax(1)
    for place, sigma in enumerate(setting.sigmas):
        kept = counted.probability[place].cpu().double()
        estimates: dict[str, Tensor] = {
            "mmse": mmse(network, images, sigma, **how).probability,
            "taylor": taylor(network, images, sigma, **how).probability,
            "softmax": largest,
        }
        row = mean_row("counted", kept.numpy())
        for name, values in estimates.items():
            off = (values.cpu().double().flatten() - kept).abs()
            row |= mean_row(name, off.numpy())
        yield {"what": "average case", **keys, "sigma": sigma, **row}
    if model in setting.margins:
        data = replace(setting, samples=setting.searched).data()
        bounds, _ = measure_bounds(network, data.images, setting.recipe, **how)
        logits = logits_of(network, data.images)
        order = margin_consistency(logit_margin(logits), bounds)
        robust = (logits.argmax(1) == data.labels) & (bounds > setting.eps)
        yield {
            "what": "margins", **keys, "images": len(data), "eps": setting.eps,
            **tau_row("tau", order), **exact_share("robust_accuracy", robust),
        }  # fmt: skip
