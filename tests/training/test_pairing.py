"""Pairing losses against their definitions, and the running temperature."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812

from robustbook.agreement import agreement_loss, posterior_agreement
from robustbook.training import (
    AttackedView,
    OtherDomain,
    Pairing,
    add_gaussian_noise,
    train_domains,
)
from robustbook.training._pairing import PENALTIES

from .conftest import generator


def batch(seed=0):
    draws = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 3))
    images = torch.rand(1, 60, 1, 8, 8, generator=draws)
    return model, images, torch.randint(3, (1, 60), generator=draws)


def sides(model, images, std):
    noisy = add_gaussian_noise(images[0], std, generator=generator())
    return model(images[0]), model(noisy)


def entropy(p):
    return -(p * p.log()).sum(1).mean()


BY_HAND = {
    "logits": lambda f, g: ((f - g) ** 2).sum() / len(f),
    "kl": lambda f, g: (
        (f.softmax(1) * (f.softmax(1).log() - g.softmax(1).log())).sum() / len(f)
    ),
    "js": lambda f, g: (
        entropy((f.softmax(1) + g.softmax(1)) / 2)
        - (entropy(f.softmax(1)) + entropy(g.softmax(1))) / 2
    ),
    "agreement": lambda f, g: -posterior_agreement(f, g).pa,
}


@pytest.mark.parametrize("penalty", sorted(BY_HAND))
def test_the_loss_is_both_cross_entropies_and_the_penalty(penalty):
    assert set(BY_HAND) == set(PENALTIES)
    model, images, labels = batch()
    pairing = Pairing(penalty, weight=2.0, noise_std=0.5)
    loss, risk = pairing.loss(model, images, labels, epoch=0, generator=generator())
    clean, noisy = sides(model, images, 0.5)
    own = F.cross_entropy(clean, labels[0]), F.cross_entropy(noisy, labels[0])
    torch.testing.assert_close(risk, (own[0] + own[1]) / 2)
    by_hand = torch.as_tensor(BY_HAND[penalty](clean, noisy)).float()
    torch.testing.assert_close(loss - risk, 2 * by_hand, rtol=1e-4, atol=1e-5)
    assert loss.requires_grad


def test_the_other_view_is_what_the_shift_makes_and_counts_by_its_share():
    def shift(model, images, labels, generator):
        return 1 - images

    model, images, labels = batch()
    pairing = Pairing(weight=0.0, shift=shift, share=0.2)
    loss, _ = pairing.loss(model, images, labels, epoch=0, generator=generator())
    own, other = (
        F.cross_entropy(model(x), labels[0]) for x in (images[0], 1 - images[0])
    )
    torch.testing.assert_close(loss, 0.8 * own + 0.2 * other)


@pytest.mark.parametrize("known", [True, False])
def test_attacked_views_stay_in_the_ball_and_are_harder(known):
    model, images, labels = batch()
    view = AttackedView(eps=0.1, steps=9, labels=known)(
        model, images, labels, generator()
    )
    assert view.shape == images.shape
    assert float((view - images).abs().max()) <= 0.1 + 1e-6
    own, attacked = model(images[0]), model(view[0])
    if known:
        loss = F.cross_entropy(own, labels[0])
        assert F.cross_entropy(attacked, labels[0]) > 1.1 * loss
    # Noise of that size, and an attack that goes the other way, change less.
    noise = 0.1 * (2 * torch.rand(images.shape, generator=generator()) - 1)
    change = BY_HAND["kl"](own, model((images + noise)[0]))
    assert BY_HAND["kl"](own, attacked) > 2 * change


def test_views_of_the_other_domain_keep_the_class():
    labels = torch.tensor([[0, 1, 2], [2, 1, 1]])
    images = torch.arange(6.0).reshape(2, 3, 1, 1, 1)
    view = OtherDomain()(nn.Identity(), images, labels, generator())
    place = view.flatten().long()
    assert torch.equal(labels.flatten()[place], labels.flatten())
    # The class 0 has nobody in the other domain.
    assert place[0] == 0
    assert (place[1:3] >= 3).all()
    assert (place[3:] < 3).all()


def test_the_running_temperature_is_the_mean_logarithm_of_those_before():
    model, images, labels = batch()
    draws = generator()
    pairing = Pairing(noise_std=1.0, memory=0.75, weight=1.0)
    betas, penalties = [], []
    for _ in range(4):
        state = draws.get_state()
        noisy = add_gaussian_noise(images[0], 1.0, generator=draws)
        draws.set_state(state)
        pair = model(images[0]).detach(), model(noisy).detach()
        betas.append(posterior_agreement(*pair).beta)
        loss, risk = pairing.loss(model, images, labels, epoch=0, generator=draws)
        penalties.append((float((loss - risk).detach()), pair))
    assert all(0 < beta < math.inf for beta in betas)
    running = math.log(betas[0])
    for place, (penalty, pair) in enumerate(penalties):
        expected = agreement_loss(*pair, beta=math.exp(running))
        assert penalty == pytest.approx(float(expected), abs=1e-5)
        if place:
            running = 0.75 * running + 0.25 * math.log(betas[place])


def test_batches_in_which_all_agree_leave_the_running_temperature():
    model, images, labels = batch()
    pairing, draws = Pairing(noise_std=0.0), generator()
    loss, risk = pairing.loss(model, images, labels, epoch=0, generator=draws)
    assert float((risk - loss).detach()) == pytest.approx(math.log(3), abs=1e-5)
    assert "log beta" not in pairing._running


def test_a_new_epoch_or_another_training_begins_with_its_own_temperature():
    model, images, labels = batch()
    pairing = Pairing(noise_std=1.0)
    first = generator()
    pairing.loss(model, images, labels, epoch=0, generator=first)
    pairing._running["log beta"] = 50.0
    for epoch, draws in ((1, first), (1, generator(1))):
        state = draws.get_state()
        loss, risk = pairing.loss(model, images, labels, epoch=epoch, generator=draws)
        draws.set_state(state)
        own, plain = Pairing(noise_std=1.0, memory=0.0).loss(
            model, images, labels, epoch=epoch, generator=draws
        )
        torch.testing.assert_close(loss - risk, own - plain)
        pairing._running["log beta"] = 50.0


@pytest.mark.processor
def test_a_resumed_training_is_that_of_a_run_without_interruption(small, tmp_path):
    def train(epochs, path=None):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
        options = {"lr": 0.01, "seed": 0, "checkpoint": path, "progress": False}
        train_domains(model, Pairing(weight=0.1), [small], epochs=epochs, **options)
        return torch.cat([value.flatten() for value in model.parameters()])

    path = tmp_path / "state.pt"
    train(1, path)
    assert torch.equal(train(3, path).detach(), train(3).detach())


@pytest.mark.parametrize(
    ("options", "message"),
    [({"eps": "8/255"}, "eps: expected a posit"), ({"eps": 1, "steps": 2.5}, "steps")],
)
def test_an_attacked_view_is_checked_when_it_is_made(options, message):
    with pytest.raises(TypeError, match=message):
        AttackedView(**options)


@pytest.mark.parametrize("shift", ["noise", OtherDomain])
def test_a_shift_that_cannot_be_called_on_a_batch_is_refused_at_once(shift):
    with pytest.raises(TypeError, match="shift: expected a function"):
        Pairing(shift=shift)
