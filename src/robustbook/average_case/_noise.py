"""Gaussian noise that depends on the seed and the input, not on the batches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import torch
from torch import Tensor

#: What the noise is for: no two uses share it.
MEASURE: Final = 0
PILOT: Final = 1
LINEARIZE: Final = 2
SHIFT: Final = 3
#: Noisy inputs that are drawn from one generator.
BLOCK: Final = 64


def draw_normal(
    seed: int, stream: int, keys: Sequence[tuple[int, ...]], count: int, like: Tensor
) -> Tensor:
    """Standard normal numbers (len(keys), count, D), one generator for each key.

    `like` is a batch of inputs: it gives the size, the device and the type.
    """
    size = like[0].numel()
    generator = torch.Generator(device=like.device)
    noise = torch.empty(len(keys), count, size, dtype=like.dtype, device=like.device)
    for row, key in zip(noise, keys, strict=True):
        generator.manual_seed(_number(seed, stream, *key))
        row.normal_(generator=generator)
    return noise


def input_noise(
    seed: int, stream: int, rows: slice, samples: int, inputs: Tensor
) -> Tensor:
    """Standard normal noise (n, samples, ...) for a slice of the inputs."""
    keys = [(index,) for index in range(rows.start, rows.stop)]
    noise = draw_normal(seed, stream, keys, samples, inputs)
    return noise.reshape(len(keys), samples, *inputs.shape[1:])


def random_bits(seed: int, stream: int, key: tuple[int, ...], count: int) -> Tensor:
    """Numbers of 30 bits (count,), on the CPU."""
    generator = torch.Generator().manual_seed(_number(seed, stream, *key))
    return torch.randint(1 << 30, (count,), generator=generator)


def _number(*key: int) -> int:
    """A seed for a generator: keys that differ give seeds that do not go together."""
    return int(np.random.SeedSequence(key).generate_state(1, np.uint64)[0])
