"""Architectures and checkpoints: what is committed loads, and is what it says."""

import importlib.util
import json
from types import SimpleNamespace

import pytest
import torch
from safetensors import safe_open
from torch import nn

from robustbook import models
from robustbook._store import sha256_of
from robustbook.datasets import DataUnavailableError, data_directory, load_dataset
from robustbook.models import build_model, features_of, load_model, logits_of
from robustbook.scores import accuracy

FOLDER = data_directory() / "checkpoints"
RUNS = models.list_models()


@pytest.fixture
def copied(tmp_path):
    """A folder with one checkpoint and its registry, free to be damaged."""
    for name in ("registry.json", "digits-linear-s0.safetensors"):
        (tmp_path / name).write_bytes((FOLDER / name).read_bytes())
    return tmp_path


def stored_beside(path):
    with safe_open(path, framework="pt") as file:
        return json.loads(file.metadata()["robustbook"])


@pytest.mark.parametrize("name", RUNS)
def test_checkpoint_is_what_the_registry_says(name):
    entry = models.checkpoint_entry(name)
    path = FOLDER / entry["file"]
    assert sha256_of(path) == entry["sha256"]
    assert path.stat().st_size == entry["bytes"] < 2_000_000
    assert stored_beside(path).items() <= entry.items()
    dataset = entry["dataset"]
    assert entry["command"].startswith(f"python -m robustbook.training {dataset}")
    model = load_model(name)
    assert not model.training
    assert not any(p.requires_grad for p in model.parameters())
    try:
        test = load_dataset(dataset, "test1000" if dataset == "cifar10" else "test")
    except DataUnavailableError as error:
        pytest.skip(str(error))
    measured = accuracy(logits_of(model, test.images), test.labels)
    # Rounding differs between machines: allow one near-tie to fall otherwise.
    assert measured == pytest.approx(entry["test_accuracy"], abs=2 / len(test))
    lowest = {"digits": 0.95, "mnist": 0.9, "fashion-mnist": 0.7, "cifar10": 0.4}
    assert measured > lowest[dataset]


def test_folder_and_registry_agree():
    files = {path.name for path in FOLDER.glob("*.safetensors")}
    entries = [models.checkpoint_entry(name) for name in RUNS]
    assert files == {entry["file"] for entry in entries}
    assert len({entry["sha256"] for entry in entries}) == len(RUNS)
    entries[0]["options"]["width"] = 99
    assert "width" not in models.checkpoint_entry(RUNS[0])["options"], "a copy"


@pytest.mark.parametrize("file", ["digits-linear-s0.safetensors", "registry.json"])
def test_what_is_not_there_is_said(copied, file):
    assert models.list_models(directory=str(copied)) == RUNS
    (copied / file).unlink()
    with pytest.raises(DataUnavailableError, match=r"python -m robustbook\.training"):
        load_model("digits-linear", directory=str(copied))


def test_a_damaged_file_is_refused(copied):
    path = copied / "digits-linear-s0.safetensors"
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(DataUnavailableError, match=r"expected sha256 .* got .* restor"):
        load_model("digits-linear", directory=copied)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "not JSON"),
        ('{"schema": 99}', "of schema 1, got 99"),
        ('{"schema": 1}', "expected a table of checkpoints"),
    ],
)
def test_corrupt_registry_is_refused(copied, content, message):
    (copied / "registry.json").write_text(content)
    with pytest.raises(DataUnavailableError, match=f"{message}.*; restore"):
        models.list_models(directory=copied)


def test_saving_twice_gives_the_same_bytes(tmp_path):
    model = build_model("small-cnn", seed=1)
    description = {"b": 1, "a": [1.5, "x"], "c": {"d": None}}
    paths = [tmp_path / f"{i}.safetensors" for i in range(8)]
    sums = {models.save_checkpoint(model, p, description=description) for p in paths}
    assert len(sums) == 1
    assert stored_beside(paths[0]) == description


@pytest.mark.parametrize("arch", ["linear", "small-cnn"])
def test_architectures_follow_their_options(arch):
    model = built(arch, channels=3, size=6, num_classes=4)
    assert model(torch.zeros(2, 3, 6, 6)).shape == (2, 4)


def test_build_model_depends_on_the_seed_only():
    torch.manual_seed(5)
    first = build_model("small-cnn", seed=3)
    state = torch.get_rng_state()
    second = build_model("small-cnn", seed=3)
    assert torch.equal(state, torch.get_rng_state())
    other = build_model("small-cnn", seed=4)
    assert all(map(torch.equal, first.parameters(), second.parameters()))
    assert not torch.equal(first.linear.weight, other.linear.weight)


NO_IMAGES, ONE = torch.zeros(0, 1, 8, 8), torch.zeros(1, 1, 8, 8)


def built(arch, **options):
    return build_model(arch, seed=0, options=options)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: load_model("oak"), r"digits-cnn, .*digits-linear.*got 'oak'"),
        (lambda: load_model("digits-cnn-s9"), "got 'digits-cnn-s9'"),
        (lambda: models.training_runs("oak"), "got 'oak'"),
        (lambda: build_model("oak", seed=0), "one of linear, small-cnn.*'oak'"),
        (lambda: built("small-cnn", size=7), "even number, got 7"),
        (lambda: built("strided-cnn", norm="layer"), "norm: expected one of batch, gr"),
        (lambda: logits_of(built("linear"), NO_IMAGES), r"got shape \(0, 1, 8, 8\)"),
        (lambda: logits_of(built("linear"), ONE, batch_size=0), "batch_size: .* got 0"),
        (lambda: models.resolve_device("q"), "device: .* 'auto', 'cpu' or 'cuda'"),
    ],
)
def test_bad_arguments_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize(
    ("returned", "remedy"),
    [
        (lambda x: SimpleNamespace(logits=x), r"output: output\.logits\)"),
        (lambda x: {"logits": x}, r"output: output\['logits'\]\)"),
        (lambda x: (x, None), r"output: output\[0\]\)"),
        (lambda x: x.numpy(), "numpy.save the logits"),
        (lambda _: 3, r"return logits of shape \(N, K\)"),
    ],
)
def test_logits_of_says_what_makes_logits_of_another_output(returned, remedy):
    model = nn.Flatten()
    model.register_forward_hook(lambda module, images, output: returned(output))
    with pytest.raises(TypeError, match=f"model: expected a tensor.*{remedy}"):
        logits_of(model, ONE)


def test_logits_of_batches_and_keeps_the_mode_of_each_module():
    layers = nn.Flatten(), nn.BatchNorm1d(64), nn.Dropout(0.5), nn.Linear(64, 10)
    model = nn.Sequential(*layers).train()
    model[1].eval()  # frozen, as for fine-tuning
    images = load_dataset("digits", "test").images[:33]
    whole, parts = (logits_of(model, images, batch_size=size) for size in (1024, 10))
    assert [m.training for m in model.modules()] == [True, True, False, True, True]
    assert not whole.requires_grad
    torch.testing.assert_close(whole, parts)


@pytest.mark.parametrize(
    ("device", "gpus", "message"),
    [
        ("cuda", 0, "the CUDA devices of this machine are: none; pass"),
        ("cuda:9", 2, "the CUDA devices of this machine are: cuda:0, cuda:1; pass"),
        ("mps", 0, "got 'mps'; the measures need float64"),
        ("meta", 0, "got 'meta'; the measures need float64"),
    ],
)
def test_a_device_that_cannot_work_is_refused_in_one_line(
    monkeypatch, device, gpus, message
):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpus > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    with pytest.raises(ValueError, match=message) as error:
        models.resolve_device(device)
    assert "\n" not in str(error.value)


def test_data_card_lists_every_checkpoint():
    card = (FOLDER.parent / "README.md").read_text(encoding="utf-8")
    for name in RUNS:
        entry = models.checkpoint_entry(name)
        row = f"| `{name}` | {entry['test_accuracy']:.4f} | `{entry['sha256']}` |"
        assert row in card
        size = sum(p.numel() for p in load_model(name).parameters())
        assert f"| {size} |" in card


def test_a_strided_network_takes_any_size_and_either_normalization():
    torch.manual_seed(0)
    images = torch.rand(6, 3, 33, 33)
    outputs = {}
    for norm in ("batch", "group"):
        model = built("strided-cnn", width=8, num_classes=3, norm=norm)
        training = model(images)
        model.eval()
        outputs[norm] = training, model(images)
        assert training.shape == (6, 3)
        assert model(torch.rand(2, 3, 16, 16)).shape == (2, 3)
        assert features_of(model, images).shape == (6, 32)
    assert torch.equal(*outputs["group"])
    assert not torch.allclose(*outputs["batch"], atol=1e-3)


class OutOfOrder(nn.Module):
    """Its last linear layer comes first among its parts; another is not used."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(3, 2)
        self.body = nn.Linear(4, 3)
        self.idle = nn.Linear(5, 2)

    def forward(self, images):
        return self.head(input=self.body(images.flatten(1)).relu())


def test_features_are_of_the_layer_that_runs_last():
    model, images = OutOfOrder(), torch.rand(5, 1, 2, 2)
    features = features_of(model, images, batch_size=2)
    assert features.shape == (5, 3)
    torch.testing.assert_close(model.head(features), model(images))
    assert not model.head._forward_pre_hooks
    unused = nn.Flatten()
    for message in ("expected a linear layer", "to use a linear layer"):
        with pytest.raises(ValueError, match=message):
            features_of(unused, images)
        unused.idle = nn.Linear(2, 2)


@pytest.mark.parametrize("depth", [18, 50])
def test_residual_networks_are_torchvisions_untrained(depth):
    if not importlib.util.find_spec("torchvision"):  # to import it may need a mend
        pytest.skip("torchvision is not installed")
    model = built(f"resnet{depth}", num_classes=2).eval()
    assert model(torch.rand(1, 3, 32, 32)).shape == (1, 2)
    width = {18: 512, 50: 2048}[depth]
    assert features_of(model, torch.rand(1, 3, 32, 32)).shape == (1, width)
