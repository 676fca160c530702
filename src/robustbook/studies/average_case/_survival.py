"""Which predictions survive noise, and their scores without noise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from robustbook._store.cache import Arrays
from robustbook.average_case import mmse
from robustbook.average_case.parts import (
    linear_probability,
    linearize,
    set_up,
    softmax_proxy,
)
from robustbook.datasets import Dataset
from robustbook.models import logits_of
from robustbook.studies._statistics import Integers, Values

#: Points of each scramble of the integration.
POINTS: Final = 256
#: Noisy images at once.
_CHUNK: Final = 20_000


@dataclass(frozen=True, eq=False)
class Survival:
    """Predictions of a model that survive noise, and its scores without noise.

    There are N images, `draws` noisy copies of each, and S strengths of noise in pixel
    units, the last of which is in focus. The arrays are: ``logits`` (N, K); ``counts``
    (S, N, K), how many noisy copies are predicted as each class, and ``first``, those
    among the first half of the copies; ``taylor`` and with fits ``mmse`` (S, N);
    ``softmax`` (N,), the probability of the prediction; ``ratio`` (N,), the smallest
    ratio of a margin to the norm of its gradient.
    """

    data: Dataset
    sigmas: tuple[float, ...]
    draws: int
    seed: int
    arrays: Arrays

    @cached_property
    def labels(self) -> Integers:
        """True classes: (N,)."""
        return self.data.labels.numpy()

    @cached_property
    def predicted(self) -> Integers:
        """Predictions without noise: (N,)."""
        return np.asarray(self.arrays["logits"].argmax(1))

    @cached_property
    def right(self) -> npt.NDArray[np.bool_]:
        """Whether they are right: (N,)."""
        return self.predicted == self.labels

    @cached_property
    def shares(self) -> Values:
        """Share of the noisy copies that are predicted as each class: (S, N, K)."""
        return np.asarray(self.arrays["counts"] / self.draws)

    @cached_property
    def kept_share(self) -> Values:
        """Share of the noisy copies that keep the prediction: (S, N)."""
        return self.shares[:, np.arange(len(self.labels)), self.predicted]

    @cached_property
    def halves(self) -> tuple[Values, Values]:
        """The same among either half of the copies, at the noise in focus: (N,)."""
        index = np.arange(len(self.labels))
        counts = self.arrays["first"][-1, index, self.predicted]
        first: Values = counts / (self.draws // 2)
        return first, 2 * self.kept_share[-1] - first


def measure_survival(
    model: nn.Module,
    data: Dataset,
    *,
    sigmas: tuple[float, ...],
    draws: int,
    fits: int,
    seed: int,
) -> Survival:
    """Measure all that needs the model."""
    images = data.images
    problem = set_up(model, images, sigmas)
    probability, ratio = [], []
    for part in linearize(problem):
        linear = linear_probability(
            part.margins, part.gram, problem.sigmas, seed=seed, points=POINTS
        )
        probability.append(linear.probability.cpu())
        norms = part.gram.diagonal(dim1=1, dim2=2).sqrt()
        ratio.append((part.margins / norms.clamp(min=1e-300)).amin(1).cpu())
    # One half of the noise ranks the images, and the other half measures them: images
    # that are ranked high by chance must not be measured by the same noise.
    first, second = (
        noisy_predictions(model, images, sigmas, draws // 2, seed=2 * seed + half)
        for half in (0, 1)
    )
    arrays: Arrays = {
        "logits": logits_of(model, images).cpu().numpy(),
        "first": first,
        "counts": first + second,
        "taylor": torch.cat(probability, dim=1).numpy(),
        "softmax": softmax_proxy(model, images).cpu().numpy(),
        "ratio": torch.cat(ratio).numpy(),
    }
    if fits:
        fitted = mmse(model, images, sigmas, samples=fits, points=POINTS, seed=seed)
        arrays["mmse"] = fitted.probability.cpu().numpy()
    return Survival(data, sigmas, draws, seed, arrays)


def noisy_predictions(
    model: nn.Module, images: Tensor, sigmas: Sequence[float], draws: int, *, seed: int
) -> Integers:
    """Count how often each image is predicted as each class under noise: (S, N, K).

    :func:`robustbook.average_case.monte_carlo` counts one class only. One noise serves
    all strengths, scaled.
    """
    generator = torch.Generator().manual_seed(seed)
    at_once = max(1, _CHUNK // draws)
    parts = []
    for first in range(0, len(images), at_once):
        part = images[first : first + at_once]
        shape = (len(part), draws, *images.shape[1:])
        noise = torch.randn(shape, generator=generator)
        counts = []
        for sigma in sigmas:
            logits = logits_of(model, (part[:, None] + sigma * noise).flatten(0, 1))
            predicted = nn.functional.one_hot(logits.argmax(1), logits.shape[1])
            counts.append(predicted.reshape(len(part), draws, -1).sum(1))
        parts.append(torch.stack(counts))
    return torch.cat(parts, dim=1).numpy().astype(np.int64)
