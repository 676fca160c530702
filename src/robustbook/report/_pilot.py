"""How long a report will take: a pilot on a few images.

Each lens measures a stand-in, a linear network, which shows how many passes it makes;
then passes of the model are timed. The forecast takes seconds even for a model that
takes hours to measure.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable
from typing import Final

import torch
from torch import Tensor, nn

from robustbook import _defaults as defaults
from robustbook.lenses import FEWEST, Settings, three_lenses

#: Images of a batch.
BATCH_SIZE: Final = 64
#: A pass is timed on twice as many images until it takes this many seconds.
_ENOUGH: Final = 0.3


def time_lenses(
    model: nn.Module, images: Tensor, settings: Settings, lenses: Iterable[str]
) -> dict[str, float]:
    """Return the seconds of each lens for one image; the images are on the device."""

    def gradient(count: int) -> int:
        inputs = images[:count].clone().requires_grad_()
        logits = model(inputs.clone())
        torch.autograd.grad(logits.sum(), inputs)[0].sum().item()
        return logits.shape[1]

    def evaluation(count: int) -> None:
        with torch.no_grad():
            model(images[:count].clone()).sum().item()  # .item() waits for the device

    classes, pixels = gradient(1), images[:FEWEST].float().cpu()
    stand_in = nn.Sequential(nn.Flatten(), nn.Linear(pixels[0].numel(), classes)).eval()
    forward, backward = (time_pass(p, len(images)) for p in (evaluation, gradient))
    times = {}
    for lens in lenses:
        options = vars(settings) | {"skip": {*defaults.LENSES} - {lens}}
        with warnings.catch_warnings(action="ignore"):
            measured = three_lenses(
                stand_in, pixels, margin_images=2, progress=False, **options
            )
        costs = measured.passes.values()
        gradients = sum(cost.backward for cost in costs)
        evaluations = sum(cost.forward for cost in costs) - gradients
        times[lens] = evaluations * forward + gradients * backward
    return times


def time_pass(run: Callable[[int], object], available: int) -> float:
    """Return the seconds of a pass for one image of a batch."""
    count = 1
    while True:
        start = time.perf_counter()
        run(count)
        seconds = time.perf_counter() - start
        if seconds > _ENOUGH or 2 * count > min(available, BATCH_SIZE):
            return seconds / count
        count *= 2


def lens_seconds(
    times: dict[str, float], images: int, margin_images: int
) -> dict[str, float]:
    """Return the seconds of each lens on a number of images and of input margins."""
    counts = dict.fromkeys(times, images) | {"margins": margin_images}
    return {lens: seconds * counts[lens] for lens, seconds in times.items()}


def largest_draw(
    times: dict[str, float], available: int, margin_images: int, seconds: float
) -> tuple[int, int] | None:
    """Return how many images and input margins fit into the time; None if too few.

    Where not all images fit, half of them have their input margins measured at most.
    """
    for count in range(available, FEWEST - 1, -1):
        most = count if count == available else count // 2
        margins = min(margin_images, most)
        if sum(lens_seconds(times, count, margins).values()) <= seconds:
            return count, margins
    return None


def in_words(seconds: float) -> str:
    """Return a duration as people write it: "8 s", "12 min", "4.1 h"."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
