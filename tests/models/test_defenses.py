"""JPEG and Reverse Sigmoid: what they compute, and what attacks see of them."""

import io
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from robustbook.datasets import data_directory, load_dataset
from robustbook.models import JPEGReverseSigmoid as Defense
from robustbook.models import (
    Mirrored,
    features_of,
    jpeg_compress,
    load_model,
    logits_of,
    reverse_sigmoid,
)


@pytest.fixture
def images():
    generator = torch.Generator().manual_seed(0)
    return torch.rand(4, 3, 16, 16, generator=generator)


@pytest.fixture(scope="module")
def model():
    return load_model("digits-cnn")


@pytest.fixture(scope="module")
def digits():
    return load_dataset("digits", "test").subset(range(60))


def naive_reverse_sigmoid(logits, beta, gamma):
    """Lee et al.'s formula from probabilities, in NumPy."""
    y = np.exp(logits - logits.max(1, keepdims=True))
    y = np.clip(y / y.sum(1, keepdims=True), 1e-9, 1 - 1e-9)
    lost = beta * (1 / (1 + np.exp(-gamma * np.log(y / (1 - y)))) - 0.5)
    perturbed = np.clip(y - lost, 1e-9, 1)
    return perturbed / perturbed.sum(1, keepdims=True)


# -------------------------------------------------------------------------- JPEG


@pytest.mark.parametrize("channels", [1, 3])
def test_jpeg_is_pillows(images, channels):
    images = images[:, :channels]
    result = jpeg_compress(images, quality=30)
    for image, compressed in zip(images, result, strict=True):
        pixels = (image.permute(1, 2, 0).numpy() * 255).round().astype(np.uint8)
        buffer = io.BytesIO()
        picture = Image.fromarray(pixels[:, :, 0] if channels == 1 else pixels)
        picture.save(buffer, "JPEG", quality=30)
        expected = np.asarray(Image.open(buffer)).reshape(pixels.shape) / 255
        np.testing.assert_allclose(compressed.permute(1, 2, 0), expected, atol=1e-7)


def test_jpeg_keeps_dtype_and_clips(images):
    wide = images.double() * 3 - 1
    result = jpeg_compress(wide)
    assert result.dtype == torch.float64
    assert 0 <= float(result.min()) <= float(result.max()) <= 1
    torch.testing.assert_close(result, jpeg_compress(wide.clamp(0, 1)))
    assert jpeg_compress(images[:0]).shape == (0, 3, 16, 16)


@pytest.mark.parametrize(("straight_through", "slope"), [(True, 1.0), (False, 0.0)])
def test_jpeg_gradient(images, straight_through, slope):
    images.requires_grad_()
    result = jpeg_compress(images, straight_through=straight_through)
    (gradient,) = torch.autograd.grad(result.sum(), images)
    assert torch.equal(gradient, torch.full_like(images, slope))


@pytest.mark.parametrize(
    ("change", "options", "error", "message"),
    [
        (lambda x: x[:, :2], {}, ValueError, r"expected shape .* got \(4, 2, 16, 16\)"),
        (lambda x: x[0], {}, ValueError, "expected shape"),
        (lambda x: (x * 255).to(torch.uint8), {}, TypeError, r"dtype torch\.uint8"),
        (lambda x: x * float("nan"), {}, ValueError, "NaN or inf"),
        (lambda x: x, {"quality": 0}, ValueError, "at least 1, got 0"),
        (lambda x: x, {"quality": 96}, ValueError, "at most 95, got 96"),
        (lambda x: x, {"quality": 7.5}, TypeError, "expected an integer"),
    ],
)
def test_jpeg_refuses(images, change, options, error, message):
    with pytest.raises(error, match=message):
        jpeg_compress(change(images), **options)


# --------------------------------------------------------------- Reverse Sigmoid


@pytest.mark.parametrize(("beta", "gamma"), [(1.0, 0.1), (0.7, 0.2), (0.0, 0.1)])
def test_reverse_sigmoid_is_the_formula(beta, gamma):
    logits = torch.randn(50, 7, generator=torch.Generator().manual_seed(0)) * 5
    result = reverse_sigmoid(logits.double(), beta=beta, gamma=gamma)
    expected = naive_reverse_sigmoid(logits.double().numpy(), beta, gamma)
    np.testing.assert_allclose(result.exp().numpy(), expected, rtol=1e-6)


def test_reverse_sigmoid_of_saturated_float32_keeps_the_prediction():
    logits = torch.tensor([[0.0, 500.0, 3.0], [-90.0, 10.0, 100.0]])
    result = reverse_sigmoid(logits)
    assert result.dtype == torch.float32
    assert result.argmax(1).tolist() == [1, 2]
    torch.testing.assert_close(result.exp().sum(1), torch.ones(2))


@given(st.lists(st.floats(-50, 50), min_size=2, max_size=12))
def test_confident_predictions_stay(row):
    logits = torch.tensor([row], dtype=torch.float64)
    y, prediction = logits.softmax(1).max(1)
    result = reverse_sigmoid(logits)
    assert torch.isfinite(result).all()
    if float(y) > 0.5 + 1e-9:
        assert result.argmax(1).equal(prediction)


def test_reverse_sigmoid_gradients():
    logits = torch.randn(6, 5, dtype=torch.float64, requires_grad=True)
    true_slope = partial(reverse_sigmoid, straight_through=False)
    assert torch.autograd.gradcheck(true_slope, logits)
    weights = torch.randn(6, 5, dtype=torch.float64)
    (seen,) = torch.autograd.grad((reverse_sigmoid(logits) * weights).sum(), logits)
    (true,) = torch.autograd.grad((logits.log_softmax(1) * weights).sum(), logits)
    torch.testing.assert_close(seen, true)
    saturated = torch.tensor([[100.0, 0.0]], requires_grad=True)
    (gradient,) = torch.autograd.grad(true_slope(saturated)[0, 1], saturated)
    assert torch.equal(gradient, torch.zeros(1, 2))
    (gradient,) = torch.autograd.grad(reverse_sigmoid(saturated)[0, 1], saturated)
    torch.testing.assert_close(gradient, torch.tensor([[-1.0, 1.0]]))


ZERO = torch.zeros(3, 2)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: reverse_sigmoid(ZERO.long()), TypeError, "dtype torch.int64"),
        (lambda: reverse_sigmoid(ZERO[:, :1]), ValueError, "at least 2 classes"),
        (lambda: reverse_sigmoid(torch.eye(2).log()), ValueError, "NaN or inf"),
        (lambda: reverse_sigmoid(ZERO, beta=-1), ValueError, "beta: .* got -1"),
        (lambda: reverse_sigmoid(ZERO, gamma=-1), ValueError, "gamma: .* got -1"),
        (lambda: Defense(None, quality=100), ValueError, "at most 95"),
        (lambda: Defense(None, beta=-1), ValueError, "beta"),
    ],
)
def test_what_has_no_meaning_is_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()


# --------------------------------------------------------------------- the wrapper


def test_wrapper_is_both_around_the_model(model, digits):
    defended = Defense(model, quality=80, beta=0.8, gamma=0.2)
    inner = logits_of(model, jpeg_compress(digits.images, quality=80))
    expected = reverse_sigmoid(inner, beta=0.8, gamma=0.2)
    torch.testing.assert_close(logits_of(defended, digits.images), expected)
    confidence = logits_of(defended, digits.images).softmax(1).amax(1)
    assert confidence.mean() < 0.5 * inner.softmax(1).amax(1).mean()


def test_surrogate_is_all_but_the_reverse_sigmoid(model, digits):
    defended = Defense(model, quality=60).eval()
    surrogate = defended.surrogate
    expected = logits_of(model, jpeg_compress(digits.images, quality=60))
    assert torch.equal(logits_of(surrogate, digits.images), expected)
    assert not surrogate.training
    assert Defense(torch.nn.Identity()).train().surrogate.training
    sure = expected.softmax(1).amax(1) > 0.5
    same = logits_of(defended, digits.images).argmax(1) == expected.argmax(1)
    assert same[sure].all()
    images = digits.images.clone().requires_grad_()
    for hidden in (True, False):
        defended.straight_through = not hidden
        (gradient,) = torch.autograd.grad(defended.surrogate(images).sum(), images)
        assert (gradient != 0).any()
        (gradient,) = torch.autograd.grad(defended(images)[:, 0].sum(), images)
        assert bool((gradient == 0).all()) == hidden


# -------------------------------------------------------------- the mirror image


def test_a_mirrored_model_averages_logits_and_gradients(model, digits):
    images = digits.images[:20].requires_grad_()
    expected = (model(images) + model(images.flip(3))) / 2
    found = Mirrored(model)(images)
    torch.testing.assert_close(found, expected)
    one, other = (
        torch.autograd.grad(logits[:, 3].sum(), images)[0]
        for logits in (found, expected)
    )
    torch.testing.assert_close(one, other)
    assert not torch.allclose(found, model(images), atol=0.1)


def test_features_of_two_images_are_not_taken_for_one(digits):
    with pytest.raises(ValueError, match="one row an image, got 10 rows for 5"):
        features_of(load_model("digits-cnn+mirrored"), digits.images[:5])


# --------------------------------------------------------- a name, and a suffix


def test_a_defense_behind_a_name_wraps_the_model(digits):
    inner = load_model("digits-linear-s2")
    folder = data_directory() / "checkpoints"
    once, twice = (
        load_model(f"digits-linear-s2{suffix}", directory=folder)
        for suffix in ("+jpeg-rs", "+jpeg-rs+jpeg-rs")
    )
    assert not any(module.training for module in once.modules())
    assert not any(p.requires_grad for p in once.parameters())
    mirrored = load_model("digits-linear-s2+mirrored+jpeg-rs", directory=folder)
    for named, expected in (
        (once, Defense(inner)),
        (twice, Defense(Defense(inner))),
        (mirrored, Defense(Mirrored(inner))),
    ):
        shown = logits_of(expected, digits.images)
        assert torch.equal(logits_of(named, digits.images), shown)


@pytest.mark.parametrize("name", ["digits-cnn+oak", "digits-cnn+", "+jpeg-rs", "+"])
def test_unknown_defenses_are_named(name):
    with pytest.raises(ValueError, match=r'"NAME\+mirrored"\); got ') as caught:
        load_model(name)
    assert repr(name) in str(caught.value)
    with pytest.raises(ValueError, match="got 'oak'"):
        load_model("oak+jpeg-rs")
