"""Training is plain, leaves the global generator alone, and repeats exactly."""

import dataclasses
import json
import math

import pytest
import torch

from robustbook.datasets import load_dataset
from robustbook.models import (
    build_model,
    checkpoint_entry,
    list_models,
    load_model,
    logits_of,
)
from robustbook.scores import accuracy
from robustbook.training import (
    RECIPES,
    add_gaussian_noise,
    adversarial_loss,
    cross_entropy_loss,
    gradient_norm_loss,
    train_classifier,
)
from robustbook.training import _recipes as training


@pytest.fixture(scope="module")
def small():
    return load_dataset("digits", "train").subset(range(300))


def trained(
    data,
    *,
    seed=0,
    noise_std=0.0,
    arch="small-cnn",
    epochs=2,
    loss=cross_entropy_loss,
):
    model = build_model(arch, seed=seed)
    losses = train_classifier(
        model,
        data,
        epochs=epochs,
        lr=0.003,
        seed=seed,
        noise_std=noise_std,
        loss=loss,
        progress=False,
    )
    return model, losses


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"noise_std": 0.3},
        {"loss": adversarial_loss(eps=0.1, steps=2)},
        {"loss": gradient_norm_loss(weight=0.1)},
    ],
    ids=["plain", "noise", "adversarial", "gradient"],
)
def test_training_repeats_to_the_last_bit(small, options):
    torch.manual_seed(1)
    first, losses = trained(small, **options)
    torch.manual_seed(2)
    second, again = trained(small, **options)
    assert losses == again
    for a, b in zip(first.parameters(), second.parameters(), strict=True):
        assert torch.equal(a, b)


def test_global_generator_is_left_alone(small):
    state = torch.get_rng_state()
    trained(small, noise_std=0.3, epochs=1)
    assert torch.equal(state, torch.get_rng_state())


def test_seed_and_noise_matter(small):
    weights = [
        trained(small, **options)[0].linear.weight
        for options in ({}, {"seed": 1}, {"noise_std": 0.3})
    ]
    assert not torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


def test_training_learns(small):
    model, losses = trained(small, epochs=20)
    assert losses[-1] < 0.5 * losses[0]
    assert not model.training
    assert accuracy(logits_of(model, small.images), small.labels) > 0.9


def test_training_data_is_not_changed(small):
    before = small.images.clone()
    trained(small, noise_std=0.5, epochs=1)
    assert torch.equal(before, small.images)


@pytest.mark.parametrize(
    ("option", "value"),
    [("epochs", 0), ("lr", 0.0), ("batch_size", -1), ("noise_std", -0.1), ("seed", -1)],
)
def test_bad_options_are_named(small, option, value):
    options = {"epochs": 1, "lr": 0.1, "seed": 0, "progress": False, option: value}
    with pytest.raises(ValueError, match=f"{option}: expected"):
        train_classifier(build_model("linear", seed=0), small, **options)


def linear_case():
    """A linear model, images away from black and white, labels, a generator."""
    generator = torch.Generator().manual_seed(0)
    model = build_model("linear", seed=0, options={"size": 2, "num_classes": 2})
    images = 0.4 + 0.2 * torch.rand(40, 1, 2, 2, generator=generator)
    labels = torch.randint(2, (40,), generator=generator)
    return model, images, labels, generator


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


def test_adversarial_training_makes_robust(small):
    test = load_dataset("digits", "test").subset(range(200))
    attack = adversarial_loss(eps=0.1, steps=10)
    values = {}
    trial = {
        "plain": cross_entropy_loss,
        "adversarial": adversarial_loss(eps=0.1, steps=3),
    }
    for name, loss in trial.items():
        model, _ = trained(small, epochs=20, loss=loss)
        generator = torch.Generator().manual_seed(0)
        values[name] = attack(model, test.images, test.labels, generator).item()
    assert values["adversarial"] < 0.7 * values["plain"]


def slope(model, images, labels, generator):
    """Mean norm of the gradient of each image's cross-entropy by its pixels."""
    images = images.detach().clone().requires_grad_()
    value = cross_entropy_loss(model, images, labels, generator) * len(images)
    (gradient,) = torch.autograd.grad(value, images, create_graph=True)
    return gradient.flatten(1).norm(dim=1).mean()


def test_a_loss_of_ones_own(small):
    def penalized(*arguments):
        return cross_entropy_loss(*arguments) + 10 * slope(*arguments)

    rough, smooth = (
        slope(trained(small, epochs=10, loss=loss)[0], small.images, small.labels, None)
        for loss in (cross_entropy_loss, penalized)
    )
    assert smooth.item() < 0.5 * rough.item()


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


def test_gradient_norm_does_not_depend_on_the_batch():
    model, images, labels, generator = linear_case()
    loss = gradient_norm_loss(weight=2.0)
    whole = loss(model, images, labels, generator)
    halves = [
        loss(model, images[part], labels[part], generator)
        for part in (slice(20), slice(20, 40))
    ]
    torch.testing.assert_close(whole, sum(halves) / 2)


def test_gradient_norm_training_flattens_the_loss(small):
    rough, smooth = (
        slope(trained(small, epochs=10, loss=loss)[0], small.images, small.labels, None)
        for loss in (cross_entropy_loss, gradient_norm_loss(weight=1.0))
    )
    assert smooth.item() < 0.7 * rough.item()


@pytest.mark.parametrize("weight", [0.0, -1.0, math.inf])
def test_bad_weights_of_the_gradient_are_named(weight):
    with pytest.raises(ValueError, match="weight: expected"):
        gradient_norm_loss(weight=weight)


@pytest.mark.parametrize("option", ["eps", "steps", "step_size"])
def test_bad_adversarial_options_are_named(option):
    with pytest.raises(ValueError, match=f"{option}: expected"):
        adversarial_loss(**{"eps": 0.1, option: 0})


def test_recipes_describe_what_they_use():
    described = {recipe.model: recipe.described() for recipe in RECIPES["digits"]}
    assert described["digits-cnn-adv"]["adversarial_eps"] == 0.15
    assert described["digits-cnn-adv"]["adversarial_steps"] == 10
    plain = {"model", "arch", "epochs", "lr", "noise_std"}
    for name in ("digits-linear", "digits-cnn", "digits-cnn-noise"):
        assert set(described[name]) == plain
    penalized = described["digits-cnn-grad1e-2"]
    assert set(penalized) == plain | {"gradient_penalty"}
    assert penalized["gradient_penalty"] == 0.01
    larger = {recipe.model: recipe.described() for recipe in RECIPES["mnist"]}
    assert larger["mnist-cnn"]["batch_size"] == 128


def test_recipes_say_how_many_seeds_are_trained(tmp_path):
    twice = {r.model for r in RECIPES["fashion-mnist"] if r.seeds == 2}
    assert twice == {"fashion-mnist-cnn", "fashion-mnist-cnn-grad1e-1"}
    assert {r.seeds for r in RECIPES["digits"]} == {5}
    written = training.retrain(
        "digits", models=["digits-linear"], output=tmp_path, epochs=1, progress=False
    )
    assert list(written["checkpoints"]) == [f"digits-linear-s{k}" for k in range(5)]
    assert written["checkpoints"]["digits-linear-s0"]["command"] == (
        "python -m robustbook.training digits --epochs 1"
    )


def test_recipes_of_a_family_differ_in_the_penalty_only():
    for name, recipes in RECIPES.items():
        if name == "cifar10-adversarial":
            continue
        plain = next(r for r in recipes if r.model.endswith("-cnn"))
        family = [r for r in recipes if "-grad" in r.model]
        assert [recipe.gradient_penalty for recipe in family] == [
            1e-4,
            1e-3,
            1e-2,
            1e-1,
            1,
        ]
        for recipe in family:
            same = dataclasses.replace(
                recipe, model=plain.model, gradient_penalty=0.0, seeds=plain.seeds
            )
            assert same == plain
            weight = recipe.model.removeprefix(f"{plain.model}-grad")
            assert float(weight) == recipe.gradient_penalty


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
    loss = {
        name: attack(
            load_model(name), test.images, test.labels, torch.Generator()
        ).item()
        for name in ("digits-cnn", "digits-cnn-noise", "digits-cnn-adv")
    }
    assert loss["digits-cnn-adv"] < 0.5 * min(
        loss["digits-cnn"], loss["digits-cnn-noise"]
    )


def test_noise_has_the_stated_strength():
    images = torch.full((200, 1, 8, 8), 0.5)
    generator = torch.Generator().manual_seed(0)
    noisy = add_gaussian_noise(images, 0.1, generator=generator, clip=False)
    assert float((noisy - images).std()) == pytest.approx(0.1, rel=0.02)
    clipped = add_gaussian_noise(images, 2.0, generator=generator)
    assert float(clipped.min()) == 0.0
    assert float(clipped.max()) == 1.0
    with pytest.raises(ValueError, match="std: expected"):
        add_gaussian_noise(images, -1.0, generator=generator)


def test_noise_zero_changes_nothing():
    images = load_dataset("digits", "test").images
    generator = torch.Generator().manual_seed(0)
    assert torch.equal(add_gaussian_noise(images, 0.0, generator=generator), images)


def test_command_repeats_to_the_last_byte(tmp_path, capsys):
    threads = torch.get_num_threads()
    models = ["digits-cnn", "digits-cnn-noise", "digits-cnn-grad1e-2"]
    words = ["digits", "--seeds", "2", "--epochs", "2", "--models", *models, "--output"]
    try:
        for folder in ("a", "b"):
            training.main([*words, str(tmp_path / folder)])
    finally:
        torch.set_num_threads(threads)
    assert "digits-cnn-noise-s1: test accuracy" in capsys.readouterr().out
    names = {path.name for path in (tmp_path / "a").iterdir()}
    assert len(names) == 7
    for name in names:
        assert (tmp_path / "a" / name).read_bytes() == (
            tmp_path / "b" / name
        ).read_bytes()
    registry = json.loads((tmp_path / "a" / "registry.json").read_text())
    command = registry["checkpoints"]["digits-cnn-s1"]["command"]
    assert command == "python -m robustbook.training digits --seeds 2 --epochs 2"
    model = load_model("digits-cnn-s1", directory=tmp_path / "a")
    assert model(torch.zeros(1, 1, 8, 8)).shape == (1, 10)


def test_retraining_keeps_other_data_sets(tmp_path):
    other = {"dataset": "mnist", "model": "mnist-cnn", "seed": 0}
    content = {"schema": 1, "checkpoints": {"mnist-cnn-s0": other}}
    (tmp_path / "registry.json").write_text(json.dumps(content))
    written = training.retrain(
        "digits", output=tmp_path, num_seeds=1, epochs=1, progress=False
    )
    assert written["checkpoints"]["mnist-cnn-s0"] == other
    assert len(written["checkpoints"]) == 1 + len(RECIPES["digits"])


def test_retraining_some_models_keeps_the_others(tmp_path):
    options = {"output": tmp_path, "epochs": 1, "progress": False}
    training.retrain("digits", models=["digits-linear"], num_seeds=2, **options)
    linear = (tmp_path / "digits-linear-s1.safetensors").read_bytes()
    written = training.retrain("digits", models=["digits-cnn"], num_seeds=1, **options)
    assert list(written["checkpoints"]) == [
        "digits-cnn-s0",
        "digits-linear-s0",
        "digits-linear-s1",
    ]
    assert (tmp_path / "digits-linear-s1.safetensors").read_bytes() == linear
    for models in (["oak"], []):
        with pytest.raises(ValueError, match="models: expected some of digits-linear"):
            training.retrain("digits", models=models, **options)


def test_no_seeds_are_refused(tmp_path, capsys):
    with pytest.raises(ValueError, match="num_seeds: expected at least 1, got 0"):
        training.retrain("digits", output=tmp_path, num_seeds=0)
    with pytest.raises(SystemExit, match="2"):
        training.main(["digits", "--seeds", "0", "--output", str(tmp_path)])
    assert "num_seeds: expected at least 1" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_an_interrupted_training_replaces_nothing(tmp_path, monkeypatch):
    options = {"output": tmp_path, "num_seeds": 1, "progress": False}
    training.retrain("digits", epochs=1, **options)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    save = training.save_checkpoint

    def interrupt(model, path, **words):
        if "cnn-noise" in path.name:
            raise KeyboardInterrupt
        return save(model, path, **words)

    monkeypatch.setattr(training, "save_checkpoint", interrupt)
    with pytest.raises(KeyboardInterrupt):
        training.retrain("digits", epochs=2, **options)
    assert before == {path.name: path.read_bytes() for path in tmp_path.iterdir()}


def test_no_images_are_refused(small):
    with pytest.raises(ValueError, match="dataset: expected at least one image"):
        trained(small.subset([]))


def test_divergence_is_told(small):
    broken = dataclasses.replace(small, images=small.images * math.nan)
    with pytest.raises(FloatingPointError, match="nan in epoch 1 of 2"):
        trained(broken)


def test_unknown_recipes():
    with pytest.raises(ValueError, match=r"expected one of digits, mnist.*got 'oak'"):
        training.retrain("oak")


@pytest.mark.slow
def test_committed_checkpoints_can_be_retrained(tmp_path):
    """Retraining one seed gives the committed accuracies, on any machine."""
    registry = training.retrain("digits", output=tmp_path, num_seeds=1, progress=False)
    for name, entry in registry["checkpoints"].items():
        committed = checkpoint_entry(name)["test_accuracy"]
        assert entry["test_accuracy"] == pytest.approx(committed, abs=0.015)
