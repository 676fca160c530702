"""Corruptions against their definitions."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from torch.nn import functional

from robustbook.corruptions import CORRUPTIONS, corrupt
from robustbook.datasets import load_dataset


@pytest.fixture(scope="module")
def images():
    return load_dataset("digits", "test").images[:20]


@pytest.mark.parametrize("kind", CORRUPTIONS)
def test_severity_takes_an_image_further_away(images, kind):
    # With eight pixels a side, coarse images can only have a few sizes.
    images = functional.interpolate(images, size=32, mode="bicubic").clamp(0, 1)
    assert list(CORRUPTIONS) == sorted(CORRUPTIONS)
    worse = (corrupt(images, kind, severity=level) for level in range(1, 6))
    away = [float((one - images).abs().mean()) for one in worse]
    assert away[0] > 0
    assert away == sorted(away)
    assert away[-1] > 1.2 * away[0]


@settings(max_examples=40, deadline=None)
@given(
    kind=st.sampled_from(CORRUPTIONS),
    severity=st.integers(1, 5),
    shape=st.tuples(
        st.integers(1, 3), st.integers(1, 4), st.integers(1, 9), st.integers(1, 9)
    ),
    double=st.booleans(),
    seed=st.integers(0, 100),
)
def test_corrupted_images_are_images(kind, severity, shape, double, seed):
    drawn = np.random.default_rng(seed).random(shape)
    original = torch.from_numpy(drawn).to(torch.float64 if double else torch.float32)
    copy = original.clone()
    corrupted = corrupt(original, kind, severity=severity)
    assert corrupted.shape == original.shape
    assert corrupted.dtype == original.dtype
    assert 0 <= float(corrupted.min()) <= float(corrupted.max()) <= 1
    assert torch.equal(original, copy)


@pytest.mark.parametrize("kind", [k for k in CORRUPTIONS if k != "brightness"])
def test_a_flat_image_stays_as_it_is(kind):
    flat = torch.full((1, 3, 8, 8), 0.25)
    torch.testing.assert_close(corrupt(flat, kind, severity=5), flat)


def test_contrast_and_brightness_by_hand():
    image = torch.tensor([[[[0.2, 0.6], [0.2, 0.6]]]])
    low = corrupt(image, "contrast", severity=5)
    torch.testing.assert_close(low, 0.4 + 0.15 * (image - 0.4))
    bright = corrupt(image, "brightness", severity=5)
    torch.testing.assert_close(bright, image + 0.3)
    assert float(corrupt(image + 0.3, "brightness", severity=5).max()) == 1


def test_blur_keeps_the_sum_far_from_the_edges():
    point = torch.zeros(1, 1, 21, 21)
    point[..., 10, 10] = 1
    spread = corrupt(point, "blur", severity=5)
    assert float(spread.sum()) == pytest.approx(1, abs=1e-5)
    offsets = torch.arange(21.0) - 10
    variance = float((spread.sum(dim=2) * offsets**2).sum())
    assert variance == pytest.approx(1, abs=0.01)  # a pixel wide


def test_rotation_turns_counterclockwise():
    tall = torch.zeros(1, 1, 41, 41)
    tall[..., 4, 20] = 1  # above the center
    turned = corrupt(tall, "rotation", severity=5)[0, 0]
    row, column = divmod(int(turned.argmax()), 41)
    angle = np.degrees(np.arctan2(20 - column, 20 - row))
    assert angle == pytest.approx(30, abs=3)
    # The image is not square.
    wide = torch.zeros(1, 1, 41, 81)
    wide[..., 4, 40] = 1
    row, column = divmod(int(corrupt(wide, "rotation", severity=5).argmax()), 81)
    assert np.degrees(np.arctan2(40 - column, 20 - row)) == pytest.approx(30, abs=3)
    assert np.hypot(40 - column, 20 - row) == pytest.approx(16, abs=1)


def test_pixelate_makes_blocks():
    image = torch.rand(1, 1, 20, 20, generator=torch.Generator().manual_seed(0))
    corrupted = corrupt(image, "pixelate", severity=5)[0, 0]
    assert len(corrupted.unique()) <= 13 * 13
    # The benchmark does it channel by channel.
    box = Image.Resampling.BOX
    bytes_ = Image.fromarray((255 * image[0, 0]).byte().numpy())
    same = np.asarray(bytes_.resize((13, 13), box).resize((20, 20), box)) / 255
    assert float(np.abs(corrupted.numpy() - same).max()) < 1.5 / 255


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "fog"}, "expected one of blur, brightness"),
        ({"kind": ["blur"]}, "expected one of blur, brightness"),
        ({"severity": 6}, "expected 1 to 5, got 6"),
        ({"severity": 0}, "severity"),
        ({"images": torch.zeros(3, 8, 8)}, r"shape \(N, C, H, W\)"),
        ({"images": torch.zeros(0, 1, 8, 8)}, "at least one"),
        ({"images": torch.full((1, 1, 2, 2), 2.0)}, r"\[0, 1\], got 2 to 2"),
        ({"images": torch.full((1, 1, 2, 2), torch.nan)}, "finite pixels"),
        ({"images": torch.full((1, 1, 2, 2), 200.0)}, "divide them by 255"),
        ({"images": torch.full((1, 1, 2, 2), -1.0)}, "normalization belongs"),
        ({"images": torch.zeros(1, 1, 8, 8).byte()}, r"bytes: images.float\(\) / 255"),
    ],
)
def test_bad_input_is_named(change, message):
    arguments = {"images": torch.zeros(1, 1, 8, 8), "kind": "blur", **change}
    images, kind = arguments.pop("images"), arguments.pop("kind")
    error = TypeError if "bytes" in message else ValueError
    with pytest.raises(error, match=message):
        corrupt(images, kind, **arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", CORRUPTIONS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_only_rounds(images, kind, dtype):
    corrupted = corrupt(images.to(dtype), kind)
    assert corrupted.dtype == dtype
    exact = corrupt(images, kind)
    step = torch.finfo(dtype).eps
    torch.testing.assert_close(corrupted.float(), exact, rtol=0, atol=2 * step)
