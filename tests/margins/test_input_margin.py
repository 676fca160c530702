"""Input margins: exact on linear models, never below the truth."""

import numpy as np
import pytest
import torch

from robustbook.attacks import apgd, fab, fmn
from robustbook.margins import input_margin


@pytest.fixture(scope="module")
def measured(digits):
    """Margins of the first 20 images."""
    model, images, _ = digits
    return input_margin(model, images[:20])


@pytest.mark.parametrize("norm", ["linf", "l2"])
@pytest.mark.parametrize("problem", ["three", "ten", "hundred"])
def test_exact_on_linear_models(request, problem, norm):
    model = request.getfixturevalue(problem)
    result = input_margin(model, model.images, norm=norm)
    exact = getattr(model, norm)
    excess = result.margins / exact - 1
    assert float(excess.max()) < 0.01
    assert float(excess.min()) > -1e-5
    assert (result.norm, result.margins.dtype) == (norm, torch.float64)


def test_one_target_is_enough_on_linear_models(ten):
    """Classes are ranked by first-order distance, not by likelihood."""
    result = input_margin(ten, ten.images, targets=1)
    assert float((result.margins / ten.linf).max()) < 1.01


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_attributes_of_the_result(digits, measured, norm):
    model, images = digits[0], digits[1][:20]
    result = measured if norm == "linf" else input_margin(model, images, norm=norm)
    with torch.no_grad():
        before, after = model(images).argmax(1), model(result.adversarial).argmax(1)
    assert bool((before != after).all())
    assert float(result.adversarial.min()) >= 0
    assert float(result.adversarial.max()) <= 1
    moved = (result.adversarial - images).double().flatten(1)
    size = torch.linalg.vector_norm(moved, ord=2 if norm == "l2" else torch.inf, dim=1)
    torch.testing.assert_close(result.margins, size)
    assert not bool(result.failed.any())


def test_every_batch_size_finds_another_class(digits, measured):
    """The adversarial inputs are farther beyond the boundary than rounding."""
    model, images, _ = digits
    for size in (1, 7, 20):
        parts = images[:20].split(size), measured.adversarial.split(size)
        for clean, attacked in zip(*parts, strict=True):
            assert bool((model(clean).argmax(1) != model(attacked).argmax(1)).all())
    other = input_margin(model, images[:20], batch_size=7)
    assert float((other.margins / measured.margins - 1).abs().median()) < 0.005
    torch.testing.assert_close(other.margins, measured.margins, rtol=0.1, atol=0)


def test_no_attack_of_fixed_size_beats_it_by_much(digits, measured):
    """APGD finds nothing within 97 % of the margin, and something within 103 %."""
    model, images, _ = digits
    inside, outside = 0, 0
    order = measured.margins.argsort()
    for row in order[::6].tolist():
        one, size = images[row : row + 1], float(measured.margins[row])
        options = {"loss": "targeted", "steps": 40}
        inside += int(apgd(model, one, eps=0.97 * size, **options).success[0])
        outside += int(apgd(model, one, eps=1.03 * size, **options).success[0])
    assert inside == 0
    assert outside == 4


def test_labels_put_zero_where_the_model_is_wrong(digits):
    model, images, labels = digits
    shifted = labels.clone()
    shifted[:3] = (labels[:3] + 1) % 10
    with torch.no_grad():
        wrong = model(images).argmax(1) != shifted
    assert 3 <= int(wrong.sum()) < 20
    options = {"steps": 10, "refine_steps": 10}
    result = input_margin(model, images, shifted, **options)
    assert bool((result.margins[wrong] == 0).all())
    assert torch.equal(result.adversarial[wrong], images[wrong])
    plain = input_margin(model, images, **options)
    assert bool((plain.margins > 0).all())
    torch.testing.assert_close(
        result.margins[~wrong], plain.margins[~wrong], rtol=0.05, atol=0
    )


def test_failure_is_infinite_never_zero():
    """A model that always answers the same has no boundary."""
    weight = torch.zeros(16, 3)

    def constant(x):
        return x.flatten(1) @ weight + torch.tensor([0.0, 1.0, 0.5])

    images = torch.rand(4, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    result = input_margin(constant, images)
    assert bool(torch.isinf(result.margins).all())
    assert bool(result.failed.all())
    assert torch.equal(result.adversarial, images)


def test_vanishing_gradients_do_not_stop_it():
    """FMN and FAB need a gradient, and here the last image has none at all."""

    def saturated(images):
        score = 40 * (images.flatten(1).mean(1) - 0.5)
        return torch.stack([torch.tanh(score), -torch.tanh(score)], dim=1)

    images = torch.full((3, 1, 2, 2), 0.5)
    images += torch.tensor([0.1, 0.2, 0.3]).reshape(3, 1, 1, 1)
    assert bool(torch.isinf(fmn(saturated, images).norms[2]))
    assert bool(torch.isinf(fab(saturated, images).norms[2]))
    result = input_margin(saturated, images)
    np.testing.assert_allclose(result.margins, [0.1, 0.2, 0.3], rtol=0.01)

    def halves(images):
        upper, lower = images.flatten(1).chunk(2, dim=1)
        return saturated(0.5 + upper - lower)

    # Of black, gray, white and the negative, only the last is of another class.
    image = torch.tensor([0.8, 0.8, 0.2, 0.2]).reshape(1, 1, 2, 2)
    assert float(input_margin(halves, image).margins[0]) == pytest.approx(0.3, rel=0.01)


def test_random_models_are_seeded_and_left_alone(digits):
    model, images, _ = digits
    kept = images.clone()

    def noisy(x):
        return model(x + 0.01 * torch.randn_like(x))

    options = {"batch_size": 10, "steps": 3, "refine_steps": 3}
    first = input_margin(noisy, images[:20], **options)
    torch.manual_seed(0)
    state = torch.random.get_rng_state()
    second = input_margin(noisy, images[:20], **options)
    assert torch.equal(first.margins, second.margins)
    other = input_margin(noisy, images[:20], seed=1, **options)
    assert not torch.equal(first.margins, other.margins)
    assert torch.equal(state, torch.random.get_rng_state())
    assert torch.equal(images, kept)


def test_numpy_double_one_image_and_inference_mode(ten):
    plain = input_margin(ten, ten.images[:1]).margins
    with torch.inference_mode():
        assert torch.equal(plain, input_margin(ten, ten.images[:1]).margins)
    array = ten.images[:1].double().numpy()
    double = input_margin(lambda x: ten(x.float()), array)
    torch.testing.assert_close(double.margins, plain, rtol=1e-3, atol=0)
    assert double.adversarial.dtype == torch.float64


BAD = {
    "targets": 0, "steps": 0, "refine_steps": -1, "norm": "l1",
    "batch_size": 0, "labels": [0.5] * 3, "images": torch.zeros(2, 4).long(),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_bad_input(ten, name):
    with pytest.raises((TypeError, ValueError), match=f"^{name}: expected"):
        input_margin(ten, **{"images": ten.images[:3], name: BAD[name]})
