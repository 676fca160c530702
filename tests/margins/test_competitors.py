"""The margin of one backward pass."""

import pytest
import torch
from scipy import stats

from robustbook.margins import (
    gradient_normalized_margin,
    input_margin,
    logit_margin,
    margin_consistency,
)


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_exact_on_linear_models_and_better_than_logits_with_one_pass(ten, norm):
    exact = getattr(ten, norm)
    nearest = gradient_normalized_margin(ten, ten.images, norm=norm, nearest=True)
    torch.testing.assert_close(nearest, exact, rtol=1e-4, atol=0)
    plain = gradient_normalized_margin(ten, ten.images, norm=norm)
    assert bool((plain >= exact * (1 - 1e-4)).all())
    assert float((plain > 1.05 * exact).double().mean()) > 0.03
    # Slopes differ between classes here, which the logit margin ignores.
    free = margin_consistency(logit_margin(ten(ten.images)), exact).tau
    assert margin_consistency(plain, exact).tau > free + 0.05


def test_it_follows_measured_margins_of_a_network(digits):
    model, images, _ = digits
    margins = gradient_normalized_margin(model, images, batch_size=7)
    measured = input_margin(model, images, targets=1, steps=10, refine_steps=0)
    assert stats.spearmanr(margins, measured.margins).statistic > 0.8
    whole = gradient_normalized_margin(model, images)
    torch.testing.assert_close(margins, whole, rtol=1e-4, atol=1e-7)
    # The minimum over more classes can only be smaller.
    nearest = gradient_normalized_margin(model, images, nearest=True)
    assert bool((nearest <= whole * (1 + 1e-5)).all())
    # The scale of the logits makes no difference.
    scaled = gradient_normalized_margin(lambda x: 50 * model(x) + 3, images)
    torch.testing.assert_close(whole, scaled, rtol=1e-3, atol=1e-6)


def test_ties_zero_gradients_and_side_effects():
    weight = torch.tensor([[1.0, 1.0, 0.0], [0.0, 0.0, 0.0]], requires_grad=True)
    image = torch.tensor([[0.5, 0.5]])
    tied = gradient_normalized_margin(lambda x: x @ weight, image)
    assert tied.tolist() == [0.0]
    flat = gradient_normalized_margin(
        lambda x: x @ weight.detach() * 0 + torch.tensor([0.0, 1.0, 0.5]), image
    )
    assert flat.tolist() == [torch.inf]
    assert weight.grad is None
    assert not image.requires_grad
    with torch.no_grad():
        again = gradient_normalized_margin(lambda x: x @ weight, image)
    assert again.tolist() == [0.0]


@pytest.mark.parametrize(
    ("model", "image", "error", "message"),
    [
        (lambda x: x, torch.ones(1, 2).long(), TypeError, "images: expected float"),
        (lambda x: x, torch.rand(2), ValueError, r"images: expected shape \(N, ...\)"),
        (lambda x: x.detach(), torch.rand(1, 2), ValueError, "without a gradient"),
        (lambda x: x * torch.nan, torch.rand(1, 2), ValueError, "finite logits"),
        (lambda x: x[:, 0], torch.rand(1, 2), ValueError, "expected logits of shape"),
    ],
)
def test_bad_input(model, image, error, message):
    with pytest.raises(error, match=message):
        gradient_normalized_margin(model, image)


def test_in_inference_mode_and_in_place(ten):
    plain = gradient_normalized_margin(ten, ten.images)
    with torch.inference_mode():
        again = gradient_normalized_margin(lambda x: ten(x.mul_(1)), ten.images)
    assert torch.equal(plain, again)
