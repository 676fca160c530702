"""Losses of learners, and what is done to images, against their definitions."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812

from robustbook.models import build_model
from robustbook.training import (
    ERM,
    IRM,
    LISA,
    Pairing,
    add_gaussian_noise,
    adversarial_loss,
    cross_entropy_loss,
)
from robustbook.training._learners import _cutmix, irm_penalty, partners
from robustbook.training._losses import gradient_norm_loss, mirror_and_shift

from .conftest import generator


class Recorder(nn.Module):
    """Logits that are a linear function of two pixels; keeps what it saw."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(2, 3)
        self.seen = None

    def forward(self, images):
        self.seen = images.detach().clone()
        return self.linear(images.flatten(1)[:, :2])


@pytest.fixture
def batch():
    torch.manual_seed(0)
    model = Recorder()
    images = torch.rand(2, 40, 1, 8, 8)
    labels = torch.randint(3, (2, 40))
    return model, images, labels


def test_the_penalty_is_the_squared_derivative_by_a_factor_of_the_logits():
    torch.manual_seed(1)
    logits = (3 * torch.randn(30, 4, dtype=torch.float64)).requires_grad_()
    labels = torch.randint(4, (30,))
    factor = torch.ones((), dtype=torch.float64, requires_grad=True)
    risk = F.cross_entropy(factor * logits, labels)
    (slope,) = torch.autograd.grad(risk, factor, create_graph=True)
    expected = slope.square()
    torch.testing.assert_close(irm_penalty(logits, labels), expected)
    (theirs,) = torch.autograd.grad(expected, logits)
    (ours,) = torch.autograd.grad(irm_penalty(logits, labels), logits)
    torch.testing.assert_close(ours, theirs)


def test_erm_and_irm_are_the_mean_risk_of_the_domains_and_their_penalty(batch):
    model, images, labels = batch
    domains = [(model(x), y) for x, y in zip(images, labels, strict=True)]
    risk = sum(F.cross_entropy(*domain) for domain in domains) / 2
    penalty = sum(irm_penalty(*domain) for domain in domains) / 2
    for learner, epoch, expected in (
        (ERM(), 0, risk),
        (IRM(weight=0.5), 0, risk + 0.5 * penalty),
        (IRM(weight=20.0), 0, (risk + 20 * penalty) / 20),
        (IRM(weight=20.0, warmup_epochs=3), 2, risk + penalty),
        (IRM(weight=20.0, warmup_epochs=3), 3, (risk + 20 * penalty) / 20),
        (IRM(weight=0.5, warmup_epochs=3), 0, risk + 0.5 * penalty),
        (IRM(weight=0.0), 0, risk),
    ):
        draws = generator()
        loss, plain = learner.loss(model, images, labels, epoch=epoch, generator=draws)
        torch.testing.assert_close(loss, expected)
        torch.testing.assert_close(plain, risk)


@pytest.mark.parametrize("across", [True, False])
def test_partners_are_of_the_other_kind_in_just_one_respect(across):
    torch.manual_seed(3)
    labels = torch.randint(3, (2, 60))
    partner = partners(labels, across, generator())
    domain = torch.arange(2).repeat_interleave(60)
    label = labels.flatten()
    same_label = label == label[partner]
    same_domain = domain == domain[partner]
    same, other = (same_label, same_domain) if across else (same_domain, same_label)
    assert bool(same.all())
    assert not bool(other.any())
    assert len(set(partner.tolist())) > 40
    # Who has no partner stays alone.
    alone = torch.tensor([[0, 0], [1, 1]])
    assert partners(alone, across, generator()).tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_lisa_mixes_across_domains_as_often_as_said(share):
    # One pixel says the domain, another the label: what is mixed shows in them.
    labels = torch.arange(12).repeat(2, 1) % 3
    images = torch.zeros(2, 12, 1, 8, 8)
    images[1, :, :, 0, 0] = 1.0
    images[:, :, 0, 0, 1] = labels / 2
    model, draws = Recorder(), generator(5)
    crossed = 0
    for _ in range(200):
        LISA(across_domains=share).loss(model, images, labels, epoch=0, generator=draws)
        pixel = model.seen[:, 0, 0, 0]
        mixed_domains = bool(((pixel > 0) & (pixel < 1)).any())
        own_label = torch.equal(model.seen[:, 0, 0, 1], labels.flatten() / 2)
        assert mixed_domains == own_label
        crossed += mixed_domains
    assert abs(crossed / 200 - share) < 0.1


def test_lisa_is_the_cross_entropy_with_soft_labels(batch):
    model, images, labels = batch
    loss, _ = LISA(across_domains=0.0).loss(
        model, images, labels, epoch=0, generator=generator(3)
    )
    draws = generator(3)
    torch.rand((), generator=draws)
    partner = partners(labels, False, draws)
    mixed = model.seen.flatten(1)
    first = images.flatten(0, 1).flatten(1)
    weight = ((mixed - first[partner]) / (first - first[partner]))[:, 5]
    torch.testing.assert_close(weight, weight[:1].expand_as(weight), rtol=1e-2, atol=0)
    weight = float(weight.median())
    one_hot = F.one_hot(labels.flatten(), 3).float()
    soft = weight * one_hot + (1 - weight) * one_hot[partner]
    torch.testing.assert_close(
        loss, F.cross_entropy(model(model.seen), soft), rtol=1e-4, atol=1e-5
    )


def test_cutmix_pastes_one_rectangle_and_says_its_share():
    torch.manual_seed(4)
    first, second = torch.rand(3, 2, 20, 30), 2 + torch.rand(3, 2, 20, 30)
    weights = []
    for seed in range(200):
        mixed, weight = _cutmix(first, second, 0.6, generator(seed))
        pasted = mixed == second
        assert torch.equal(mixed[~pasted], first[~pasted])
        assert float((~pasted).float().mean()) == pytest.approx(weight)
        rows, columns = pasted[0, 0].any(1), pasted[0, 0].any(0)
        assert int(pasted[0, 0].sum()) == int(rows.sum()) * int(columns.sum())
        weights.append(weight)
    assert min(weights) == pytest.approx(0.6, abs=0.05)  # whole, if not at the edge
    assert max(weights) > 0.75


# ------------------------------------------------------------- of one classifier


def linear_case():
    """A linear model, images away from black and white, labels, a generator."""
    draws = generator()
    model = build_model("linear", seed=0, options={"size": 2, "num_classes": 2})
    images = 0.4 + 0.2 * torch.rand(40, 1, 2, 2, generator=draws)
    return model, images, torch.randint(2, (40,), generator=draws), draws


def test_adversarial_loss_of_a_linear_model_is_the_worst_one():
    """With two classes, the worst case is exact: every pixel moves by eps."""
    model, images, labels, generator = linear_case()
    eps = 0.125
    (parameters,) = [p for p in model.parameters() if p.ndim == 2]
    toward = (parameters[1 - labels] - parameters[labels]).sign()
    worst = images + eps * toward.reshape(images.shape)
    expected = cross_entropy_loss(model, worst, labels, generator)
    value = adversarial_loss(eps=eps, steps=5)(model, images, labels, generator)
    torch.testing.assert_close(value, expected)
    assert value > cross_entropy_loss(model, images, labels, generator)
    few = adversarial_loss(eps=eps, steps=1, step_size=eps / 100)
    assert few(model, images, labels, generator) < value


def test_attacked_images_stay_in_ball_and_box():
    model, images, labels, generator = linear_case()
    images = images.round()  # black and white
    seen = []

    def spy(batch):
        seen.append(batch.detach().clone())
        return model(batch)

    adversarial_loss(eps=0.3, steps=4)(spy, images, labels, generator)
    assert len(seen) == 5
    for attacked in seen:
        assert 0 <= float(attacked.min()) <= float(attacked.max()) <= 1
        assert float((attacked - images).abs().max()) <= 0.3 + 1e-6
    assert not torch.equal(seen[0], images)  # a random start


def test_adversarial_loss_writes_gradients_by_its_own_backward_only():
    model, images, labels, generator = linear_case()
    value = adversarial_loss(eps=0.1)(model, images, labels, generator)
    assert all(p.grad is None for p in model.parameters())
    value.backward()
    assert all(p.grad is not None for p in model.parameters())
    assert images.grad is None
    assert not images.requires_grad


def test_gradient_norm_of_a_linear_model_is_the_closed_one():
    """The gradient of a softmax regression's loss is W^T (p - y)."""
    model, images, labels, generator = linear_case()
    weights, bias = model.linear.weight, model.linear.bias
    error = (images.flatten(1) @ weights.T + bias).softmax(1)
    error = error - torch.eye(2)[labels]
    penalty = (error @ weights).square().sum(1).mean()
    plain = cross_entropy_loss(model, images, labels, generator)
    value = gradient_norm_loss(weight=3.0)(model, images, labels, generator)
    torch.testing.assert_close(value, plain + 3 * penalty)
    (found,) = torch.autograd.grad(value, weights, retain_graph=True)
    (expected,) = torch.autograd.grad(plain + 3 * penalty, weights)
    torch.testing.assert_close(found, expected)
    assert not images.requires_grad


def test_noise_has_the_stated_strength():
    images = torch.full((200, 1, 8, 8), 0.5)
    generator = torch.Generator().manual_seed(0)
    noisy = add_gaussian_noise(images, 0.1, generator=generator)
    assert float((noisy - images).std()) == pytest.approx(0.1, rel=0.02)
    clipped = add_gaussian_noise(images, 2.0, generator=generator)
    assert float(clipped.min()) == 0.0
    assert float(clipped.max()) == 1.0
    assert torch.equal(add_gaussian_noise(images, 0.0, generator=generator), images)


def test_mirrored_and_shifted_images():
    draws = generator()
    image = 1 + torch.arange(2 * 4 * 4.0).reshape(2, 4, 4)
    many = image.expand(500, 2, 4, 4)
    unmoved = mirror_and_shift(many, 0, generator=draws)
    mirrored = (unmoved == many.flip(3)).flatten(1).all(1)
    assert torch.equal((unmoved == many).flatten(1).all(1), ~mirrored)
    assert 200 < int(mirrored.sum()) < 300
    # All shifts by up to one pixel of both, and no other.
    padded = torch.nn.functional.pad(image, (1, 1, 1, 1))
    possible = {
        window.flatten().numpy().tobytes()
        for down in range(3)
        for right in range(3)
        for window in [padded[:, down : down + 4, right : right + 4]]
        for window in (window, window.flip(2))
    }
    moved = mirror_and_shift(many, 1, generator=draws)
    found = {one.flatten().numpy().tobytes() for one in moved.contiguous()}
    assert found == possible
    assert len(possible) == 18


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: IRM(weight=-1.0), "weight: expected a finite number of at"),
        (lambda: IRM(warmup_epochs=-1), "warmup_epochs: expected"),
        (lambda: LISA(across_domains=1.5), "across_domains: expected a number in"),
        (lambda: LISA(alpha=0.0), "alpha: expected a positive"),
        (lambda: LISA(mix="blend"), "mix: expected one of mixup, cutmix"),
        (lambda: gradient_norm_loss(weight=0.0), "weight: expected"),
        (lambda: gradient_norm_loss(weight=-1.0), "weight: expected"),
        (lambda: gradient_norm_loss(weight=math.inf), "weight: expected"),
        (lambda: Pairing("cosine"), "penalty: expected one of"),
        (lambda: Pairing(weight=-1.0), "weight: expected"),
        (lambda: Pairing(noise_std=math.inf), "noise_std: expected"),
        (lambda: Pairing(memory=2.0), "memory: expected"),
        (lambda: Pairing(share=-0.1), "share: expected"),
        (lambda: adversarial_loss(eps=0), "eps: expected"),
        (lambda: adversarial_loss(eps=0.1, steps=0), "steps: expected"),
        (lambda: adversarial_loss(eps=0.1, step_size=0), "step_size: expected"),
        (
            lambda: add_gaussian_noise(torch.ones(1), -1, generator=None),
            "std: expected",
        ),
    ],
)
def test_what_has_no_meaning_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
