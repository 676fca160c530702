"""A stopped training goes on to the same end; a file that does not fit is refused."""

import os
import pickle
import resource
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
import torch

from robustbook.models import build_model
from robustbook.training import (
    IRM,
    LISA,
    _loop,
    _resume,
    adversarial_loss,
    train_classifier,
)


def everything(trained):
    """What a training on domains ends with, seconds apart, as plain values."""
    model, history = trained
    tensors = [model.state_dict(), history.weights["ID/pa"]]
    plain = [{name: v.tolist() for name, v in part.items()} for part in tensors]
    watched = [value.tolist() for value in history.watched["bias"]]
    return history.rows, watched, plain


def classify(data, path=None, **changes):
    model = build_model("small-cnn", seed=0)
    loss = adversarial_loss(eps=0.1, steps=1)
    options = {"epochs": 4, "lr": 0.01, "seed": 0, "noise_std": 0.1, "loss": loss}
    options |= changes
    losses = train_classifier(model, data, checkpoint=path, progress=False, **options)
    return model, losses


# ------------------------------------------------------------------------ going on


@pytest.mark.processor
@pytest.mark.parametrize("is_long", [False, True])
def test_a_stopped_training_ends_as_if_it_was_not(
    small, same_weights, tmp_path, stopped, long, is_long
):
    kind = long if is_long else classify
    whole, losses = kind(small)
    stopped(partial(kind, small, tmp_path / "run"), after=2)
    rest, again = kind(small, tmp_path / "run")
    assert again == losses
    assert same_weights(rest, whole)


@pytest.mark.processor
def test_a_stopped_training_on_domains_goes_on(full, tmp_path, stopped):
    path = tmp_path / "new" / "run.pt"
    stopped(partial(full, path), after=1)
    stopped(partial(full, path), after=2)
    last = full(path)
    assert everything(last) == everything(full())
    written = path.stat().st_mtime_ns
    assert everything(full(path)) == everything(last)  # read, and not repeated
    assert everything(full(path, model=last[0])) == everything(last)
    assert path.stat().st_mtime_ns == written


@pytest.mark.processor
def test_the_length_can_change_until_the_rates_differ(
    full, small, same_weights, tmp_path, stopped, long
):
    path = tmp_path / "run"
    full(path, epochs=2)
    assert everything(full(path, epochs=4)) == everything(full())
    with pytest.raises(ValueError, match="another training: epochs differ"):
        full(path, epochs=3)
    path.unlink()
    stopped(partial(long, small, path), after=2)  # the rate falls in the other half
    longer, losses = long(small, path, epochs=6)
    direct, expected = long(small, epochs=6)
    assert losses == expected
    assert same_weights(longer, direct)
    path.unlink()
    stopped(partial(long, small, path), after=3)
    with pytest.raises(ValueError, match="another training: epochs differ"):
        long(small, path, epochs=6)


# ------------------------------------------------------------------ kills, full disks

KILLED = """
import importlib.util, itertools, os, signal, sys
from pathlib import Path
spec = importlib.util.spec_from_file_location("conftest", sys.argv[1])
tests = importlib.util.module_from_spec(spec)
spec.loader.exec_module(tests)
move, moves = Path.replace, itertools.count(1)

def replace(self, target):
    if next(moves) == 3:
        os.kill(os.getpid(), signal.SIGKILL)  # all is written, and not yet moved
    return move(self, target)

Path.replace = replace
tests.train_to_keep(sys.argv[2])
"""


def test_a_killed_training_loses_nothing(full, tmp_path):
    path = tmp_path / "run.pt"
    words = [sys.executable, "-c", KILLED, Path(__file__).with_name("conftest.py")]
    process = subprocess.run([*words, path], check=False)
    assert process.returncode == -signal.SIGKILL
    assert len(torch.load(path, weights_only=True)["rows"]) == 2
    assert everything(full(path)) == everything(full())


def test_a_full_disk_leaves_the_epochs_before(full, tmp_path, stopped):
    path = tmp_path / "run.pt"
    stopped(partial(full, path), after=2)
    before = path.read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) // 2, limits[1]))
    try:
        with pytest.raises(
            OSError, match=r"run\.pt cannot be written \(.*\); the epoch"
        ):
            full(path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert [file.name for file in tmp_path.iterdir()] == ["run.pt"]
    assert path.read_bytes() == before
    assert everything(full(path)) == everything(full())


def test_a_place_that_cannot_be_written_is_told_before_training(
    full, tmp_path, monkeypatch
):
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(_loop.Loop, "_epoch", lambda _: pytest.fail("trained"))
    for path in (tmp_path, tmp_path / "file" / "run.pt"):
        with pytest.raises((OSError, ValueError), match="checkpoint: expected") as told:
            full(path)
        assert "\n" not in str(told.value)


def test_weights_that_overflow_are_not_saved(full, tmp_path):
    with pytest.raises(FloatingPointError, match="lr below"):
        full(tmp_path / "run.pt", lr=3e38, optimizer="sgd", epochs=1)
    assert not list(tmp_path.iterdir())


# -------------------------------------------------------------- files that do not fit


class Malicious:
    """Runs a command when it is unpickled."""

    def __reduce__(self):
        return os.system, ("touch ran",)


def without(key, path):
    state = torch.load(path, weights_only=True)
    del state[key]
    torch.save(state, path)


def flipped(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


DAMAGES = {
    "cut": lambda path: path.write_bytes(path.read_bytes()[:1000]),
    "bit": flipped,
    "rows": partial(without, "rows"),
    "identity": partial(without, "identity"),
    "list": lambda path: torch.save([1, 2], path),
    "code": lambda path: torch.save(Malicious(), path),
    "pickle": lambda path: path.write_bytes(pickle.dumps(Malicious())),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_or_foreign_file_is_told(
    full, tmp_path, monkeypatch, same_weights, damage, network
):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "run.pt"
    full(path, epochs=1)
    damage(path)
    content = path.read_bytes()
    model = network()
    with pytest.raises(ValueError, match=r"a training wrote, got .*cannot be") as told:
        full(path, model=model)
    assert "\n" not in str(told.value)
    assert same_weights(model, network())
    assert path.read_bytes() == content
    assert [file.name for file in tmp_path.iterdir()] == ["run.pt"]


class Louder(LISA):
    """Looks like LISA, and learns otherwise."""

    def loss(self, *args, **options):
        return tuple(2 * value for value in super().loss(*args, **options))

    def __repr__(self):
        return repr(LISA())


def test_a_file_of_another_training_is_refused(
    full, small, tmp_path, monkeypatch, samples, network
):
    path = tmp_path / "run.pt"
    full(path, epochs=1)
    refused = partial(pytest.raises, ValueError)
    for change, word in (
        ({"lr": 0.02}, "lr"),
        ({"seed": 1}, "seed"),
        ({"learner": IRM()}, "learner"),
        ({"tests": {}}, "tests"),
        ({"batch_size": 8}, "batch_size"),
        ({"measure": None}, "measure"),
        ({"keep": []}, "keep"),
        ({"watch": {"bias": lambda model: torch.zeros(1)}}, "watch"),
        ({"watch": {}}, "watch"),
        ({"learner": Louder()}, "learner"),
        ({"domains": samples()[::-1]}, "domains"),
    ):
        with refused(match=f"of another training: {word} differ"):
            full(path, epochs=1, **change)
    with refused(match="of another training: .*dataset differ"):
        classify(small, path)
    with refused(match="began with other weights"):
        full(path, epochs=1, model=network(7))
    monkeypatch.setattr(_loop, "fingerprint", lambda *_: "of other code")
    with refused(match="of another training: code differ"):
        full(path, epochs=1)
    state = torch.load(path, weights_only=True)
    torch.save({"format": 1, "identity": state["identity"]}, path)
    with refused(match="of another training: format differ"):
        full(path, epochs=1)


def test_another_recipe_is_not_gone_on_with(small, tmp_path, long):
    long(small, tmp_path / "run", epochs=1)
    for change in ({"lr": 0.01}, {"adversarial_eps": 0.2}, {"batch_size": 32}):
        with pytest.raises(ValueError, match="of another training"):
            long(small, tmp_path / "run", epochs=1, **change)


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_training_on_a_gpu_resumes(full, tmp_path, stopped):
    path = tmp_path / "run.pt"
    stopped(partial(full, path, device="cuda"), after=2)
    model, history = full(path, device="cuda")
    assert len(history.rows) == 4
    assert next(model.parameters()).device.type == "cuda"


# ------------------------------------------------------ what tells two trainings apart


class Plain:
    """A learner of somebody's own, without words of its own."""

    def __init__(self, weight):
        self.weight = weight


def weighted(weight):
    return lambda loss: weight * loss


def recursive(weight):
    def again(count):
        return weight * again(count - 1) if count else 0

    return again


def test_what_a_function_or_an_object_holds_tells_it_from_another():
    for make in (weighted, Plain, recursive, lambda weight: partial(weighted, weight)):
        assert _resume.described(make(1.0)) == _resume.described(make(1.0))
        assert _resume.described(make(1.0)) != _resume.described(make(2.0))


def test_a_model_of_other_code_does_not_go_on(tmp_path, small):
    class Turned(torch.nn.Linear):
        def forward(self, images):
            return -super().forward(images)

    def train(kind, epochs):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Flatten(), kind(64, 10))
        options = {"epochs": epochs, "lr": 0.01, "seed": 0, "progress": False}
        train_classifier(model, small, checkpoint=tmp_path / "file", **options)

    train(torch.nn.Linear, 1)
    with pytest.raises(ValueError, match="of another training: model differ"):
        train(Turned, 1)
