"""Blur: out of focus, through frosted glass, of a moved and of a zoomed camera."""

import math
from typing import Final

import numpy as np
from scipy.ndimage import correlate1d, gaussian_filter
from scipy.signal import fftconvolve

from robustbook.corruptions._noise import Generators, Pixels, Sizes

#: A disk of up to this radius is drawn on a grid of this reach.
_GRID: Final = 8


def _disk(radius: float, sigma: float) -> Pixels:
    """Weights of a disk whose edge a short Gaussian filter has smoothed.

    As in the benchmark, a disk of 8 or 10 pixels gains one percent of its sum at the
    border of the grid.
    """
    reach, taps = (_GRID, 1) if radius <= _GRID else (math.ceil(radius), 2)
    offsets = np.arange(-reach, reach + 1)
    disk = (offsets**2 + offsets[:, None] ** 2 <= radius**2).astype(np.float64)
    disk /= disk.sum()
    weights = np.exp(-(np.arange(-taps, taps + 1) ** 2) / (2 * sigma**2))
    weights /= weights.sum()
    for axis in (0, 1):
        disk = correlate1d(disk, weights, axis=axis, mode="mirror")
    return disk


def defocus_blur(images: Pixels, sizes: Sizes, generators: Generators) -> Pixels:
    """Average over a disk."""
    kernel = _disk(*sizes)
    reach = len(kernel) // 2
    around = (0, 0), (0, 0), (reach, reach), (reach, reach)
    padded = np.pad(images, around, mode="reflect")
    # Image by image, since the rounding of a transform may depend on its neighbors.
    return np.stack(
        [fftconvolve(p, kernel[None], mode="valid", axes=(1, 2)) for p in padded]
    )


def glass_blur(images: Pixels, sizes: Sizes, generators: Generators) -> Pixels:
    """Copy a neighbor over each pixel in turn, between two Gaussian filters.

    The benchmark's code means to swap the two. For color images it copies, since
    ``x[a], x[b] = x[b], x[a]`` reads views of the array that it writes to.
    """
    sigma, reach, rounds = sizes[0], int(sizes[1]), int(sizes[2])
    count, channels, height, width = images.shape
    blur = (0, 0, sigma, sigma)
    blurred = gaussian_filter(images, blur, mode="nearest")
    rows = np.arange(height - reach, reach, -1) * width
    spots = (rows[:, None] + np.arange(width - reach, reach, -1)).ravel()
    # For each pixel where it is from, a column for each image: each step of the loop
    # changes one pixel of all images.
    source = np.tile(np.arange(height * width)[:, None], count)
    flat = source.reshape(-1)
    for _ in range(rounds):
        drawn = [g.integers(-reach, reach, (len(spots), 2)) for g in generators]
        shifts = np.stack(drawn, axis=-1) * np.array([[width], [1]])
        neighbors = (spots[:, None] + shifts.sum(axis=1)) * count + np.arange(count)
        for spot, neighbor in zip(spots.tolist(), neighbors, strict=True):
            source[spot] = flat[neighbor]
    planes = blurred.reshape(count, channels, -1)
    moved = np.take_along_axis(planes, source.T[:, None], axis=2)
    return gaussian_filter(moved.reshape(images.shape), blur, mode="nearest")


def move(planes: Pixels, radius: float, sigma: float, degrees: float) -> Pixels:
    """Blur planes (C, H, W) along a line, as ImageMagick does; edges are repeated."""
    taps = 2 * int(radius) + 1
    weights = np.exp(-(np.arange(taps) ** 2) / (2 * sigma**2))
    weights /= weights.sum()
    angle = math.radians(degrees)
    height, width = planes.shape[1:]
    padded = np.pad(planes, ((0, 0), (taps, taps), (taps, taps)), mode="edge")
    blurred = np.zeros(planes.shape)
    for step, weight in enumerate(weights):
        top = taps + math.ceil(step * math.sin(angle) - 0.5)
        left = taps + math.ceil(step * math.cos(angle) - 0.5)
        blurred += weight * padded[:, top : top + height, left : left + width]
    return blurred


def motion_blur(images: Pixels, sizes: Sizes, generators: Generators) -> Pixels:
    """Blur along a line of a random direction."""
    radius, sigma = sizes
    pairs = zip(images, generators, strict=True)
    return np.stack([move(i, radius, sigma, g.uniform(-45, 45)) for i, g in pairs])


def _enlarged(planes: Pixels, factor: float, axis: int) -> Pixels:
    """Cut out the middle of an axis, and stretch it to the former length."""
    size = planes.shape[axis]
    kept = math.ceil(size / factor)
    start, length = (size - kept) // 2, round(kept * factor)
    trim = (length - size) // 2
    places = np.linspace(0, kept - 1, length)[trim : trim + size]
    low = places.astype(int)
    share = np.expand_dims(places - low, tuple(range(1, -axis)))
    first = planes.take(start + low, axis)
    second = planes.take(start + np.minimum(low + 1, kept - 1), axis)
    return (1 - share) * first + share * second


def zoom(planes: Pixels, factor: float) -> Pixels:
    """Enlarge the middle of planes (..., H, W) so that it fills them."""
    return _enlarged(_enlarged(planes, factor, -2), factor, -1)


def zoom_blur(images: Pixels, sizes: Sizes, generators: Generators) -> Pixels:
    """Average the images with enlarged ones."""
    factors = np.arange(1, *sizes)
    zoomed = sum(zoom(images, factor) for factor in factors)
    return (images + zoomed) / (len(factors) + 1)
