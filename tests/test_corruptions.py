"""The fifteen corruptions against their definitions, and against imagecorruptions."""

import io

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from torch.nn import functional

from robustbook.corruptions import (
    ALEXNET,
    CORRUPTIONS,
    FAMILIES,
    corrupt,
    mean_corruption_error,
)
from robustbook.datasets import load_dataset

#: What the seed does not change.
FIXED = (
    *("defocus_blur", "zoom_blur", "brightness", "contrast", "pixelate"),
    "jpeg_compression",
)


@pytest.fixture(scope="module")
def images():
    return load_dataset("digits", "test").images[:20]


@pytest.fixture(scope="module")
def scene():
    """Smooth colors with an edge, (1, 3, 96, 96): large enough for ImageNet's sizes."""
    rows, columns = np.mgrid[:96, :96] / 95
    waves = [np.sin(7 * rows + 3 * columns + c) / 2 + 0.5 for c in range(3)]
    levels = (255 * np.stack(waves)).astype(np.uint8)
    levels[:, 30:60, 40:80] //= 3
    return torch.from_numpy(levels)[None].float() / 255


#: Mean, standard deviation and a value of the scene under imagecorruptions 1.1.2
#: (small: with the sizes of CIFAR-10-C put in its code), at severities 3 and 5.
ORACLE = {
    ("defocus_blur", 32): ((0.17561, 0.19438, 0.00065), (0.17543, 0.19301, 0.00131)),
    ("zoom_blur", 32): ((0.16942, 0.18841, 0.00037), (0.16523, 0.18386, 0.00077)),
    ("brightness", 32): ((0.24677, 0.24673, 0.0), (0.31436, 0.29530, 0.0)),
    ("contrast", 32): ((0.17578, 0.10495, 0.05591), (0.17578, 0.08069, 0.07921)),
    ("defocus_blur", 96): ((0.46449, 0.33904, 0.83698), (0.46951, 0.32455, 0.82795)),
    ("zoom_blur", 96): ((0.45161, 0.34639, 0.74298), (0.44351, 0.34137, 0.67939)),
    ("brightness", 96): ((0.54413, 0.35997, 0.85714), (0.57831, 0.36555, 0.85714)),
    ("contrast", 96): ((0.46445, 0.08391, 0.54443), (0.46445, 0.04935, 0.48769)),
}
#: By how much it changes the scene at severity 3, with its sign and without, as a mean
#: over 200 draws (glass: 20; warps: with the benchmark's own code).
RANDOM = {
    ("gaussian_noise", 32): (0.0104, 0.0535),
    ("shot_noise", 32): (0.0, 0.0276),
    ("impulse_noise", 32): (0.0098, 0.0150),
    ("glass_blur", 32): (-0.0014, 0.0137),
    ("motion_blur", 32): (-0.0037, 0.0152),
    ("snow", 32): (0.0873, 0.0873),
    ("frost", 32): (0.2302, 0.2302),
    ("fog", 32): (0.1263, 0.1491),
    ("elastic_transform", 32): (-0.0010, 0.0246),
    ("gaussian_noise", 96): (0.0033, 0.1148),
    ("shot_noise", 96): (-0.0245, 0.1148),
    ("impulse_noise", 96): (0.0032, 0.0450),
    ("glass_blur", 96): (0.0006, 0.0673),
    ("motion_blur", 96): (-0.0042, 0.0723),
    ("snow", 96): (0.2311, 0.2311),
    ("frost", 96): (0.2652, 0.2731),
    ("fog", 96): (0.0223, 0.2451),
    ("elastic_transform", 96): (0.0003, 0.0345),
}


def part_of(scene, side):
    return scene if side == 96 else scene[..., 24:56, 24:56]


@pytest.mark.parametrize(("kind", "side"), ORACLE)
def test_fixed_kinds_are_those_of_imagecorruptions(scene, kind, side):
    for severity, theirs in zip((3, 5), ORACLE[kind, side], strict=True):
        ours = corrupt(part_of(scene, side), kind, severity=severity)[0].double()
        measured = ours.mean(), ours.std(correction=0), ours[1, 10, 20]
        assert [float(m) for m in measured] == pytest.approx(theirs, abs=3e-5)


@pytest.mark.parametrize(("kind", "side"), RANDOM)
def test_random_kinds_are_distributed_as_those_of_imagecorruptions(scene, kind, side):
    image, theirs = part_of(scene, side).double(), RANDOM[kind, side]
    count = 20 if kind == "glass_blur" else 60
    changes = torch.cat([corrupt(image, kind, seed=s) - image for s in range(count)])
    for sizes, mean in zip((changes, changes.abs()), theirs, strict=True):
        each = sizes.mean(dim=(1, 2, 3))
        # Both means have an error, and their images are of 8 bits, cut off.
        error = float(each.std()) * (2 / count) ** 0.5
        assert float(each.mean()) == pytest.approx(mean, abs=4 * error + 0.0025)


def test_families_hold_every_kind_once():
    assert [k for kinds in FAMILIES.values() for k in kinds] == list(CORRUPTIONS)
    assert len(set(CORRUPTIONS)) == 15
    assert set(ALEXNET) == {"clean", *CORRUPTIONS}


# Warps become shorter with severity, and rougher.
@pytest.mark.parametrize("kind", sorted({*CORRUPTIONS} - {"elastic_transform"}))
def test_the_worst_severity_is_further_away_than_the_first(images, kind):
    size = functional.interpolate(images, size=32, mode="bicubic").clamp(0, 1)
    away = [
        float((corrupt(size, kind, severity=level) - size).abs().mean())
        for level in (1, 5)
    ]
    assert away[0] > 0
    assert away[1] > 1.2 * away[0]


@settings(max_examples=100, deadline=None)
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
    corrupted = corrupt(original, kind, severity=severity, seed=seed)
    assert corrupted.shape == original.shape
    assert corrupted.dtype == original.dtype
    assert 0 <= float(corrupted.min()) <= float(corrupted.max()) <= 1
    assert torch.equal(original, copy)


@pytest.mark.parametrize("kind", CORRUPTIONS)
def test_images_do_not_depend_on_their_batch_but_on_the_seed(scene, kind):
    flipped = torch.cat([scene, scene.flip(3), scene.flip(2), scene])
    for batch in (flipped, flipped[..., :32, :32]):
        together = corrupt(batch, kind, seed=7)
        apart = [corrupt(image[None], kind, seed=7) for image in batch.flip(0)]
        assert torch.equal(together, torch.cat(apart).flip(0))
        other = corrupt(batch, kind, seed=8)
        assert torch.equal(other, together) == (kind in FIXED)


@pytest.mark.parametrize("kind", CORRUPTIONS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_images_in_half_precision_become_float32(images, kind, dtype):
    rounded = images.to(dtype)
    assert torch.equal(corrupt(rounded, kind), corrupt(rounded.float(), kind))


def test_brightness_by_hand():
    image = torch.tensor([[[[0.2, 0.6], [0.2, 0.6]]]])
    torch.testing.assert_close(corrupt(image, "brightness", severity=5), image + 0.3)
    orange = torch.tensor([0.5, 0.25, 0.0]).reshape(1, 3, 1, 1)
    # Value from 0.5 to 0.8; the ratios of the channels stay.
    lighter = torch.tensor([0.8, 0.4, 0.0]).reshape(1, 3, 1, 1)
    torch.testing.assert_close(corrupt(orange, "brightness", severity=5), lighter)
    black = corrupt(0 * orange, "brightness", severity=5)
    torch.testing.assert_close(black, torch.full_like(black, 0.3))


@pytest.mark.parametrize(("side", "share"), [(32, 0.07), (96, 0.27)])
def test_noise_has_the_sizes_of_its_benchmark(side, share):
    # No two of them are alike, which would be corrupted alike.
    gray = torch.full((40, 1, side, side), 0.5)
    gray += (torch.arange(40).reshape(-1, 1, 1, 1) - 20) / 255
    normal = corrupt(gray, "gaussian_noise", severity=1, seed=3) - gray
    assert float(normal.std()) == pytest.approx({32: 0.04, 96: 0.08}[side], rel=0.03)
    assert abs(float(normal.mean())) < 0.002
    photons = corrupt(gray, "shot_noise", severity=1) - gray
    white = {32: 500, 96: 60}[side]
    assert float(photons.var()) == pytest.approx(0.5 / white, rel=0.05)
    hit = corrupt(gray, "impulse_noise", severity=5)
    for level in (0, 1):
        found = float((hit == level).double().mean())
        assert found == pytest.approx(share / 2, rel=0.1)
    worst = corrupt(gray, "gaussian_noise", severity=5)
    assert float((worst - gray).abs().median()) == pytest.approx(
        0.6745 * {32: 0.10, 96: 0.38}[side], rel=0.05
    )


def test_motion_blur_keeps_a_line_along_its_direction():
    line = torch.zeros(1, 1, 41, 41)
    line[..., 20, 20] = 1
    blurred = corrupt(line, "motion_blur", severity=1)[0, 0]
    assert float(blurred.sum()) == pytest.approx(1, abs=1e-5)
    rows, columns = torch.nonzero(blurred, as_tuple=True)
    # It starts at the point, and goes to the left within 45 degrees.
    assert int(columns.max()) == 20
    assert int(columns.min()) < 14
    assert int((rows - 20).abs().max()) <= 20 - int(columns.min())


def test_pixelate_and_jpeg_are_those_of_pillow():
    drawn = torch.rand(1, 3, 20, 20, generator=torch.Generator().manual_seed(0))
    image = (255 * drawn).round() / 255
    bytes_ = Image.fromarray((255 * image[0]).byte().numpy().transpose(1, 2, 0))
    box = Image.Resampling.BOX
    same = np.asarray(bytes_.resize((13, 13), box).resize((20, 20), box)) / 255
    coarse = corrupt(image, "pixelate", severity=5)[0].permute(1, 2, 0)
    assert float(np.abs(coarse.numpy() - same).max()) < 1.5 / 255
    file = io.BytesIO()
    bytes_.save(file, "JPEG", quality=40)
    saved = torch.from_numpy(np.asarray(Image.open(file)).copy()).permute(2, 0, 1)
    ours = corrupt(image, "jpeg_compression", severity=5)[0]
    torch.testing.assert_close(ours, saved.float() / 255)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": ["snow"]}, "expected one of gaussian_noise, shot_noise"),
        ({"severity": 6}, "expected 1 to 5, got 6"),
        ({"severity": 0}, "severity"),
        ({"seed": -1}, "seed"),
        ({"images": torch.zeros(3, 8, 8)}, r"shape \(N, C, H, W\)"),
        ({"images": torch.zeros(0, 1, 8, 8)}, "at least one"),
        ({"images": torch.full((1, 1, 2, 2), torch.nan)}, "expected finite numbers"),
        ({"images": torch.full((1, 1, 2, 2), 200.0)}, "divide them by 255"),
        ({"images": torch.full((1, 1, 2, 2), -1.0)}, "normalization belongs"),
        ({"images": torch.zeros(1, 1, 8, 8).byte()}, r"bytes: images.float\(\) / 255"),
    ],
)
def test_bad_input_is_named(change, message):
    arguments = {"images": torch.zeros(1, 1, 8, 8), "kind": "snow", **change}
    images, kind = arguments.pop("images"), arguments.pop("kind")
    error = TypeError if "bytes" in message else ValueError
    with pytest.raises(error, match=message):
        corrupt(images, kind, **arguments)  # type: ignore[arg-type]


def test_alexnet_is_its_own_baseline():
    theirs = {kind: ALEXNET[kind] for kind in CORRUPTIONS}
    assert mean_corruption_error(theirs, baseline=ALEXNET) == pytest.approx(1)
    clean = ALEXNET["clean"]
    relative = mean_corruption_error(theirs, clean=clean, baseline=ALEXNET)
    assert relative == pytest.approx(1)
    # The mean of ratios, not the ratio of means.
    errors = {"fog": 0.2, "snow": [0.1, 0.3]}
    ratio = mean_corruption_error(errors, baseline={"fog": [0.4], "snow": 0.8})
    assert ratio == pytest.approx((0.5 + 0.25) / 2)
    assert mean_corruption_error(errors, clean=0.1) == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("errors", "options", "message"),
    [
        ({}, {}, "at least one kind"),
        ({"fog": 20.0}, {}, "divide percent by 100"),
        ({"fog": []}, {}, r"errors\['fog'\]: expected errors in"),
        ({"fog": 0.2}, {"clean": -0.1}, "clean"),
        ({"rain": 0.2}, {"baseline": ALEXNET}, "'rain' is missing"),
        ({"fog": 0.2}, {"clean": 0.1, "baseline": {"fog": 0.4}}, "'clean' is missing"),
        ({"fog": 0.2}, {"baseline": {"fog": 0.0}}, "above 0, got 0"),
    ],
)
def test_errors_that_cannot_be_averaged_are_named(errors, options, message):
    with pytest.raises(ValueError, match=message):
        mean_corruption_error(errors, **options)
