"""Attack once, keep the logits."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from robustbook import attacks
from robustbook.datasets import Dataset, load_dataset
from robustbook.experiments import Attack, attack_model
from robustbook.experiments.attacked import data_sha256, model_sha256
from robustbook.models import build_model, features_of, load_model, logits_of


@pytest.fixture(scope="module")
def data() -> Dataset:
    return load_dataset("digits", "test").subset(range(30))


def test_the_logits_are_those_of_the_attacked_images(
    data: Dataset, tmp_path: Path
) -> None:
    found = attack_model(
        "digits-cnn-s0", Attack("pgd", 0.1, 5), data, seed=3, directory=tmp_path
    )
    model = load_model("digits-cnn-s0").eval()
    by_hand = attacks.pgd(
        model, data.images, data.labels, eps=0.1, steps=5, seed=3, skip_errors=False
    )
    torch.testing.assert_close(found.logits, logits_of(model, data.images))
    torch.testing.assert_close(
        found.shifted_logits, logits_of(model, by_hand.adversarial)
    )
    torch.testing.assert_close(found.norms, by_hand.norms)
    torch.testing.assert_close(
        found.shifted_features,
        features_of(model, by_hand.adversarial),
        rtol=2e-3,
        atol=2e-3,
    )
    assert torch.equal(found.labels, data.labels)


def test_an_attack_runs_once(
    data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attack = Attack("pgd", 0.1, 2)
    first = attack_model("digits-linear-s0", attack, data, directory=tmp_path)
    monkeypatch.setattr(attacks, "pgd", None)
    again = attack_model("digits-linear-s0", attack, data, directory=tmp_path)
    assert torch.equal(first.shifted_logits, again.shifted_logits)
    with pytest.raises(TypeError):
        attack_model("digits-linear-s0", attack, data, seed=1, directory=tmp_path)
    with pytest.raises(TypeError):
        attack_model("digits-linear-s1", attack, data, directory=tmp_path)
    with pytest.raises(TypeError):
        attack_model(
            "digits-linear-s0", attack, data.subset(range(29)), directory=tmp_path
        )


def test_a_bound_selects_from_the_smallest_perturbations(
    data: Dataset, tmp_path: Path
) -> None:
    free = attack_model(
        "digits-cnn-s0", Attack("fmn", None, 20), data, directory=tmp_path
    )
    finite = free.norms[free.norms.isfinite()]
    eps = float(finite.median())
    bound = attack_model(
        "digits-cnn-s0", Attack("fmn", eps, 20), data, directory=tmp_path
    )
    assert len(list(tmp_path.iterdir())) == 1
    inside = free.norms <= eps
    assert bool(inside.any())
    assert bool((~inside).any())
    assert torch.equal(bound.shifted_logits[inside], free.shifted_logits[inside])
    assert torch.equal(bound.shifted_logits[~inside], free.logits[~inside])
    assert bool(bound.norms[~inside].isinf().all())


def test_bad_attacks_are_refused() -> None:
    with pytest.raises(ValueError, match="kind: expected one of pgd"):
        Attack("deepfool", 0.1, 5)
    with pytest.raises(ValueError, match="eps: expected a bound for pgd"):
        Attack("pgd", None, 5)


def test_the_sum_of_a_model_covers_weights_and_structure() -> None:
    one = build_model("linear", seed=0)
    assert model_sha256(one) == model_sha256(build_model("linear", seed=0))
    assert model_sha256(one) != model_sha256(build_model("linear", seed=1))
    assert model_sha256(torch.nn.ReLU()) != model_sha256(torch.nn.Tanh())
    defended = load_model("digits-cnn-s0+jpeg-rs")
    assert model_sha256(defended) != model_sha256(load_model("digits-cnn-s0"))


def test_the_sum_of_data_covers_images_and_labels(data: Dataset) -> None:
    assert data_sha256(data) == data_sha256(data.subset(range(30)))
    assert data_sha256(data) != data_sha256(data.subset(range(29, -1, -1)))


def test_features_give_the_logits_back() -> None:
    model = load_model("digits-cnn-s0").eval()
    images = load_dataset("digits", "test").images[:5]
    features = features_of(model, images, batch_size=2)
    last = [m for m in model.modules() if isinstance(m, torch.nn.Linear)][-1]
    torch.testing.assert_close(last(features), logits_of(model, images))
    assert not last._forward_pre_hooks


def test_features_need_a_linear_layer() -> None:
    with pytest.raises(ValueError, match="expected a linear layer"):
        features_of(torch.nn.Flatten(), torch.zeros(1, 1, 2, 2))
