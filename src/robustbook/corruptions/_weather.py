"""Weather: snow, frost, fog and bright light."""

import math
from functools import lru_cache
from pathlib import Path
from typing import Final

import numpy as np

from robustbook._checks.extras import extra
from robustbook.corruptions._blur import move, zoom
from robustbook.corruptions._noise import Generators, Pixels, Sizes

#: How much red, green and blue count for lightness.
_LUMA: Final = np.array([0.299, 0.587, 0.114])
#: The benchmark draws from five files, of which two are the same picture. FROST.md says
#: whose they are.
_PICTURES: Final = ("frost1", "frost2", "frost2", "frost4", "frost5")


def _gray(images: Pixels) -> Pixels:
    """Lightness of color images, with one channel; others as they are."""
    if images.shape[-3] != 3:
        return images
    return np.tensordot(images, _LUMA, axes=(-3, 0))[..., None, :, :]


def snow(images: Pixels, sizes: Sizes, generators: Generators) -> Pixels:
    """Bleach images, and add flakes that the wind moves."""
    mean, scale, factor, least, radius, sigma, kept = sizes
    flakes = []
    for generator in generators:
        drawn = generator.normal(mean, scale, (1, *images.shape[2:]))
        layer = zoom(drawn, factor)
        layer = np.where(layer < least, 0, layer).clip(0, 1)
        flakes.append(move(layer, radius, sigma, generator.uniform(-135, -45)))
    fallen = np.stack(flakes)
    pale = np.maximum(images, 1.5 * _gray(images) + 0.5)
    return kept * images + (1 - kept) * pale + fallen + fallen[..., ::-1, ::-1]


@lru_cache(maxsize=4)
def _frost(height: int, width: int, step: int) -> list[Pixels]:
    """Pictures of frost (3, h, w) of at least this size, of every so many pixels."""
    with extra("data"):
        from PIL import Image
    pictures = []
    for name in _PICTURES:
        with Image.open(Path(__file__).with_name(f"{name}.jpg")) as file:
            pixels = np.asarray(file)[step // 2 :: step, step // 2 :: step]
        factor = max(1, height / pixels.shape[0], width / pixels.shape[1])
        size = [math.ceil(factor * side) for side in pixels.shape[1::-1]]
        large = Image.fromarray(pixels).resize((size[0], size[1]))
        pictures.append(np.asarray(large).transpose(2, 0, 1) / 255)
    return pictures


def frost(images: Pixels, sizes: Sizes, generators: Generators) -> Pixels:
    """Lay parts of photographs of frost over images."""
    kept, share, step = sizes
    channels, height, width = images.shape[1:]
    pictures = _frost(height, width, int(step))
    crystals = []
    for generator in generators:
        picture = pictures[generator.integers(len(pictures))]
        top = generator.integers(picture.shape[1] - height + 1)
        left = generator.integers(picture.shape[2] - width + 1)
        part = picture[:, top : top + height, left : left + width]
        crystals.append(part if channels == 3 else _gray(part))
    return kept * images + share * np.stack(crystals)


def _plasma(side: int, decay: float, generators: Generators) -> Pixels:
    """Random heights (N, side, side) from 0 to 1 by the diamond-square algorithm.

    It fills the middles of squares, then those of edges, with the mean of the four
    corners around and a random number that becomes smaller with the squares. Opposite
    edges are one.
    """
    drawn = np.stack([g.uniform(-1, 1, side**2) for g in generators])
    heights = np.zeros((len(drawn), side, side))
    step, size = side, 100.0
    while step >= 2:
        half, count = step // 2, side // step
        drawn, noise = np.split(drawn, [-3 * count**2], axis=1)
        bumps = size**2 * noise.reshape(-1, 3, count, count)
        corners = heights[:, ::step, ::step]
        across = corners + np.roll(corners, -1, axis=1)
        middles = (across + np.roll(across, -1, axis=2)) / 4 + bumps[:, 0]
        above = middles + np.roll(middles, 1, axis=1)
        beside = middles + np.roll(middles, 1, axis=2)
        right = corners + np.roll(corners, -1, axis=2)
        below = corners + np.roll(corners, -1, axis=1)
        heights[:, half::step, half::step] = middles
        heights[:, ::step, half::step] = (above + right) / 4 + bumps[:, 1]
        heights[:, half::step, ::step] = (beside + below) / 4 + bumps[:, 2]
        step, size = half, size / decay
    heights -= heights.min(axis=(1, 2), keepdims=True)
    return heights / heights.max(axis=(1, 2), keepdims=True)


def fog(images: Pixels, sizes: Sizes, generators: Generators) -> Pixels:
    """Add a random haze, and keep the lightest value as it was."""
    amount, decay = sizes
    height, width = images.shape[2:]
    side = 2 ** max(1, (max(height, width) - 1).bit_length())
    haze = _plasma(side, decay, generators)[:, None, :height, :width]
    lightest = images.max(axis=(1, 2, 3), keepdims=True)
    return (images + amount * haze) * lightest / (lightest + amount)


def brightness(images: Pixels, sizes: Sizes, generators: Generators) -> Pixels:
    """Raise the value of colors, and keep their hue and saturation."""
    (amount,) = sizes
    if images.shape[1] != 3:
        return images + amount
    value = images.max(axis=1, keepdims=True)
    raised = np.minimum(value + amount, 1)
    # Hue and saturation stay if the three are multiplied by one factor.
    return np.where(value > 0, images / np.where(value > 0, value, 1), 1) * raised
