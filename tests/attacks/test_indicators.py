"""Each indicator of attack failure, on a network made to show it."""

import pytest
import torch

from robustbook.attacks import failure_indicators, pgd
from robustbook.datasets import load_dataset
from robustbook.models import load_model

OPTIONS = {"eps": 0.1, "steps": 20}


@pytest.fixture(scope="module")
def digits():
    return load_dataset("digits", "test").subset(range(60))


def linear(slope):
    """Two classes that differ by `slope` times the first pixel's distance to 0.5."""

    def logits(images):
        first = images.flatten(1)[:, :1] - 0.5
        return torch.cat([0 * first, slope * first], 1)

    return logits


def shares(model, images, labels=None, **options):
    found = failure_indicators(model, images, labels, **OPTIONS | options)
    assert all((mask <= found["failed"]).all() for mask in found.values())
    return {name: float(mask.double().mean()) for name, mask in found.items()}


def test_an_ordinary_network_has_no_masked_gradient(digits):
    model = load_model("digits-cnn-adv-s0")
    found = shares(model, digits.images, digits.labels)
    attacked = pgd(model, digits.images, digits.labels, **OPTIONS, progress=False)
    assert found["failed"] == attacked.robust_accuracy() > 0.3
    none = ("unavailable", "silent", "transfer", "unconstrained")
    assert [found[name] for name in none] == [0, 0, 0, 0]


def test_a_saturated_loss_has_no_gradient(digits):
    model = load_model("digits-cnn-s0")
    found = shares(lambda x: 1e4 * model(x), digits.images, digits.labels)
    assert found["unavailable"] > 0.9 * found["failed"] > 0.8


def test_a_network_that_answers_with_noise_is_unstable():
    draws = torch.Generator().manual_seed(0)

    def noisy(images):
        clean = linear(2.0)(images)
        return clean + 0.3 * torch.randn(clean.shape, generator=draws)

    images = torch.full((20, 1, 2, 2), 0.9)
    assert shares(noisy, images)["unstable"] > 0.9
    assert shares(linear(2.0), images)["unstable"] == 0


def test_a_loss_that_changes_at_half_of_the_nearby_points_is_unstable():
    def model(x):
        right = 2.0 - (x.flatten(1)[:, :1] > 0.5).double()
        return torch.cat([right + 0.0 * x.sum(), torch.zeros_like(right)], 1)

    images = torch.full((30, 1, 1, 1), 0.5, dtype=torch.float64)
    found = failure_indicators(model, images, eps=0.1, steps=2)
    # At a single point, this would be seen at half of the images.
    assert bool(found["unstable"].all())


def test_a_point_on_the_way_that_fooled_is_silent():
    def band(images):
        """Wrong between 0.3 and 0.4 only, with a slope toward 0."""
        first = images.flatten(1)[:, :1]
        sign = torch.where((first > 0.3) & (first < 0.4), -1.0, 1.0)
        return torch.cat([0 * first, sign * first.abs()], 1)

    images = torch.full((5, 1, 1, 1), 0.5)
    labels = torch.ones(5, dtype=torch.long)
    found = shares(band, images, labels, eps=0.3, steps=40)
    assert found["silent"] == found["failed"] > 0


def test_steps_that_are_too_few_are_incomplete(digits):
    model = load_model("digits-cnn-adv-s0")
    batch = digits.images, digits.labels
    few, many = (shares(model, *batch, eps=0.02, steps=n) for n in (2, 100))
    assert few["incomplete"] > 0.5 > many["incomplete"]


def test_a_surrogate_may_fall_alone():
    images = torch.full((4, 1, 1, 1), 0.55)
    found = shares(
        linear(1.0),
        images,
        surrogate=linear(-1.0),
        labels=torch.ones(4, dtype=torch.long),
    )
    assert found["failed"] == 1
    assert found["unconstrained"] == 1
    assert shares(linear(1.0), images, surrogate=linear(1.0))["failed"] == 0


def test_bad_arguments_are_refused(digits):
    with pytest.raises(ValueError, match="8/255"):
        failure_indicators(linear(1.0), digits.images, eps=8)
