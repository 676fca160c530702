"""Pictures show what the factors say, whatever their size."""

import colorsys
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
import torch

from robustbook.datasets import diagvib
from robustbook.datasets.diagvib import (
    FACTORS,
    LIGHTNESSES,
    POSITIONS,
    Environment,
    draw,
    every_level,
    original_position,
)
from robustbook.datasets.diagvib._factors import HUES, SCALES, TEXTURES
from robustbook.datasets.diagvib._render import texture

GRAY = 127 / 255


def covered(images):
    """Which pixels are not background, (n, H, W)."""
    return (images - GRAY).abs().amax(1) > 0.02


def boxes_of(images):
    """First and last column and row of each object, (n, 2, 2)."""
    places = [torch.nonzero(mask).flip(1) for mask in covered(images)]
    return np.array([[one.amin(0).tolist(), one.amax(0).tolist()] for one in places])


def middle_of(images):
    """Middle of the bounding box of each object, across and down, of 1."""
    return boxes_of(images).sum(1) / 2.0 / (images.shape[-1] - 1)


def test_the_background_is_gray_and_the_rest_is_not():
    images = draw(Environment(), count=20).images()
    assert images.shape == (20, 3, 64, 64)
    assert images.dtype == torch.float32
    assert torch.all(images[:, :, 0, 0] == np.float32(GRAY))
    share = covered(images).float().mean((1, 2))
    assert 0.01 < float(share.min()) < float(share.max()) < 0.06


@pytest.mark.parametrize("hue", list(HUES))
@pytest.mark.parametrize("lightness", list(LIGHTNESSES))
def test_a_blank_object_has_one_color_of_its_hue_and_its_light_end(hue, lightness):
    scenes = draw(Environment(hue=hue, lightness=lightness), shapes=(0, 1), count=4)
    images = scenes.images(size=128)
    low, high = LIGHTNESSES[lightness][1]
    for image, degrees, ends in zip(images, scenes.hue, scenes.lightness, strict=True):
        expected = colorsys.hls_to_rgb(float(degrees) / 360, float(ends[1]), 1.0)
        full = torch.tensor(expected)[:, None, None] - GRAY
        near = (image - GRAY - full).abs().amax(0) < 1 / 255
        assert int(near.sum()) > 50
        # Nothing but this color, the gray, and blends of the two at the edge.
        share = ((image - GRAY) * full).sum(0) / full.square().sum()
        assert -0.01 < float(share.min()) < float(share.max()) < 1.01
        assert float((image - GRAY - share * full).abs().max()) < 1 / 255
        assert low <= float(ends[1]) <= high
        distance = (float(degrees) - HUES[hue] + 180) % 360 - 180
        assert abs(distance) <= 15


@pytest.mark.parametrize("name", TEXTURES[1:])
def test_a_textured_object_runs_from_its_dark_to_its_light_end(name):
    environment = Environment(texture=name, lightness="darker", scale="large")
    scenes = draw(environment, shapes=(0, 8), count=40, seed=1)
    images = scenes.images(size=128)
    object_pixels = images.movedim(1, 3)[covered(images)]
    lightness = (object_pixels.amax(1) + object_pixels.amin(1)) / 2
    inside = lightness[(lightness - GRAY).abs() > 0.1]
    assert 2 / 11 - 0.02 < float(inside.min()) < 3 / 11 + 0.02
    assert 6 / 11 - 0.03 < float(inside.max()) < 7 / 11 + 0.02


def test_textures_are_ours_flat_in_histogram_and_told_apart():
    flat = {}
    for name in TEXTURES[1:]:
        values = texture(name)
        assert values.shape == (256, 256)
        levels = torch.linspace(0, 1, 256 * 256)
        torch.testing.assert_close(values.flatten().sort().values, levels)
        flat[name] = (values - values.mean()).flatten()
        # Enough of a texture changes within the width of a stroke.
        step = (values[:, 4:] - values[:, :-4]).abs().mean()
        assert float(step) > 0.1, name
    names = list(flat)
    for k, first in enumerate(names):
        for second in names[:k]:
            pair = torch.stack([flat[first], flat[second]])
            assert abs(float(torch.corrcoef(pair)[0, 1])) < 0.2
    assert not texture("blank").any()
    assert not list(Path(diagvib.__file__).parent.glob("*.png"))


@pytest.mark.parametrize("name", list(POSITIONS))
def test_positions_are_where_their_names_say(name):
    environment = Environment(position=name, scale="small")
    scenes = draw(environment, count=30, seed=2)
    across, down = middle_of(scenes.images()).T
    words = {"left": 0, "right": 2, "upper": 0, "lower": 2}
    vertical, _, horizontal = name.partition(" ")
    assert set(np.floor(across * 3).astype(int)) <= {words.get(horizontal, 1)}
    assert set(np.floor(down * 3).astype(int)) <= {words.get(vertical, 1)}
    np.testing.assert_allclose(across, scenes.position[:, 0], atol=0.02)
    np.testing.assert_allclose(down, scenes.position[:, 1], atol=0.02)
    for values, (low, high) in zip(scenes.position.T, POSITIONS[name], strict=True):
        assert low <= float(values.min()) <= float(values.max()) <= high


def test_the_original_draws_the_transpose_of_a_name():
    assert original_position("center right") == "lower center"
    assert original_position("lower left") == "upper right"
    for name in POSITIONS:
        assert original_position(original_position(name)) == name
        places = (name, original_position(name))
        drawn = [draw(Environment(position=p, scale="small"), count=1) for p in places]
        here, there = (middle_of(scenes.images())[0] for scenes in drawn)
        np.testing.assert_array_equal(np.floor(here * 3), np.floor(there[::-1] * 3))
    same = [name for name in POSITIONS if original_position(name) == name]
    assert same == ["upper left", "center", "lower right"]


def test_scales_are_those_of_the_objects():
    areas = {}
    for name, (low, high) in SCALES.items():
        scenes = draw(Environment(scale=name), shapes=(0, 3, 8), count=60)
        assert low <= float(scenes.scale.min()) <= float(scenes.scale.max()) <= high
        first, last = boxes_of(scenes.images(size=128)).swapaxes(0, 1)
        sizes = (last - first).max(1) + 1
        areas[name] = np.mean(sizes / scenes.scale.numpy())
    # The digit fills 28 of 128 pixels at scale 1, and its edge a little more.
    for name, unit in areas.items():
        assert 27.5 < unit < 30.5, (name, unit)


@pytest.mark.parametrize("size", [28, 32, 64])
def test_small_pictures_are_large_ones_seen_from_afar(size):
    # Texture has detail that a small picture does not keep.
    scenes = draw(Environment(hue="green", scale="large"), count=30)
    large = scenes.images(size=128)
    small = scenes.images(size=size)
    seen = torch.nn.functional.interpolate(
        large, (size, size), mode="bilinear", antialias=True
    )
    apart = covered(seen) | covered(small)
    error = (seen - small).abs().amax(1)[apart].mean()
    contrast = (seen - GRAY).abs().amax(1)[apart].mean()
    assert float(error) < 0.35 * float(contrast)
    assert float((seen - small).mean().abs()) < 0.003
    difference = middle_of(small) - scenes.position.numpy()
    assert np.abs(difference).max() < 1.2 / size


def test_a_picture_depends_neither_on_those_beside_it_nor_on_its_type():
    scenes = draw(Environment(texture="wood"), count=300)
    together = scenes.images(size=32)
    bytes_ = scenes.images(size=32, dtype=torch.uint8)
    assert bytes_.dtype == torch.uint8
    assert torch.equal(bytes_ / 255, together)
    for index in ([299, 7, 64], (torch.arange(300) - 6).abs() < 2, slice(5, 8)):
        assert torch.equal(scenes.images(index, size=32), together[index])


def test_bad_sizes_and_types_are_named():
    scenes = draw(Environment(), count=2)
    with pytest.raises(ValueError, match="size: expected at least 16, got 8"):
        scenes.images(size=8)
    with pytest.raises(TypeError, match="dtype: expected float32 or uint8"):
        scenes.images(dtype=torch.float64)
    with pytest.raises(ValueError, match="name: expected one of blank"):
        texture("marble")


def test_a_dataset_has_pictures_and_labels():
    scenes = draw(Environment(), shapes=(4, 9), count=12, split="test")
    data = scenes.dataset(size=32)
    assert (data.name, data.split, data.num_classes) == ("diagvib", "test", 2)
    assert torch.equal(data.images, scenes.images(size=32))
    assert torch.equal(data.labels, scenes.labels)


def test_the_gallery_holds_every_level_once():
    rows = every_level(size=64)
    assert [name for name, _, _ in rows] == ["shape", *FACTORS]
    for name, levels, images in rows[1:]:
        assert tuple(levels) == FACTORS[name]
        assert len(images) == len(levels)
        for one, other in combinations(images, 2):
            assert float((one - other).abs().max()) > 0.05, name
