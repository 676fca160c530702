"""Long adversarial training: resumed without loss, and what it says it does."""

import dataclasses
import json
import math

import pytest
import torch

from robustbook.datasets import load_dataset
from robustbook.models import build_model, load_model
from robustbook.training import RECIPES, adversarial_loss, cross_entropy_loss
from robustbook.training import _recipes as training
from robustbook.training._long import (
    LongTraining,
    mirror_and_shift,
    train_long,
    trapezoid,
)

EPS = 0.1
OPTIONS = LongTraining(
    step_size=0.1, averaging=0.8, padding=1, held_out=20, weight_decay=1e-4
)


@pytest.fixture(scope="module")
def small():
    return load_dataset("digits", "train").subset(range(320))


def trained(data, *, epochs=2, loss=cross_entropy_loss, options=OPTIONS, **words):
    model = build_model("small-cnn", seed=0)
    losses = train_long(
        model,
        data,
        loss=loss,
        eps=EPS,
        epochs=epochs,
        lr=words.pop("lr", 0.05),
        seed=words.pop("seed", 0),
        batch_size=64,
        options=options,
        **words,
    )
    return model, losses


def same(first, second):
    pairs = zip(first.state_dict().values(), second.state_dict().values(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


def test_a_training_that_was_cut_off_ends_as_if_it_was_not(small, tmp_path):
    loss = adversarial_loss(eps=EPS, steps=1, step_size=EPS)
    whole, losses = trained(small, epochs=4, loss=loss)
    resume = tmp_path / "resume"
    begun, first = trained(small, epochs=4, loss=loss, resume=resume, stop_after=2)
    assert not same(begun, whole)
    assert first == losses[:2]
    rest, again = trained(small, epochs=4, loss=loss, resume=resume)
    assert again == losses
    assert same(rest, whole)


def test_the_length_can_change_until_the_rate_falls(small, tmp_path):
    """Half of the epochs have the full rate: of four, the first two."""
    resume = tmp_path / "resume"
    trained(small, epochs=4, resume=resume, stop_after=2)
    longer, losses = trained(small, epochs=6, resume=resume)
    direct, expected = trained(small, epochs=6)
    assert losses == expected
    assert same(longer, direct)
    resume.unlink()
    trained(small, epochs=4, resume=resume, stop_after=3)
    with pytest.raises(ValueError, match="as many epochs, as its learning rate falls"):
        trained(small, epochs=6, resume=resume)


@pytest.mark.parametrize("change", [{"lr": 0.01}, {"seed": 1}])
def test_another_training_is_not_gone_on_with(small, tmp_path, change):
    resume = tmp_path / "resume"
    trained(small, epochs=1, resume=resume)
    with pytest.raises(ValueError, match="resume: expected a training with"):
        trained(small, epochs=2, resume=resume, **change)


def test_held_out_images_are_not_trained_on(small):
    images = small.images.clone()
    images[-20:] = math.nan
    model, losses = trained(dataclasses.replace(small, images=images))
    assert all(math.isfinite(loss) for loss in losses)
    everything = dataclasses.replace(OPTIONS, held_out=0)
    with pytest.raises(FloatingPointError, match="nan in epoch 1 of 2"):
        trained(dataclasses.replace(small, images=images), options=everything)
    with pytest.raises(ValueError, match="dataset: expected more than the 20 images"):
        trained(small.subset(range(20)))
    assert not model.training


def test_adversarial_training_makes_robust_and_tells():
    data = load_dataset("digits", "train")
    told = {}
    for name, loss in {
        "plain": cross_entropy_loss,
        "adversarial": adversarial_loss(eps=EPS, steps=2),
    }.items():
        lines = []
        trained(
            data,
            epochs=15,
            loss=loss,
            tell=lines.append,
            options=dataclasses.replace(OPTIONS, held_out=100),
        )
        assert len(lines) == 15
        assert lines[-1].startswith("epoch 15 of 15: loss ")
        told[name] = [float(word.strip(",;")) for word in lines[-1].split()[-3::2]]
    assert told["plain"][0] > 0.8
    assert told["adversarial"][1] > told["plain"][1] + 0.1


def test_the_weights_are_averaged(small):
    """With nothing kept, the average is the last model; else it is behind."""
    last = dataclasses.replace(OPTIONS, averaging=0.0)
    plain, _ = trained(small, options=last)
    averaged, _ = trained(small)
    assert not same(plain, averaged)


def test_mirrored_and_shifted_images():
    generator = torch.Generator().manual_seed(0)
    image = 1 + torch.arange(2 * 4 * 4.0).reshape(2, 4, 4)
    many = image.expand(500, 2, 4, 4)
    unmoved = mirror_and_shift(many, 0, generator=generator)
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
    moved = mirror_and_shift(many, 1, generator=generator)
    found = {one.flatten().numpy().tobytes() for one in moved.contiguous()}
    assert found == possible
    assert len(possible) == 18


def test_trapezoid():
    rates = [trapezoid(step, steps=100, rise=10, fall=40) for step in range(101)]
    assert rates[9:61] == [1.0] * 52
    assert rates[0] == 0.1
    assert rates[80] == 0.5
    assert rates[100] == 0.0


def test_command_trains_the_architecture_and_cleans_up(tmp_path, monkeypatch):
    (recipe,) = RECIPES["cifar10-adversarial"]
    arch = {"widths": [4, 8], "blocks": [1, 1], "channels": 1}
    tiny = dataclasses.replace(
        recipe, epochs=2, options=tuple(arch.items()), long=OPTIONS, batch_size=32
    )
    monkeypatch.setitem(RECIPES, "cifar10-adversarial", (tiny,))
    digits = {
        split: load_dataset("digits", split).subset(range(84))
        for split in ("train", "test")
    }
    asked = []

    def load(name, split):
        asked.append((name, split))
        return digits["train" if split == "train" else "test"]

    monkeypatch.setattr(training, "load_dataset", load)
    stop = KeyboardInterrupt
    with monkeypatch.context() as context:

        def interrupt(line):
            if line.startswith("epoch 2"):
                raise stop

        context.setattr(training, "_tell", interrupt)
        with pytest.raises(stop):
            training.retrain("cifar10-adversarial", output=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [
        ".cifar10-preact-adv-s0.resume"
    ]
    training.retrain("cifar10-adversarial", output=tmp_path, progress=False)
    assert asked[:2] == [("cifar10", "train"), ("cifar10", "test1000")]
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "cifar10-preact-adv-s0.safetensors",
        "registry.json",
    ]
    registry = json.loads((tmp_path / "registry.json").read_text())
    entry = registry["checkpoints"]["cifar10-preact-adv-s0"]
    assert entry["dataset"] == "cifar10"
    assert entry["command"] == "python -m robustbook.training cifar10-adversarial"
    assert entry["recipe"]["long"] == dataclasses.asdict(OPTIONS)
    model = load_model("cifar10-preact-adv-s0", directory=tmp_path)
    assert model(torch.zeros(2, 1, 8, 8)).shape == (2, 10)


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
    for batch in seen:
        assert float((batch - images).abs().max()) <= 10 / 255 + 1e-6
    for before, after in ((start, halfway), (halfway, attacked)):
        step = float((after - before).abs().max())
        assert step == pytest.approx(7 / 255, abs=1e-6)
