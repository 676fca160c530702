"""Attack once, keep the logits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from robustbook import attacks
from robustbook.datasets import Dataset, load_dataset
from robustbook.models import features_of, load_model, logits_of
from robustbook.studies import Attack, attack_model
from robustbook.studies.adversarial import _attack
from robustbook.studies.adversarial._attack import _halved


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
    monkeypatch.setitem(_attack._KINDS, "pgd", (None, {}))
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


@pytest.mark.parametrize(
    ("kind", "eps", "steps", "message"),
    [
        ("fmn", -1.0, 5, "eps: expected a number of at least 0"),
        ("fmn", float("nan"), 5, "eps: expected a number, got NaN"),
        ("pgd", 0.0, 5, "eps: expected a positive"),
        ("fab", None, 0, "steps: expected at least 1"),
    ],
)
def test_bad_settings_of_attacks_are_refused(
    kind: str, eps: float | None, steps: int, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        Attack(kind, eps, steps)


def test_numbers_of_numpy_are_numbers(data: Dataset, tmp_path: Path) -> None:
    attack = Attack("pgd", np.float64(0.1), np.int64(2))
    assert attack == Attack("pgd", 0.1, 2)
    few = data.subset(range(3))
    one = attack_model(
        "digits-linear-s0", attack, few, seed=np.int64(1), directory=tmp_path
    )
    same = attack_model(
        "digits-linear-s0", Attack("pgd", 0.1, 2), few, seed=1, directory=tmp_path
    )
    assert torch.equal(one.shifted_logits, same.shifted_logits)
    assert len(list(tmp_path.iterdir())) == 1


def test_a_model_without_surrogate_is_named(data: Dataset, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="with a surrogate for pgd-surrogate"):
        attack_model(
            "digits-cnn-s0", Attack("pgd-surrogate", 0.1, 2), data, directory=tmp_path
        )


def test_large_features_stay_finite() -> None:
    large = torch.tensor([[1e5, 1.0]])
    assert torch.equal(torch.from_numpy(_halved(large)), large)
    assert _halved(torch.ones(1, 2)).dtype == np.float16


class OutOfOrder(torch.nn.Module):
    """Its last linear layer comes first among its parts; another is not used."""

    def __init__(self) -> None:
        super().__init__()
        self.head = torch.nn.Linear(3, 2)
        self.body = torch.nn.Linear(4, 3)
        self.idle = torch.nn.Linear(5, 2)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.head(input=self.body(images.flatten(1)).relu())


def test_features_are_of_the_layer_that_runs_last() -> None:
    model, images = OutOfOrder(), torch.rand(5, 1, 2, 2)
    features = features_of(model, images, batch_size=2)
    assert features.shape == (5, 3)
    torch.testing.assert_close(model.head(features), model(images))
    unused = torch.nn.Sequential(torch.nn.Flatten())
    unused.idle = torch.nn.Linear(2, 2)
    unused.forward = lambda images: images.flatten(1)  # type: ignore[method-assign]
    with pytest.raises(ValueError, match="to use a linear layer"):
        features_of(unused, images)
