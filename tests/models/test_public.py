"""Public checkpoints: their accuracies are the published ones, their files checked."""

from functools import lru_cache
from pathlib import Path

import pytest
import torch
from torch import nn

from robustbook import models
from robustbook._store import sha256_of
from robustbook.datasets import data_directory, load_dataset
from robustbook.models import _public, load_model, logits_of, public_model
from robustbook.scores import accuracy

from ..conftest import FOLDER, needs_folder

NAMES = models.list_public_models()

needs_models = needs_folder("models")


@lru_cache
def first_test_images(dataset):
    if not (FOLDER / dataset).is_dir():
        pytest.skip(f"{dataset} is not in the folder that ROBUSTBOOK_DATA names")
    split = "test1000" if dataset == "cifar10" else "test"
    return load_dataset(dataset, split).subset(range(1000))


@pytest.fixture
def registered(monkeypatch, tmp_path):
    """Register a small checkpoint under the name "tiny", from a state to store."""

    def register(content):
        file = "weights.pt"
        path = tmp_path / "given" / "tiny" / file
        path.parent.mkdir(parents=True)
        torch.save(content, path)
        options = {"channels": 1, "size": 8, "convolutions": [], "linear": [10]}
        source = models.Source("owner/name", "0123456789ab", "folder/", "MIT")
        known = "tiny", "digits", "conv-net", options, (0.5,), (0.25,), 0.1, source
        entry = models.PublicModel(*known, "tiny.pt", file, sha256_of(path))
        monkeypatch.setitem(_public._REGISTRY, "tiny", entry)
        return path

    return register


LAYER = nn.Linear(64, 10).requires_grad_(False)
STATE = {"1.weight": LAYER.weight, "1.bias": LAYER.bias}


# --------------------------------------------------------------- the real files


# Deeper networks of the same kind, 40 s.
DEEP = {"cifar10-resnet32", "cifar10-resnet44", "cifar10-resnet56"}


@needs_models
@pytest.mark.parametrize(
    "name",
    [pytest.param(x, marks=[pytest.mark.ranges] * (x in DEEP)) for x in NAMES],
)
def test_accuracy_is_that_of_the_registry(name):
    entry = public_model(name)
    data = first_test_images(entry.dataset)
    model = load_model(name)
    assert not model.training
    assert not any(p.requires_grad for p in model.parameters())
    measured = accuracy(logits_of(model, data.images), data.labels)
    assert measured == pytest.approx(entry.accuracy, abs=0.002)


@needs_models
def test_every_checkpoint_of_the_folder_is_known():
    here = {path.name for path in (FOLDER / "models").iterdir() if path.is_dir()}
    assert here == set(NAMES)


@needs_models
def test_normalization_is_inside_and_in_the_gradient():
    model = load_model("cifar10-cnn_a_adv")
    images = torch.rand(2, 3, 32, 32, requires_grad=True)
    outside = model.model((images - model.mean) / model.std)
    torch.testing.assert_close(model(images), outside)
    (inside,) = torch.autograd.grad(model(images).sum(), images)
    (expected,) = torch.autograd.grad(outside.sum(), images)
    torch.testing.assert_close(inside, expected)


# --------------------------------------------------------------------- registry


def test_every_network_is_a_file_of_its_own():
    assert len({public_model(name).sha256 for name in NAMES}) == len(NAMES) == 24


@pytest.mark.parametrize("name", NAMES)
def test_architectures_take_images_of_their_data_set(name):
    entry = public_model(name)
    model = models.build_model(entry.arch, seed=0, options=entry.options)
    model = models.Normalized(model.eval(), mean=entry.mean, std=entry.std)
    shape = (3, 32, 32) if entry.dataset == "cifar10" else (1, 28, 28)
    assert model(torch.zeros(2, *shape)).shape == (2, 10)


def test_bad_names_and_numbers_are_named():
    with pytest.raises(ValueError, match=r"expected one of cifar10-.*got 'oak'"):
        public_model("oak")
    for std in ([0.5, 0.5], [0.0]):
        with pytest.raises(ValueError, match="as many means as positive"):
            models.Normalized(nn.Identity(), mean=[0.5], std=std)


def test_data_card_lists_every_checkpoint():
    card = (data_directory() / "README.md").read_text(encoding="utf-8")
    for name in NAMES:
        entry = public_model(name)
        row = f"| [`{name}`]({entry.url}) | {entry.accuracy:.3f} | `{entry.sha256}` |"
        assert row in card
        source = entry.source
        tree = f"https://github.com/{source.repository}/tree/{source.commit}"
        assert f"| [{source.repository}]({tree}) | {source.license} |" in card


# ----------------------------------------------------------------------- loading


@pytest.mark.parametrize(
    "wrap",
    [
        lambda state: state,
        lambda state: {"state_dict": state, "acc": 0.5},
        lambda state: {"state_dict": [state], "err": [0.1]},
        lambda state: [state],
        lambda state: {f"module.{key}": value for key, value in state.items()},
    ],
)
def test_wrapped_weights_are_unwrapped(registered, wrap):
    path = registered(wrap(STATE))
    images = torch.rand(3, 1, 8, 8)
    model = load_model("tiny", directory=path.parents[1])
    expected = LAYER((images.flatten(1) - 0.5) / 0.25)
    torch.testing.assert_close(model(images), expected)


def test_code_in_a_file_is_not_run(registered, tmp_path):
    import pickle

    class Harmful:
        def __reduce__(self):
            return (Path.touch, (tmp_path / "touched",))

    path = registered({"state_dict": Harmful()})
    with pytest.raises(pickle.UnpicklingError):
        load_model("tiny", directory=path.parents[1])
    assert not (tmp_path / "touched").exists()


def test_its_file_is_sought_where_and_with_the_sum_that_the_registry_says(
    monkeypatch, registered, tmp_path
):
    path, asked = registered(STATE), {}

    def obtain(name, place, **options):
        asked.update(name=name, place=place, **options)
        return path

    monkeypatch.setattr(_public, "obtain", obtain)
    monkeypatch.setattr(_public, "user_cache", lambda name: tmp_path / name)
    load_model("tiny", directory=tmp_path)
    assert asked["url"].endswith("/owner/name/0123456789ab/folder/tiny.pt")
    assert asked["sha256"] == sha256_of(path)
    assert asked["cache"] == tmp_path / "models" / "tiny"
    assert asked["preferred"] == tmp_path / "tiny" / "weights.pt"
