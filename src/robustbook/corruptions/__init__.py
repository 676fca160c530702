"""The fifteen common corruptions of images, at five severities, and their mean error.

They serve as shifts that no attacker chose: those of the benchmarks CIFAR-10-C and
ImageNet-C, computed here.
"""

import hashlib
from collections.abc import Callable
from typing import Final

import numpy as np
import torch
from torch import Tensor

from robustbook import _defaults as defaults
from robustbook._checks.arguments import ArrayLike, check_choice, check_count
from robustbook._checks.images import check_images
from robustbook.corruptions import _blur, _digital, _noise, _weather
from robustbook.corruptions._error import ALEXNET, mean_corruption_error
from robustbook.corruptions._noise import Generators, Pixels, Sizes

__all__ = ["ALEXNET", "CORRUPTIONS", "corrupt", "mean_corruption_error"]

_Corruption = Callable[[Pixels, Sizes, Generators], Pixels]


def _single(*sizes: float) -> list[Sizes]:
    return [(size,) for size in sizes]


def _elastic(*sizes: Sizes) -> list[Sizes]:
    """For pictures of 224 pixels the benchmark's sizes are shares of 244."""
    return [tuple(244 / 224 * size for size in three) for three in sizes]


#: Each kind with its sizes at the five severities, for small and for large images.
_KINDS: Final[dict[str, tuple[_Corruption, list[Sizes], list[Sizes]]]] = {
    "gaussian_noise": (
        _noise.gaussian_noise,
        _single(0.04, 0.06, 0.08, 0.09, 0.10),
        _single(0.08, 0.12, 0.18, 0.26, 0.38),
    ),
    "shot_noise": (
        _noise.shot_noise,
        _single(500, 250, 100, 75, 50),
        _single(60, 25, 12, 5, 3),
    ),
    "impulse_noise": (
        _noise.impulse_noise,
        _single(0.01, 0.02, 0.03, 0.05, 0.07),
        _single(0.03, 0.06, 0.09, 0.17, 0.27),
    ),
    "defocus_blur": (
        _blur.defocus_blur,
        [(0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1)],
        [(3, 0.1), (4, 0.5), (6, 0.5), (8, 0.5), (10, 0.5)],
    ),
    "glass_blur": (
        _blur.glass_blur,
        [(0.05, 1, 1), (0.25, 1, 1), (0.4, 1, 1), (0.25, 1, 2), (0.4, 1, 2)],
        [(0.7, 1, 2), (0.9, 2, 1), (1, 2, 3), (1.1, 3, 2), (1.5, 4, 2)],
    ),
    "motion_blur": (
        _blur.motion_blur,
        [(6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5)],
        [(10, 3), (15, 5), (15, 8), (15, 12), (20, 15)],
    ),
    "zoom_blur": (
        _blur.zoom_blur,
        [(1.06, 0.01), (1.11, 0.01), (1.16, 0.01), (1.21, 0.01), (1.26, 0.01)],
        [(1.11, 0.01), (1.16, 0.01), (1.21, 0.02), (1.26, 0.02), (1.31, 0.03)],
    ),
    "snow": (
        _weather.snow,
        [
            (0.1, 0.2, 1, 0.6, 8, 3, 0.95),
            (0.1, 0.2, 1, 0.5, 10, 4, 0.9),
            (0.15, 0.3, 1.75, 0.55, 10, 4, 0.9),
            (0.25, 0.3, 2.25, 0.6, 12, 6, 0.85),
            (0.3, 0.3, 1.25, 0.65, 14, 12, 0.8),
        ],
        [
            (0.1, 0.3, 3, 0.5, 10, 4, 0.8),
            (0.2, 0.3, 2, 0.5, 12, 4, 0.7),
            (0.55, 0.3, 4, 0.9, 12, 8, 0.7),
            (0.55, 0.3, 4.5, 0.85, 12, 8, 0.65),
            (0.55, 0.3, 2.5, 0.85, 12, 12, 0.55),
        ],
    ),
    # The last size: every so many pixels of the photographs.
    "frost": (
        _weather.frost,
        [(1, 0.2, 5), (1, 0.3, 5), (0.9, 0.4, 5), (0.85, 0.4, 5), (0.75, 0.45, 5)],
        [(1, 0.4, 1), (0.8, 0.6, 1), (0.7, 0.7, 1), (0.65, 0.7, 1), (0.6, 0.75, 1)],
    ),
    "fog": (
        _weather.fog,
        [(0.2, 3), (0.5, 3), (0.75, 2.5), (1, 2), (1.5, 1.75)],
        [(1.5, 2), (2, 2), (2.5, 1.7), (2.5, 1.5), (3, 1.4)],
    ),
    "brightness": (
        _weather.brightness,
        _single(0.05, 0.1, 0.15, 0.2, 0.3),
        _single(0.1, 0.2, 0.3, 0.4, 0.5),
    ),
    "contrast": (
        _digital.contrast,
        _single(0.75, 0.5, 0.4, 0.3, 0.15),
        _single(0.4, 0.3, 0.2, 0.1, 0.05),
    ),
    "elastic_transform": (
        _digital.elastic_transform,
        [
            (0, 0, 0.08),
            (0.05, 0.2, 0.07),
            (0.08, 0.06, 0.06),
            (0.1, 0.04, 0.05),
            (0.1, 0.03, 0.03),
        ],
        _elastic(
            (2, 0.7, 0.1),
            (2, 0.08, 0.2),
            (0.05, 0.01, 0.02),
            (0.07, 0.01, 0.02),
            (0.12, 0.01, 0.02),
        ),
    ),
    "pixelate": (
        _digital.pixelate,
        _single(0.95, 0.9, 0.85, 0.75, 0.65),
        _single(0.6, 0.5, 0.4, 0.3, 0.25),
    ),
    "jpeg_compression": (
        _digital.jpeg_compression,
        _single(80, 65, 58, 50, 40),
        _single(25, 18, 15, 10, 7),
    ),
}

#: The kinds of corruption that :func:`corrupt` knows, in the order of the benchmark.
CORRUPTIONS: Final = tuple(_KINDS)
#: Their four families.
FAMILIES: Final = {
    "noise": CORRUPTIONS[:3],
    "blur": CORRUPTIONS[3:7],
    "weather": CORRUPTIONS[7:11],
    "digital": CORRUPTIONS[11:],
}
#: The longest side of an image that gets the sizes of CIFAR-10-C.
_SMALL: Final = 64
#: Values that are corrupted at once, which bounds the memory.
_AT_ONCE: Final = 2**21


def corrupt(
    images: ArrayLike,
    kind: str,
    *,
    severity: int = defaults.SEVERITY,
    seed: int = 0,
) -> Tensor:
    """Corrupt images in one of the fifteen ways of CIFAR-10-C and ImageNet-C.

    Images of at most 64 pixels a side get the sizes of CIFAR-10-C, larger ones those of
    ImageNet-C. What is random depends on the seed, the kind, the severity and the image
    itself, to 8 bits, not on the batch that it is in. Results are not rounded to 8
    bits. Frost, "pixelate" and JPEG need Pillow.

    Parameters
    ----------
    images : Tensor or ndarray, shape (N, C, H, W)
        Images in [0, 1], floating-point. Three channels are red, green and blue; any
        other number, as many gray images.
    kind : str
        One of :data:`CORRUPTIONS`. Noise: "gaussian_noise", "shot_noise",
        "impulse_noise". Blur: "defocus_blur", "glass_blur", "motion_blur", "zoom_blur".
        Weather: "snow", "frost", "fog", "brightness". Digital: "contrast",
        "elastic_transform", "pixelate", "jpeg_compression".
    severity : int, default 3
        1 to 5, from the smallest size to the largest.
    seed : int, default 0
        Seed of what is random.

    Returns
    -------
    Tensor, shape (N, C, H, W)
        Images in [0, 1], on the same device; those of 16 bits become float32.

    Raises
    ------
    TypeError
        If the images are not floating-point numbers.
    ValueError
        If their shape is another, a pixel is outside [0, 1] or not finite, or there
        is no such corruption or severity.

    References
    ----------
    D. Hendrycks, T. Dietterich, "Benchmarking neural network robustness to common
    corruptions and perturbations", ICLR 2019. Chapter 25.

    Examples
    --------
    >>> image = torch.tensor([[[[0.0, 1.0], [0.0, 1.0]]]])
    >>> corrupt(image, "contrast", severity=2)
    tensor([[[[0.2500, 0.7500],
              [0.2500, 0.7500]]]])
    """
    pixels = check_images(images)
    check_choice("kind", kind, CORRUPTIONS)
    check_count("seed", seed, minimum=0)
    if check_count("severity", severity) > 5:
        raise ValueError(f"severity: expected 1 to 5, got {severity}")
    function, small, large = _KINDS[kind]
    sizes = small if max(pixels.shape[2:]) <= _SMALL else large
    parts = []
    for part in torch.split(pixels, max(1, _AT_ONCE // pixels[0].numel())):
        values = part.double().cpu().numpy()
        generators = _generators(values, f"{seed} {kind} {severity}")
        moved = function(values, sizes[severity - 1], generators)
        parts.append(torch.from_numpy(moved).clamp(0, 1).to(pixels))
    return torch.cat(parts)


def _generators(images: Pixels, salt: str) -> list[np.random.Generator]:
    """A generator for each image, seeded by its levels and the salt."""
    start = hashlib.blake2b(salt.encode(), digest_size=16)
    generators = []
    for levels in (255 * images).round().astype(np.uint8):
        state = start.copy()
        state.update(levels.tobytes())
        number = int.from_bytes(state.digest(), "little")
        generators.append(np.random.default_rng(number))
    return generators
