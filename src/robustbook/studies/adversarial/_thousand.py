"""Logits of pictures of a thousand classes under a shift, which the cache keeps."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from robustbook.attacks import apgd
from robustbook.datasets import Dataset
from robustbook.models import logits_of
from robustbook.training import add_gaussian_noise

#: Batch size.
BATCH = 10
#: A kind of shift, its size, and the steps of an attack.
Shift = tuple[str, float, int]


def shifted_logits(
    network: nn.Module, shift: Shift, part: Dataset, seed: int
) -> npt.NDArray[np.float32]:
    """Return the logits of pictures: under attack, in noise or clean."""
    (kind, size, steps), images = shift, part.images
    if kind == "noise":
        generator = torch.Generator().manual_seed(seed)
        images = add_gaussian_noise(images, size, generator=generator)
    elif kind != "none":
        aim: Any = getattr(network, "surrogate", network)
        images = apgd(
            aim,
            images,
            part.labels,
            eps=size,
            steps=steps,
            targets=3,
            seed=seed,
            loss="ce" if kind == "apgd-ce" else "targeted",
            batch_size=BATCH,
            progress=False,
        ).adversarial
    return logits_of(network, images, batch_size=BATCH).numpy()


def folded(network: nn.Module) -> nn.Module:
    """The network with each batch norm in the convolution before it, in place.

    The same logits but for rounding in half the time, with channels last in memory.
    """
    for parent in network.modules():
        for (name, layer), (after, norm) in pairwise([*parent.named_children()]):
            if isinstance(layer, nn.Conv2d) and isinstance(norm, nn.BatchNorm2d):
                setattr(parent, name, fuse_conv_bn_eval(layer, norm))
                setattr(parent, after, nn.Identity())
    return network.eval().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
