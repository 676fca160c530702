"""How long a report will take: a few timed passes, and how many of them it needs."""

from __future__ import annotations

import math
import time
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import median
from typing import Final

import torch
from torch import Tensor, nn

from robustbook.corruptions import CORRUPTIONS, corrupt

#: Seconds of a part: so much is lost by an interruption, and so often the bar moves.
_PART: Final = 30.0
_PARTS: Final = (256, 128, 64, 32, 16, 8, 4, 2)
#: Images in the larger batch that is timed, unless the first takes longer than this;
#: and passes of each size, unless they do.
_BATCH: Final = 16
_PATIENCE: Final = 2.0
_PASSES: Final = 7
#: Draws and library code around each pass of an attack, in seconds.
_AROUND: Final = 5e-4


@dataclass(frozen=True)
class Pace:
    """Seconds of a pass, for a batch and for each image in it, and of a corruption.

    The slowest pass took so many times as long.
    """

    forward: tuple[float, float]
    gradient: tuple[float, float]
    corruption: float
    slowest: float = 1.0


@dataclass(frozen=True)
class Forecast:
    """What a report costs; the passes are those that the lenses count themselves."""

    pace: Pace
    classes: int
    images: int
    margin_images: int
    attack_steps: int
    noise_samples: int
    skip: tuple[str, ...]

    def seconds(self, part: int | None = None) -> dict[str, float]:
        """Seconds of each lens, in parts of so many images."""
        part = part or self.part
        steps, count = self.attack_steps, self.images
        margins = min(self.margin_images, count)
        forward, gradient = self._margin_passes()
        copies = 64 * math.ceil(self.noise_samples / 64) + 4
        lenses = {
            "agreement": self._passes(3, steps, count, part)
            + (len(CORRUPTIONS) + 1) * self._passes(1, 0, count, part)
            + len(CORRUPTIONS) * count * self.pace.corruption,
            "average-case": self._passes(1, 0, count * copies, 1024),
            "margins": self._passes(forward - gradient, gradient, margins, part),
        }
        return {name: s for name, s in lenses.items() if name not in self.skip}

    @property
    def part(self) -> int:
        """Images of a part: as many as take half a minute, in a power of two."""
        for size in _PARTS:
            one = replace(self, images=size, margin_images=size)
            if max(one.seconds(size).values()) <= _PART:
                return size
        return 1

    def total(self) -> float:
        return sum(self.seconds().values())

    def within(self, seconds: float, *, fewest: int) -> Forecast | None:
        """The same with as many images as fit, and half of them measured; or None."""
        sizes = range(fewest, self.images + 1)
        fits = bisect_right(sizes, seconds, key=lambda count: self.of(count).total())
        return self.of(sizes[fits - 1]) if fits else None

    def of(self, images: int) -> Forecast:
        """The same of so many images, of which half at most have margins measured."""
        margins = min(self.margin_images, max(2, images // 2))
        return replace(self, images=images, margin_images=margins)

    def _passes(self, forward: float, gradient: float, count: int, part: int) -> float:
        batches = math.ceil(count / part)
        seconds = batches * (forward + gradient) * _AROUND * (gradient > 0)
        paces = self.pace.forward, self.pace.gradient
        for passes, (batch, image) in zip((forward, gradient), paces, strict=True):
            seconds += passes * (batches * batch + count * image)
        return seconds

    def _margin_passes(self) -> tuple[int, int]:
        """Evaluations, and those with a gradient, of the search for one margin."""
        targets = min(3, self.classes - 1)
        return 141 + 68 * targets, 97 + 41 * targets + min(20, self.classes)


def measure_pace(model: nn.Module, images: Tensor, *, severity: int) -> Pace:
    """Time one small batch of each kind of pass; the images are where the model is."""

    def evaluate(batch: Tensor) -> None:
        with torch.no_grad():
            model(batch.clone()).sum().item()

    def differentiate(batch: Tensor) -> None:
        inputs = batch.clone().requires_grad_()
        logits = model(inputs.clone())
        torch.autograd.grad(logits.sum(), inputs)[0].sum().item()

    start = time.perf_counter()
    for kind in CORRUPTIONS:
        corrupt(images[:2].cpu(), kind, severity=severity)
    corruption = (time.perf_counter() - start) / (2 * len(CORRUPTIONS))
    forward, slow = _rate(evaluate, images)
    gradient, slower = _rate(differentiate, images)
    return Pace(forward, gradient, corruption, max(slow, slower))


def _rate(
    run: Callable[[Tensor], None], images: Tensor
) -> tuple[tuple[float, float], float]:
    """Seconds of a batch and of an image: a line through one image and several.

    Passes wait for other programs, now and then, so each time is the median of some;
    by how much the slowest exceeds it comes second.
    """

    def seconds(count: int) -> list[float]:
        times: list[float] = []
        while len(times) < _PASSES and sum(times) < _PATIENCE:
            start = time.perf_counter()
            run(images[:count])
            times.append(time.perf_counter() - start)
        return times

    run(images[:1])  # the first pass is not like the others
    times = seconds(1)
    single, count = median(times), min(_BATCH, len(images))
    if count < 2 or single > _PATIENCE:
        return (0.0, single), max(times) / single
    times = seconds(count)
    several = median(times)
    image = max((several - single) / (count - 1), 0.02 * several / count)
    return (max(0.0, single - image), image), max(times) / several


def in_words(seconds: float) -> str:
    """A duration as people say it: "8 s", "12 min", "4.1 h"."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
