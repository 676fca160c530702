"""What every estimator starts with: a checked model, inputs, labels and sigmas."""

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from robustbook._checks import models
from robustbook._checks.arguments import (
    as_real,
    check_count,
    check_labels,
    check_logits,
    check_positive,
)
from robustbook._checks.images import check_inputs
from robustbook.average_case._result import Robustness, make_result

#: Inputs at once, by default.
BATCH: Final = 256

#: Instead of sigma, where no noise is wanted.
NO_NOISE: Final = object()
#: What the noise is for: no two uses share it.
MEASURE: Final = 0
PILOT: Final = 1
LINEARIZE: Final = 2
SHIFT: Final = 3
#: Noisy inputs that are drawn from one generator.
BLOCK: Final = 64


@dataclass(frozen=True, eq=False)
class Problem:
    """A model, the inputs to perturb (N, ...), and the classes (N,) to be kept.

    On the device of the computation, which need not be the caller's, `home`; `sigmas`,
    float64 (S,), on the CPU, and `sigma` as it was given.
    """

    model: models.Model
    inputs: Tensor
    labels: Tensor
    #: (N, K), float64: without noise.
    logits: Tensor
    sigmas: Tensor
    sigma: Tensor
    #: Inputs at once without a gradient.
    batch_size: int
    home: torch.device

    def __len__(self) -> int:
        return len(self.inputs)

    @property
    def num_classes(self) -> int:
        """K."""
        return self.logits.shape[1]

    @property
    def num_pixels(self) -> int:
        """D, the number of coordinates of one input."""
        return self.inputs[0].numel()

    def keeps(self, images: Tensor, noise: Tensor) -> Tensor:
        """Whether the inputs `images` keep the label under noise (units, n, D)."""
        where = images.to(self.inputs.device)
        shift = noise.reshape(*noise.shape[:2], *self.inputs.shape[1:])
        noisy = self.inputs[where][:, None] + shift
        predictions = self.predict(noisy.flatten(0, 1)).reshape(noise.shape[:2])
        return predictions == self.labels[where][:, None]

    def predict(self, inputs: Tensor) -> Tensor:
        """Predictions on noisy inputs, in batches."""
        logits = _logits(self.model, inputs, self.batch_size, "noisy inputs")
        return logits.argmax(dim=1)

    def summarize(
        self, method: str, calls: int | Tensor, **estimates: Tensor
    ) -> Robustness:
        """The result (S, N) of an estimator, as the caller asked for it."""
        calls = torch.zeros(len(self.sigmas), len(self), dtype=torch.int64) + calls
        return make_result(
            method, self.labels, self.sigma, self.home, calls=calls, **estimates
        )


def set_up(
    model: models.Model,
    x: Any,
    sigma: Any = NO_NOISE,
    label: Any = None,
    batch_size: int = BATCH,
    device: str | torch.device | None = None,
) -> Problem:
    """Check everything that can be checked before the work begins.

    Its caller is to stand in :func:`keeping_generators`: warnings count that frame.
    """
    models.check_model(model)
    original = check_inputs("x", x)
    sigmas = torch.ones(0) if sigma is NO_NOISE else check_positives("sigma", sigma)
    check_count("batch_size", batch_size)
    if label is not None:
        label = check_labels("label", label, length=len(original))
    models.warn_of_training(model, stacklevel=5)
    place = models.find_device(model, original, device)
    inputs = original.to(place).contiguous()
    logits = _logits(model, inputs, batch_size, "inputs").double()
    check_logits("model's logits", logits)
    _warn(logits, inputs, sigmas)
    labels = labels_or_predictions(label, logits)
    flat, home = sigmas.reshape(-1), original.device
    return Problem(model, inputs, labels, logits, flat, sigmas, batch_size, home)


def labels_or_predictions(label: Any, logits: Tensor) -> Tensor:
    """The classes whose probability to estimate."""
    if label is None:
        return logits.argmax(dim=1)
    count, classes = logits.shape
    checked = check_labels("label", label, length=count, num_classes=classes)
    return checked.to(logits.device)


@torch.no_grad()
def _logits(model: models.Model, inputs: Tensor, size: int, kind: str) -> Tensor:
    parts = torch.split(inputs, size)
    return torch.cat(
        [models.model_logits(model, part, kind).detach() for part in parts]
    )


def check_positives(name: str, value: Any) -> Tensor:
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


def _warn(logits: Tensor, inputs: Tensor, sigmas: Tensor) -> None:
    """Warn of logits that tell no classes apart, and of noise lost in rounding."""
    count = int((logits.amax(dim=1) == logits.amin(dim=1)).sum())
    if count:
        warnings.warn(
            f"model: {count} of {len(logits)} inputs have equal logits for all "
            "classes, so their prediction is class 0 by convention only; do not read "
            "their robustness",
            UserWarning,
            stacklevel=5,
        )
    finest = float(torch.finfo(inputs.dtype).eps * inputs.abs().max())
    if sigmas.numel() and float(sigmas.min()) < 16 * finest:
        warnings.warn(
            f"sigma: {float(sigmas.min()):g} is not much more than the rounding of "
            f"{inputs.dtype} inputs of this size, {finest:.1g}; what is drawn at "
            "random is then wrong. Compute in float64",
            UserWarning,
            stacklevel=5,
        )


def spans(count: int, size: int) -> Iterator[slice]:
    """Consecutive slices of at most `size` that cover `count`."""
    for start in range(0, count, size):
        yield slice(start, min(start + size, count))


def draw_normal(
    seed: int, stream: int, keys: Sequence[tuple[int, ...]], count: int, like: Tensor
) -> Tensor:
    """Normal numbers (len(keys), count, D) like inputs, from one generator a key."""
    size = like[0].numel()
    generator = torch.Generator(device=like.device)
    noise = torch.empty(len(keys), count, size, dtype=like.dtype, device=like.device)
    for row, key in zip(noise, keys, strict=True):
        generator.manual_seed(_number(seed, stream, *key))
        row.normal_(generator=generator)
    return noise


def random_bits(seed: int, stream: int, key: tuple[int, ...], count: int) -> Tensor:
    """Numbers of 30 bits (count,), on the CPU."""
    generator = torch.Generator().manual_seed(_number(seed, stream, *key))
    return torch.randint(1 << 30, (count,), generator=generator)


def _number(*key: int) -> int:
    """A seed for a generator: keys that differ give seeds that do not go together."""
    return int(np.random.SeedSequence(key).generate_state(1, np.uint64)[0])
