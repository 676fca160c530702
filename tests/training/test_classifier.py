"""Training is plain, leaves the global generator alone, and repeats exactly."""

import dataclasses
import math

import pytest
import torch

from robustbook.datasets import load_dataset
from robustbook.models import build_model, logits_of
from robustbook.scores import accuracy
from robustbook.training import (
    ERM,
    LISA,
    adversarial_loss,
    cross_entropy_loss,
    train_classifier,
)
from robustbook.training._loop import cosine, trapezoid
from robustbook.training._losses import gradient_norm_loss
from robustbook.training._retrain import _robustness


def trained(data, *, seed=0, epochs=2, **options):
    model = build_model("small-cnn", seed=seed)
    options = {"epochs": epochs, "lr": 0.003, "seed": seed, **options}
    return model, train_classifier(model, data, progress=False, **options)


@pytest.mark.parametrize(
    "options",
    [
        {"loss": ERM()},
        {"seed": 1},
        {"noise_std": 0.3},
        {"loss": adversarial_loss(eps=0.1, steps=2)},
        {"loss": gradient_norm_loss(weight=0.1)},
        {"loss": LISA(across_domains=0.0)},
    ],
    ids=["plain", "seed", "noise", "adversarial", "gradient", "mixed"],
)
def test_training_repeats_to_the_last_bit(small, same_weights, options):
    torch.manual_seed(1)
    first, losses = trained(small, **options)
    torch.manual_seed(2)
    state = torch.get_rng_state()
    second, again = trained(small, **options)
    assert losses == again
    assert same_weights(first, second)
    assert torch.equal(state, torch.get_rng_state())  # the global one is left alone
    # The learner of one domain is its loss; everything else trains otherwise.
    assert same_weights(first, trained(small)[0]) == (options == {"loss": ERM()})


def test_training_learns_and_leaves_the_data_alone(small):
    before = small.images.clone()
    model, losses = trained(small, epochs=20)
    assert losses[-1] < 0.5 * losses[0]
    assert not model.training
    assert accuracy(logits_of(model, small.images), small.labels) > 0.9
    trained(small, noise_std=0.5, epochs=1)
    assert torch.equal(before, small.images)


def test_the_loss_of_an_epoch_is_the_mean_over_its_images(small):
    """Though its last batch is smaller: weights hardly move at this rate."""
    model, (loss,) = trained(small, epochs=1, lr=1e-9)
    exact = cross_entropy_loss(model, small.images, small.labels, None)
    assert loss == pytest.approx(exact.item(), rel=1e-5)


def test_the_rates_are_those_of_torch():
    parameter = torch.nn.Parameter(torch.zeros(()))
    optimizer = torch.optim.SGD([parameter], lr=0.003)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=700)
    rates = []
    for _ in range(700):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    assert cosine(0.003, 700) == rates


def test_trapezoid():
    rates = trapezoid(2.0, 100, rise=10, fall=40)
    assert rates[9:61] == [2.0] * 52
    assert rates[0] == 0.2
    assert rates[80] == 1.0
    assert rates[99] == 0.05


def test_bad_options_no_images_and_divergence_are_named(small):
    options = {"epochs": 0, "lr": 0.0, "batch_size": -1, "noise_std": -0.1, "seed": -1}
    for option, value in options.items():
        with pytest.raises(ValueError, match=f"{option}: expected"):
            trained(small, **{option: value})
    with pytest.raises(ValueError, match="dataset: expected at least one image"):
        trained(small.subset([]))
    broken = dataclasses.replace(small, images=small.images * math.nan)
    with pytest.raises(FloatingPointError, match="nan in epoch 1 of 2"):
        trained(broken)


# ------------------------------------------------------------------ a long training


def test_held_out_images_are_not_trained_on(small, long):
    images = small.images.clone()
    images[0] = math.nan
    broken = dataclasses.replace(small, images=images)
    last = broken.subset([*range(1, 300), 0])
    # A model names no class for what is no number: the measure refuses it, not us.
    with pytest.raises(ValueError, match=r"finite|NaN|nan"):
        long(last)
    with pytest.raises(FloatingPointError, match="nan in epoch 1 of 4"):
        long(broken)
    with pytest.raises(ValueError, match="dataset: expected more than the 20 images"):
        long(small.subset(range(20)))


def test_a_long_adversarial_training_makes_robust(long):
    data = load_dataset("digits", "train")
    measure = _robustness(data.subset(range(len(data) - 100, len(data))), 0.1)
    attack = {"epochs": 15, "adversarial_steps": 2, "options": {"held_out": 100}}
    scores = {}
    for eps in (1e-9, 0.1):
        model, _ = long(data, adversarial_eps=eps, **attack)
        assert not model.training
        scores[eps] = measure(model)
    assert scores[1e-9]["held out/accuracy"] > 0.8
    assert scores[0.1]["held out/robust"] > scores[1e-9]["held out/robust"] + 0.1


def test_the_weights_are_averaged(small, same_weights, long):
    """With nothing kept, the average is the last model; else it is behind."""
    last, _ = long(small, epochs=2, options={"averaging": 0.0})
    assert not same_weights(last, long(small, epochs=2)[0])
