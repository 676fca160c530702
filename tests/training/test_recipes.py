"""Recipes, and the command that makes the committed weights again."""

import dataclasses
import json
import math
from functools import partial

import pytest
import torch
import typer
from safetensors.torch import load_file
from typer.testing import CliRunner

from robustbook.datasets import Dataset, load_dataset
from robustbook.models import checkpoint_entry, list_models, load_model, logits_of
from robustbook.scores import accuracy
from robustbook.training import RECIPES, adversarial_loss
from robustbook.training import _retrain as training
from robustbook.training.__main__ import main
from robustbook.training._recipes import LongTraining


@pytest.mark.parametrize("name", RECIPES)
def test_what_is_committed_is_what_the_command_trains(name):
    """Every checkpoint of every recipe, and no other; as the recipe says."""
    recipes = {
        f"{recipe.model}-s{seed}": recipe
        for recipe in RECIPES[name]
        for seed in range(recipe.seeds)
    }
    entries = {run: checkpoint_entry(run) for run in list_models()}
    committed = {
        run: e for run, e in entries.items() if e["command"].split()[3] == name
    }
    assert set(committed) == set(recipes)
    for run, entry in committed.items():
        recipe = recipes[run]
        assert entry["recipe"] == recipe.described()
        options = json.loads(json.dumps(dict(recipe.options)))
        assert (entry["arch"], entry["options"]) == (recipe.arch, options)
        assert entry["command"] == f"python -m robustbook.training {name}"
        assert run == f"{entry['model']}-s{entry['seed']}"


def test_committed_adversarial_models_are_the_robust_ones():
    test = load_dataset("digits", "test").subset(range(200))
    attack = adversarial_loss(eps=0.15, steps=20)
    batch = test.images, test.labels, torch.Generator()
    names = ("digits-cnn", "digits-cnn-noise", "digits-cnn-adv")
    plain, noise, robust = (attack(load_model(name), *batch).item() for name in names)
    assert robust < 0.5 * min(plain, noise)


def command(*words):
    """Run ``python -m robustbook.training``, with the threads left as they were."""
    app = typer.Typer()
    app.command()(main)
    threads = torch.get_num_threads()
    try:
        return CliRunner().invoke(app, [str(word) for word in words])
    finally:
        torch.set_num_threads(threads)


def test_command_repeats_to_the_last_byte(tmp_path):
    models = ["digits-cnn", "digits-cnn-noise", "digits-cnn-grad1e-2"]
    words = ["digits", "--seeds", "2", "--epochs", "2"]
    words += [word for model in models for word in ("--models", model)]
    for folder in ("a", "b"):
        result = command(*words, "--output", tmp_path / folder)
        assert "digits-cnn-noise-s1: test accuracy" in result.output
    names = {path.name for path in (tmp_path / "a").iterdir()}
    assert len(names) == 7
    for name in names:
        first, second = ((tmp_path / part / name).read_bytes() for part in "ab")
        assert first == second
    registry = json.loads((tmp_path / "a" / "registry.json").read_text())
    words = registry["checkpoints"]["digits-cnn-s1"]["command"]
    assert words == "python -m robustbook.training digits --seeds 2 --epochs 2"
    model = load_model("digits-cnn-s1", directory=tmp_path / "a")
    assert model(torch.zeros(1, 1, 8, 8)).shape == (1, 10)


@pytest.mark.processor
def test_the_command_makes_networks_that_predict_as_the_committed_ones(tmp_path):
    command("digits", "--models", "digits-linear", "--output", tmp_path)
    written = json.loads((tmp_path / "registry.json").read_text())["checkpoints"]
    assert len(written) == 5
    images = load_dataset("digits", "test").images
    for run in written:
        ours, committed = (
            logits_of(load_model(run, directory=folder), images).softmax(1)
            for folder in (tmp_path, None)
        )
        # Another seed: 5e-3.
        assert float((ours - committed).abs().sum(1).mean()) / 2 < 1e-5


def test_retraining_keeps_other_data_sets_and_other_models(tmp_path):
    options = {"output": tmp_path, "epochs": 1, "progress": False}
    other = {"dataset": "mnist", "model": "mnist-cnn", "seed": 0}
    content = {"schema": 1, "checkpoints": {"mnist-cnn-s0": other}}
    (tmp_path / "registry.json").write_text(json.dumps(content))
    training.retrain("digits", models=["digits-linear"], num_seeds=2, **options)
    linear = (tmp_path / "digits-linear-s1.safetensors").read_bytes()
    written = training.retrain("digits", models=["digits-cnn"], num_seeds=1, **options)
    runs = ["digits-cnn-s0", "digits-linear-s0", "digits-linear-s1", "mnist-cnn-s0"]
    assert list(written["checkpoints"]) == runs
    assert written["checkpoints"]["mnist-cnn-s0"] == other
    assert (tmp_path / "digits-linear-s1.safetensors").read_bytes() == linear


def test_what_cannot_be_trained_or_written_is_told_before_training(tmp_path):
    (tmp_path / "file").write_text("")
    for words, error, message in (
        ({"models": ["oak"]}, ValueError, "models: expected some of digits-linear"),
        ({"models": []}, ValueError, "models: expected some of digits-linear"),
        ({"num_seeds": 0}, ValueError, "num_seeds: expected at least 1"),
        ({"name": "oak"}, ValueError, "expected one of digits, mnist"),
        ({"output": tmp_path / "file"}, OSError, "output: expected a folder"),
    ):
        options = {"name": "digits", "output": tmp_path, "progress": False, **words}
        with pytest.raises(error, match=message):
            training.retrain(options.pop("name"), **options)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_an_interrupted_training_replaces_nothing_and_goes_on(tmp_path, stopped):
    options = {"num_seeds": 1, "progress": False}
    options["models"] = ["digits-linear", "digits-cnn"]
    training.retrain("digits", output=tmp_path, epochs=1, **options)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    again = partial(training.retrain, "digits", output=tmp_path, **options)
    stopped(partial(again, epochs=2), after=3)  # two of one model, one of the other
    after = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert {name: after[name] for name in before} == before
    hidden = {".digits-linear-s0.resume", ".digits-cnn-s0.resume"}
    assert after.keys() - before.keys() == hidden
    with pytest.raises(ValueError, match=r"linear-s0\.resume is of another training"):
        again(epochs=3)
    written = again(epochs=2)
    assert {path.name for path in tmp_path.iterdir()} == before.keys()
    whole = training.retrain("digits", output=tmp_path / "new", epochs=2, **options)
    assert written == whole


def test_the_long_command_trains_its_architecture_and_cleans_up(
    tmp_path, monkeypatch, stopped
):
    (recipe,) = RECIPES["cifar10-adversarial"]
    arch = {"widths": [4, 8], "blocks": [1, 1], "channels": 1}
    options = LongTraining(0.1, averaging=0.8, padding=1, held_out=20)
    tiny = dataclasses.replace(
        recipe, epochs=2, options=tuple(arch.items()), long=options, batch_size=32
    )
    monkeypatch.setitem(RECIPES, "cifar10-adversarial", (tiny,))
    asked = []

    def load(name, split):
        asked.append((name, split))
        part = "train" if split == "train" else "test"
        return load_dataset("digits", part).subset(range(84))

    monkeypatch.setattr(training, "load_dataset", load)
    again = partial(training.retrain, "cifar10-adversarial", output=tmp_path)
    stopped(again, after=1)
    assert [*tmp_path.iterdir()] == [tmp_path / ".cifar10-preact-adv-s0.resume"]
    again(progress=False)
    assert asked[:2] == [("cifar10", "train"), ("cifar10", "test1000")]
    assert not [*tmp_path.glob("*.resume")]
    model = load_model("cifar10-preact-adv-s0", directory=tmp_path)
    assert model(torch.zeros(2, 1, 8, 8)).shape == (2, 10)


def test_a_whitened_network_is_stored_in_half_precision(tmp_path, monkeypatch):
    recipe = RECIPES["cifar10-held-out"][0]
    options = dataclasses.replace(recipe.long, held_out=500)
    tiny = dataclasses.replace(
        recipe, epochs=1, options=(("widths", [4]),), long=options, seeds=1
    )
    monkeypatch.setitem(RECIPES, "cifar10-held-out", (tiny,))
    random = torch.Generator().manual_seed(0)
    images = torch.rand(600, 3, 8, 8, generator=random).cumsum(3) / 8
    data = Dataset(images, torch.arange(600) % 10, "cifar10", "train", 10)
    monkeypatch.setattr(training, "load_dataset", lambda *_: data)
    training.retrain("cifar10-held-out", output=tmp_path, progress=False)
    weights = load_file(tmp_path / "cifar10-blocks-s0.safetensors")
    kinds = {w.dtype for w in weights.values() if w.is_floating_point()}
    assert kinds == {torch.float16}
    model = load_model("cifar10-blocks-s0", directory=tmp_path)
    entry = json.loads((tmp_path / "registry.json").read_text())["checkpoints"]
    right = accuracy(logits_of(model, data.images), data.labels)
    assert entry["cifar10-blocks-s0"]["test_accuracy"] == round(right, 6)
    # The filters decorrelate the patches of the images that were trained on.
    responses = model.whiten(images[:100]) - model.whiten.bias.reshape(-1, 1, 1)
    columns = responses.transpose(0, 1).flatten(1)[:12]
    covariance = torch.cov(columns)
    apart = covariance - covariance.diag().diag()
    assert float(apart.abs().max()) < 0.01 < float(covariance.diag().min())


@pytest.mark.slow
@pytest.mark.ranges
def test_committed_checkpoints_can_be_retrained(tmp_path):
    """Retraining one seed gives the committed accuracies, on any machine."""
    registry = training.retrain("digits", output=tmp_path, num_seeds=1, progress=False)
    for name, entry in registry["checkpoints"].items():
        committed = checkpoint_entry(name)["test_accuracy"]
        assert entry["test_accuracy"] == pytest.approx(committed, abs=0.015)


def test_the_step_of_the_attack_is_that_of_the_recipe():
    """Two steps of 7/255 from a random start, for a bound of 10/255."""
    (recipe,) = RECIPES["cifar10-adversarial"]
    seen = []

    def spy(batch):
        seen.append(batch.detach())
        return batch.flatten(1)[:, :10]

    images = torch.full((50, 3, 2, 2), 0.5)
    labels = torch.zeros(50, dtype=torch.int64)
    spy_loss = recipe.loss(spy, images, labels, torch.Generator().manual_seed(0))
    assert math.isfinite(spy_loss)
    start, halfway, attacked = seen
    assert abs(float((start - images).mean())) < 1 / 255, "a random start"
    for batch in seen:
        assert float((batch - images).abs().max()) <= 10 / 255 + 1e-6
    for before, after in ((start, halfway), (halfway, attacked)):
        step = float((after - before).abs().max())
        assert step == pytest.approx(7 / 255, abs=1e-6)
