"""Noise of sensors: Gaussian, of counted photons, and of dead pixels.

As in all modules here, a kind of corruption takes images (N, C, H, W) as float64, its
sizes at a severity, and a generator for each image; :func:`corrupt` clips the result.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Pixels = npt.NDArray[np.float64]
Sizes = tuple[float, ...]
Generators = Sequence[np.random.Generator]


def gaussian_noise(images: Pixels, sizes: Sizes, generators: Generators) -> Pixels:
    """Add a normal number to each value."""
    (scale,) = sizes
    drawn = np.stack([g.standard_normal(images.shape[1:]) for g in generators])
    return images + scale * drawn


def shot_noise(images: Pixels, sizes: Sizes, generators: Generators) -> Pixels:
    """Count photons, of which a white pixel has a given number on average."""
    (white,) = sizes
    pairs = zip(images, generators, strict=True)
    return np.stack([g.poisson(image * white) / white for image, g in pairs])


def impulse_noise(images: Pixels, sizes: Sizes, generators: Generators) -> Pixels:
    """Set a share of the values to 0 or 1."""
    (share,) = sizes
    drawn = np.stack([g.random(images.shape[1:]) for g in generators])
    return np.where(drawn < share, drawn < share / 2, images)
