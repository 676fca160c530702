"""What software and screens do: low contrast, warps, coarse pixels, and JPEG."""

from io import BytesIO

import numpy as np
from scipy.ndimage import gaussian_filter1d, map_coordinates

from robustbook._checks.extras import extra
from robustbook.corruptions._noise import Generators, Pixels, Sizes


def contrast(images: Pixels, sizes: Sizes, generators: Generators) -> Pixels:
    """Draw each value towards the mean of its channel."""
    (factor,) = sizes
    means = images.mean(axis=(2, 3), keepdims=True)
    return means + factor * (images - means)


def elastic_transform(images: Pixels, sizes: Sizes, generators: Generators) -> Pixels:
    """Move three points of an image at random, then each pixel a little more."""
    height, width = images.shape[2:]
    shift, smooth, shake = min(height, width) * np.array(sizes)
    center, arm = np.array([height // 2, width // 2]), min(height, width) // 3
    anchors = center + arm * np.array([[1, 1], [-1, 1], [-1, -1]])
    grid = np.indices((height, width)).reshape(2, -1)
    # A Gaussian filter as a matrix: it may be longer than an image.
    filters = [
        gaussian_filter1d(np.eye(n), smooth, axis=0, mode="reflect", truncate=3)
        if smooth
        else np.eye(n)
        for n in (height, width)
    ]
    warped = []
    for image, generator in zip(images, generators, strict=True):
        moved = anchors + generator.uniform(-shake, shake, (3, 2))
        turn = np.linalg.solve(np.c_[moved, np.ones(3)], anchors).T
        places = (turn[:, :2] @ grid + turn[:, 2:]).reshape(2, height, width)
        turned = [map_coordinates(p, places, order=1, mode="mirror") for p in image]
        steps = generator.uniform(-1, 1, (2, height, width))
        steps = shift * (filters[0] @ steps @ filters[1].T)
        places = grid.reshape(2, height, width) + steps
        moves = [map_coordinates(p, places, order=1, mode="reflect") for p in turned]
        warped.append(np.stack(moves))
    return np.stack(warped)


def pixelate(images: Pixels, sizes: Sizes, generators: Generators) -> Pixels:
    """Average over large pixels."""
    with extra("data"):
        from PIL import Image
    box = Image.Resampling.BOX
    height, width = images.shape[2:]
    small = (max(1, int(width * sizes[0])), max(1, int(height * sizes[0])))
    planes = images.astype(np.float32).reshape(-1, height, width)
    coarse = [Image.fromarray(p).resize(small, box) for p in planes]
    stacked = np.stack([np.asarray(c.resize((width, height), box)) for c in coarse])
    return stacked.reshape(images.shape).astype(np.float64)


def jpeg_compression(images: Pixels, sizes: Sizes, generators: Generators) -> Pixels:
    """Save images as JPEG, and read them; other channels than RGB one by one."""
    with extra("data"):
        from PIL import Image

    def compressed(levels: np.ndarray[tuple[int, ...], np.dtype[np.uint8]]) -> Pixels:
        file = BytesIO()
        Image.fromarray(levels).save(file, "JPEG", quality=int(sizes[0]))
        with Image.open(file) as read:
            return np.asarray(read) / 255

    levels = (255 * images).round().astype(np.uint8)
    if images.shape[1] == 3:
        colors = [compressed(image.transpose(1, 2, 0)) for image in levels]
        return np.stack(colors).transpose(0, 3, 1, 2)
    planes = levels.reshape(-1, *levels.shape[2:])
    return np.stack([compressed(plane) for plane in planes]).reshape(images.shape)
