"""Attack once, keep the logits."""

from functools import partial

import numpy as np
import pytest
import torch

from robustbook import attacks
from robustbook.datasets import load_dataset
from robustbook.models import features_of, load_model, logits_of
from robustbook.studies import Attack, attack_model
from robustbook.studies.adversarial import _attack
from robustbook.studies.adversarial._attack import _halved

LINEAR, NETWORK = "digits-linear-s0", "digits-cnn-s0"


@pytest.fixture(scope="module")
def data():
    return load_dataset("digits", "test").subset(range(30))


@pytest.fixture
def attacked(tmp_path):
    """Attack with a cache of its own."""
    return partial(attack_model, directory=tmp_path)


def test_the_logits_are_those_of_the_attacked_images(data, attacked):
    result = attacked(NETWORK, Attack("pgd", 0.1, 5), data, seed=3)
    model = load_model(NETWORK).eval()
    by_hand = attacks.pgd(
        model, data.images, data.labels, eps=0.1, steps=5, seed=3, skip_errors=False
    )
    adversarial = by_hand.adversarial
    torch.testing.assert_close(result.logits, logits_of(model, data.images))
    torch.testing.assert_close(result.shifted_logits, logits_of(model, adversarial))
    torch.testing.assert_close(result.norms, by_hand.norms)
    half = {"rtol": 2e-3, "atol": 2e-3}
    features = features_of(model, adversarial)
    torch.testing.assert_close(result.shifted_features, features, **half)
    assert torch.equal(result.labels, data.labels)


def test_an_attack_runs_once(data, attacked, monkeypatch):
    attack = Attack("pgd", 0.1, 2)
    first = attacked(LINEAR, attack, data)
    monkeypatch.setitem(_attack._KINDS, "pgd", (None, {}))
    again = attacked(LINEAR, attack, data)
    assert torch.equal(first.shifted_logits, again.shifted_logits)
    with pytest.raises(TypeError):
        attacked(LINEAR, attack, data, seed=1)
    for model, images in (("digits-linear-s1", data), (LINEAR, data.subset(range(29)))):
        with pytest.raises(TypeError):
            attacked(model, attack, images)


def test_a_bound_selects_from_the_smallest_perturbations(data, attacked, tmp_path):
    free = attacked(NETWORK, Attack("fmn", None, 20), data)
    eps = float(free.norms[free.norms.isfinite()].median())
    bound = attacked(NETWORK, Attack("fmn", eps, 20), data)
    assert len(list(tmp_path.iterdir())) == 1
    inside = free.norms <= eps
    assert 0 < int(inside.sum()) < len(inside)
    assert torch.equal(bound.shifted_logits[inside], free.shifted_logits[inside])
    assert torch.equal(bound.shifted_logits[~inside], free.logits[~inside])
    assert bool(bound.norms[~inside].isinf().all())


@pytest.mark.parametrize(
    ("kind", "eps", "steps", "message"),
    [
        ("deepfool", 0.1, 5, "kind: expected one of pgd"),
        ("pgd", None, 5, "eps: expected a bound for pgd"),
        ("fmn", -1.0, 5, "eps: expected a number of at least 0"),
        ("fmn", float("nan"), 5, "eps: expected a number, got NaN"),
        ("pgd", 0.0, 5, "eps: expected a positive"),
        ("fab", None, 0, "steps: expected at least 1"),
    ],
)
def test_bad_settings_of_attacks_are_refused(kind, eps, steps, message):
    with pytest.raises(ValueError, match=message):
        Attack(kind, eps, steps)


def test_numbers_of_numpy_are_numbers(data, attacked, tmp_path):
    attack, few = Attack("pgd", np.float64(0.1), np.int64(2)), data.subset(range(3))
    assert attack == Attack("pgd", 0.1, 2)
    one = attacked(LINEAR, attack, few, seed=np.int64(1))
    same = attacked(LINEAR, Attack("pgd", 0.1, 2), few, seed=1)
    assert torch.equal(one.shifted_logits, same.shifted_logits)
    assert len(list(tmp_path.iterdir())) == 1


def test_a_model_without_surrogate_is_named(data, attacked):
    with pytest.raises(ValueError, match="with a surrogate for pgd-surrogate"):
        attacked(NETWORK, Attack("pgd-surrogate", 0.1, 2), data)


# -------------------------------------------------------------------- features


def test_features_give_the_logits_back():
    model = load_model(NETWORK).eval()
    images = load_dataset("digits", "test").images[:5]
    features = features_of(model, images, batch_size=2)
    last = [m for m in model.modules() if isinstance(m, torch.nn.Linear)][-1]
    torch.testing.assert_close(last(features), logits_of(model, images))
    assert not last._forward_pre_hooks


def test_features_need_a_linear_layer():
    with pytest.raises(ValueError, match="expected a linear layer"):
        features_of(torch.nn.Flatten(), torch.zeros(1, 1, 2, 2))


def test_large_features_stay_finite():
    large = torch.tensor([[1e5, 1.0]])
    assert torch.equal(torch.from_numpy(_halved(large)), large)
    assert _halved(torch.ones(1, 2)).dtype == np.float16


class OutOfOrder(torch.nn.Module):
    """Its last linear layer comes first among its parts; another is not used."""

    def __init__(self):
        super().__init__()
        self.head = torch.nn.Linear(3, 2)
        self.body = torch.nn.Linear(4, 3)
        self.idle = torch.nn.Linear(5, 2)

    def forward(self, images):
        return self.head(input=self.body(images.flatten(1)).relu())


def test_features_are_of_the_layer_that_runs_last():
    model, images = OutOfOrder(), torch.rand(5, 1, 2, 2)
    features = features_of(model, images, batch_size=2)
    assert features.shape == (5, 3)
    torch.testing.assert_close(model.head(features), model(images))
    unused = torch.nn.Sequential(torch.nn.Flatten())
    unused.idle = torch.nn.Linear(2, 2)
    unused.forward = lambda images: images.flatten(1)
    with pytest.raises(ValueError, match="to use a linear layer"):
        features_of(unused, images)
