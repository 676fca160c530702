"""How long a report will take: a pilot on a few images.

Each lens measures a stand-in, a linear network, which shows how many passes it makes
and how long everything else takes; then passes of the model are timed. The forecast
takes seconds even for a model that takes hours to measure.
"""

from __future__ import annotations

import math
import time
import warnings
from bisect import bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor, nn

from robustbook import _defaults as defaults
from robustbook.lenses import Settings, measure_lenses

#: Images that are timed: the larger number only if the smaller takes at most
#: `_PATIENCE` seconds.
_SMALL: Final = 2
_LARGE: Final = 8
_PATIENCE: Final = 3.0
#: A batch takes at most this many seconds: an interruption loses no more.
_BATCH_SECONDS: Final = 30.0
_BATCH_SIZES: Final = (256, 128, 64, 32, 16, 8, 4, 2)

#: Seconds of a batch, whatever its size, and of each image in it.
Times = tuple[float, float]


def time_lenses(
    model: nn.Module, images: Tensor, settings: Settings, lenses: Iterable[str]
) -> dict[str, Times]:
    """Return the times of each lens; the images are where the model is."""

    def differentiate(count: int) -> int:
        inputs = images[:count].clone().requires_grad_()
        logits = model(inputs.clone())
        (gradient,) = torch.autograd.grad(logits.sum(), inputs)
        gradient.sum().item()  # waits for the device
        return logits.shape[1]

    def evaluate(count: int) -> None:
        with torch.no_grad():
            model(images[:count].clone()).sum().item()

    forward, gradient = (
        time_runs(run, len(images)) for run in (evaluate, differentiate)
    )
    stand_in = nn.Sequential(
        nn.Flatten(), nn.Linear(images[0].numel(), differentiate(1))
    ).eval()
    pixels, times = images[:_SMALL].float().cpu(), {}
    for lens in lenses:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for _ in range(2):  # the first run imports and allocates
                start = time.perf_counter()
                measured = measure_lenses(
                    stand_in,
                    pixels,
                    None,
                    settings,
                    skip=tuple({*defaults.LENSES} - {lens}),
                    margin_images=_SMALL,
                    batch_size=_SMALL,
                )
                everything_else = time.perf_counter() - start
        backward = sum(cost.backward for cost in measured.passes.values())
        without = sum(cost.forward for cost in measured.passes.values()) - backward
        times[lens] = (
            everything_else + without * forward[0] + backward * gradient[0],
            without * forward[1] + backward * gradient[1],
        )
    return times


def time_runs(run: Callable[[int], object], available: int) -> Times:
    """Time what `run` does with a number of images."""

    def seconds(count: int) -> float:
        start = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            run(count)
        return time.perf_counter() - start

    small, large = min(_SMALL, available), min(_LARGE, available)
    # The first run is slower than others, for it imports and allocates.
    first = seconds(small)
    if first > _PATIENCE or large == small:
        return 0.0, first / small
    few, many = (min(seconds(count) for _ in range(2)) for count in (small, large))
    image = max((many - few) / (large - small), 0.02 * many / large)
    return max(0.0, few - small * image), image


@dataclass(frozen=True)
class Forecast:
    """Seconds of a report on so many images.

    Attributes
    ----------
    times : dict of str to (float, float)
        For each lens, the seconds of a batch and of each image in it.
    images, margin_images : int
        How many images are measured at most, and how many of them have their input
        margins measured.
    """

    times: dict[str, Times]
    images: int
    margin_images: int

    def seconds(self, images: int | None = None) -> dict[str, float]:
        """Return the seconds of each lens on a number of images."""
        images = images or self.images
        counts = dict.fromkeys(self.times, images)
        if "margins" in counts:
            counts["margins"] = self.margins_of(images)
        return {
            lens: math.ceil(counts[lens] / self.batch_size) * batch + counts[lens] * one
            for lens, (batch, one) in self.times.items()
        }

    def margins_of(self, images: int) -> int:
        """Return how many of the images have margins measured: half of them at most.

        If all images fit, it is as many as were asked for.
        """
        if images == self.images:
            return min(self.margin_images, images)
        return min(self.margin_images, max(2, images // 2))

    @property
    def batch_size(self) -> int:
        """The images of a batch, a power of two."""
        for size in _BATCH_SIZES:
            if all(b + size * one <= _BATCH_SECONDS for b, one in self.times.values()):
                return size
        return 1

    def fitting(self, seconds: float, *, fewest: int) -> int | None:
        """Return how many images can be measured in the time; None if too few."""
        sizes = range(fewest, self.images + 1)
        fits = bisect_right(sizes, seconds, key=lambda n: sum(self.seconds(n).values()))
        return sizes[fits - 1] if fits else None


def in_words(seconds: float) -> str:
    """Return a duration as people write it: "8 s", "12 min", "4.1 h"."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
