"""How long a report will take: a pilot on a few images.

Each lens measures a stand-in, a linear network, which shows how many passes it makes;
then passes of the model are timed. The forecast takes seconds even for a model that
takes hours to measure.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Final

import torch
from torch import Tensor, nn

from robustbook import _defaults as defaults
from robustbook.lenses import Settings, measure_lenses

#: A pass is timed on twice as many images until it takes this many seconds.
_ENOUGH: Final = 0.3
#: A batch takes at most this many seconds: an interruption loses no more.
_BATCH_SECONDS: Final = 30.0
_LARGEST_BATCH: Final = 256


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

    classes, pixels = gradient(1), images[:2].float().cpu()
    stand_in = nn.Sequential(nn.Flatten(), nn.Linear(pixels[0].numel(), classes)).eval()
    forward, backward = (time_pass(p, len(images)) for p in (evaluation, gradient))
    times = {}
    measure = partial(measure_lenses, margin_images=2, batch_size=2)
    for lens in lenses:
        skip = tuple({*defaults.LENSES} - {lens})
        with warnings.catch_warnings(action="ignore"):
            measured = measure(stand_in, pixels, None, settings, skip=skip)
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
        if seconds > _ENOUGH or 2 * count > min(available, _LARGEST_BATCH):
            return seconds / count
        count *= 2


@dataclass(frozen=True)
class Forecast:
    """How long a report takes, on at most so many images.

    `times` are the seconds of each lens for one image; margins are measured on at most
    `margin_images` of the images.
    """

    times: dict[str, float]
    images: int
    margin_images: int

    def seconds(self, images: int) -> dict[str, float]:
        """Return the seconds of each lens on a number of images."""
        counts = dict.fromkeys(self.times, images) | {"margins": self.margins(images)}
        return {lens: one * counts[lens] for lens, one in self.times.items()}

    def margins(self, images: int) -> int:
        """Return how many of the images have margins measured: half of some, or all."""
        half = images if images == self.images else max(2, images // 2)
        return min(self.margin_images, half)

    @property
    def batch_size(self) -> int:
        """The images of a batch, a power of two."""
        fitting = int(_BATCH_SECONDS / max(*self.times.values(), 1e-9))
        return min(_LARGEST_BATCH, 1 << max(0, fitting.bit_length() - 1))

    def fitting(self, seconds: float, *, fewest: int) -> int | None:
        """Return how many images can be measured in the time; None if too few."""
        sizes = range(self.images, fewest - 1, -1)
        return next(
            (n for n in sizes if sum(self.seconds(n).values()) <= seconds), None
        )


def in_words(seconds: float) -> str:
    """Return a duration as people write it: "8 s", "12 min", "4.1 h"."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
