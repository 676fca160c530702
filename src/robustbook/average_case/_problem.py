"""The checked model, inputs, labels and sigmas that every estimator starts with."""

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from torch import Tensor

from robustbook._checks import models
from robustbook._checks.arguments import (
    ArrayLike,
    as_real,
    check_count,
    check_labels,
    check_logits,
    check_positive,
)
from robustbook._checks.images import check_inputs
from robustbook.average_case._result import Robustness, make_result

#: Default number of inputs in a batch.
BATCH: Final = 256

#: Streams of random numbers, one for each use.
MEASURE: Final = 0
LINEARIZE: Final = 2
SHIFT: Final = 3
SPLIT: Final = 4
#: Noisy inputs that are drawn from one generator.
BLOCK: Final = 64


@dataclass(frozen=True, eq=False)
class Problem:
    """A model, the inputs to perturb (N, ...), and the classes (N,) to be kept.

    Tensors are on the device of the computation, but for `sigmas`, on the CPU.
    """

    model: models.Model
    inputs: Tensor
    labels: Tensor
    #: (N, K), float64: without noise.
    logits: Tensor
    #: (S,), float64.
    sigmas: Tensor
    #: The same numbers in the shape that the caller gave, () or (S,).
    sigma: Tensor
    #: Inputs in a batch without a gradient.
    batch_size: int
    #: The device of the caller's inputs, to which results return.
    caller_device: torch.device

    def __len__(self) -> int:
        return len(self.inputs)

    @property
    def num_classes(self) -> int:
        """K."""
        return self.logits.shape[1]

    def keeps(self, indices: Tensor, noise: Tensor) -> Tensor:
        """Return whether inputs keep their labels under noise (len(indices), n, D)."""
        rows = indices.to(self.inputs.device)
        shift = noise.reshape(*noise.shape[:2], *self.inputs.shape[1:])
        noisy = (self.inputs[rows][:, None] + shift).flatten(0, 1)
        logits = _logits(self.model, noisy, self.batch_size, "noisy inputs")
        predictions = logits.argmax(dim=1).reshape(noise.shape[:2])
        return predictions == self.labels[rows][:, None]

    def noisy_logits(self, row: int, noise: Tensor) -> Tensor:
        """Return the logits (n, K), float64, of one input under noise (n, D)."""
        noisy = self.inputs[row] + noise.reshape(-1, *self.inputs.shape[1:])
        return _logits(self.model, noisy, self.batch_size, "noisy inputs").double()

    def summarize(
        self, method: str, calls: int | Tensor, **estimates: Tensor
    ) -> Robustness:
        """Return the result (S, N) of an estimator, in the shape that sigma has."""
        size = len(self.sigmas), len(self)
        estimates["calls"] = torch.as_tensor(calls).expand(size).clone()
        return make_result(
            method, self.labels, self.sigma, self.caller_device, **estimates
        )


def set_up(
    model: models.Model,
    images: ArrayLike,
    sigma: ArrayLike | None = None,
    labels: ArrayLike | None = None,
    batch_size: int = BATCH,
    device: str | torch.device | None = None,
    *,
    noisy: bool = True,
) -> Problem:
    """Check everything that can be checked before the work begins.

    The caller must be wrapped in :func:`keeping_generators`, whose frame warnings skip.
    """
    original = check_inputs(images)
    sigmas = check_positives("sigma", sigma) if noisy else torch.ones(0)
    check_count("batch_size", batch_size)
    if labels is not None:
        labels = check_labels("labels", labels, length=len(original))
    models.warn_of_training(model, stacklevel=5)
    place = models.find_device(model, original, device)
    inputs = original.to(place).contiguous()
    logits = _logits(model, inputs, batch_size, "inputs").double()
    check_logits("model's logits", logits)
    _warn(logits)
    classes, flat = labels_or_predictions(labels, logits), sigmas.reshape(-1)
    device = original.device
    return Problem(model, inputs, classes, logits, flat, sigmas, batch_size, device)


def labels_or_predictions(labels: ArrayLike | None, logits: Tensor) -> Tensor:
    """Return the classes whose probability to estimate."""
    if labels is None:
        return logits.argmax(dim=1)
    count, classes = logits.shape
    checked = check_labels("labels", labels, length=count, num_classes=classes)
    return checked.to(logits.device)


@torch.no_grad()
def _logits(model: models.Model, inputs: Tensor, size: int, kind: str) -> Tensor:
    parts = torch.split(inputs, size)
    return torch.cat(
        [models.model_logits(model, part, kind).detach() for part in parts]
    )


def check_positives(name: str, value: ArrayLike | None) -> Tensor:
    """Return one number or several as float64, () or (S,): positive and finite."""
    if value is None or isinstance(value, (bool, str)):
        raise TypeError(f"{name}: expected a positive number or several, got {value!r}")
    numbers = as_real(name, value).cpu()
    if numbers.ndim > 1 or numbers.numel() == 0:
        raise ValueError(
            f"{name}: expected one number or a sequence of them, got shape "
            f"{tuple(numbers.shape)}"
        )
    for number in numbers.reshape(-1).tolist():
        check_positive(name, number)
    return numbers


def _warn(logits: Tensor) -> None:
    """Warn of equal logits."""
    count = int((logits.amax(dim=1) == logits.amin(dim=1)).sum())
    if count:
        warnings.warn(
            f"model: {count} of {len(logits)} inputs have equal logits for all "
            "classes, so their prediction is class 0 by convention only; do not read "
            "their robustness",
            UserWarning,
            stacklevel=5,
        )


def spans(count: int, size: int) -> Iterator[slice]:
    """Yield consecutive slices of at most `size` that cover `count`."""
    for start in range(0, count, size):
        yield slice(start, min(start + size, count))


def draw_normal(
    seed: int, stream: int, keys: Sequence[tuple[int, ...]], count: int, like: Tensor
) -> Tensor:
    """Draw normal numbers (len(keys), count, D), with a generator for each key."""
    size = like[0].numel()
    generator = torch.Generator(device=like.device)
    noise = torch.empty(len(keys), count, size, dtype=like.dtype, device=like.device)
    for row, key in zip(noise, keys, strict=True):
        generator.manual_seed(_number(seed, stream, *key))
        row.normal_(generator=generator)
    return noise


def random_bits(seed: int, stream: int, key: tuple[int, ...], count: int) -> Tensor:
    """Draw numbers of 30 bits (count,), on the CPU."""
    generator = torch.Generator().manual_seed(_number(seed, stream, *key))
    return torch.randint(1 << 30, (count,), generator=generator)


def _number(*key: int) -> int:
    """Return the seed of a generator; different keys give unrelated seeds."""
    return int(np.random.SeedSequence(key).generate_state(1, np.uint64)[0])
