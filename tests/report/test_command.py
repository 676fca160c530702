"""``robustbook report``, from the model's name to the page."""

from __future__ import annotations

import json
import os
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner, Result

from robustbook.cli import app
from robustbook.models import load_model
from robustbook.report import read_images, read_report
from robustbook.report._make import _check_fit

Run = Callable[..., Result]
FAST = (
    "--images=12",
    "--attack-steps=2",
    "--noise-samples=16",
    "--margin-images=3",
    "--device=cpu",
)

NETS = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, classes=4):
        super().__init__()
        self.linear = nn.Linear(48, classes)
        nn.init.normal_(self.linear.weight, generator=torch.Generator().manual_seed(0))

    def forward(self, images):
        return self.linear(images.flatten(1))


def single():
    return Net(classes=1)


class Frozen(Net):
    def forward(self, images):
        return super().forward(images).detach()


class Half(Net):
    def forward(self, images):
        return super().forward(images)[:1]


class Changes(Net):
    def forward(self, images):
        return super().forward(images.sub_(0.5))


class Picky(Net):
    def forward(self, images):
        if len(images) > 2:
            raise KeyError("w")
        return super().forward(images)


class Counts(Net):
    def __init__(self):
        super().__init__()
        self.linear.bias.data.zero_()
        count = nn.Parameter(torch.zeros(1, dtype=torch.int8), requires_grad=False)
        self._parameters = {"count": count, **self._parameters}


def leave():
    raise SystemExit(0)


def small():
    return Net().half()
"""


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Return the command in a folder with a model and data of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "own_nets", raising=False)
    (tmp_path / "own_nets.py").write_text(NETS)
    rng = np.random.default_rng(0)
    images = rng.random((20, 3, 4, 4), dtype=np.float32)
    np.savez(tmp_path / "mine.npz", images=images, labels=np.arange(20) % 4)
    np.savez(tmp_path / "bare.npz", images=(255 * images).astype(np.uint8))
    np.savez(tmp_path / "five.npz", images=images, labels=np.arange(20) % 5)
    np.savez(tmp_path / "few.npz", images=images[:5])
    np.savez(tmp_path / "other.npz", images=images, y=np.arange(20) % 4)
    os.mkfifo(tmp_path / "pipe")

    def command(model: str, data: str, *words: str, out: str = "page.html") -> Result:
        line = ["report", model, "--data", data, "--out", out, *FAST, *words]
        return CliRunner().invoke(app, line)

    return command


def test_a_known_model_on_known_data(run: Run, tmp_path: Path) -> None:
    result = run("digits-linear", "digits", "--json", "all.json", "--eps=0.1")
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("page.html: ")
    assert result.stdout.rstrip().endswith(" s")
    numbers = read_report(tmp_path / "page.html")
    assert numbers["model"] == "digits-linear"
    assert numbers["data"] == "digits:test"
    assert numbers["images"] == 12
    assert numbers["settings"]["eps"] == 0.1
    assert numbers["margins"]["measured"] == 3
    assert numbers["device"] == "cpu"
    whole = json.loads((tmp_path / "all.json").read_text())
    scores = whole.pop("per_image")
    assert whole == numbers
    assert len(scores["position"]) == len(scores["logit margin"]) == 12
    assert sum(margin is not None for margin in scores["input margin"]) == 3
    names = {path.name for path in tmp_path.iterdir()}
    assert {"page.html", "all.json"} <= names
    assert not [name for name in names if name.startswith(".")]


def test_a_model_and_data_of_ones_own(run: Run, tmp_path: Path) -> None:
    result = run("own_nets:Net", "mine.npz")
    assert result.exit_code == 0, result.output
    numbers = read_report(tmp_path / "page.html")
    assert numbers["classes"] == 4
    assert numbers["data"] == "mine.npz"
    assert numbers["accuracy"] is not None


def test_without_labels(run: Run, tmp_path: Path) -> None:
    result = run("own_nets:Net", "bare.npz")
    assert result.exit_code == 0, result.output
    assert read_report(tmp_path / "page.html")["accuracy"] is None


@pytest.mark.parametrize(
    ("model", "data", "words", "said"),
    [
        ("oak", "digits", (), "'oak'"),
        ("own_nets:oak", "mine.npz", (), "own_nets has no attribute oak; it has Chan"),
        ("oak_nets:net", "mine.npz", (), "no module oak_nets found"),
        ("digits-linear", "oak", (), "expected one of digits:{train,test}"),
        ("digits-linear", "oak.npz", (), "oak.npz: no such file"),
        ("digits-linear", "mine.npz", (), "images of 3x4x4, as mine.npz has them, do"),
        ("own_nets:Net", "digits", (), "images of 1x8x8, as digits:test has them, do"),
        ("own_nets:single", "mine.npz", (), "logits of shape (2, K) with K of at lea"),
        ("own_nets:Half", "mine.npz", (), "logits of shape (2, K)"),
        ("own_nets:Frozen", "mine.npz", (), "its logits carry no gradient"),
        ("own_nets:Net", "five.npz", (), "4 classes, but a label of five.npz is 4"),
        ("own_nets:Net", "few.npz", (), "few.npz: images: expected at least 10, got 5"),
        ("digits-linear", "digits", ("--eps=eight",), "--eps: expected a number in"),
        ("digits-linear", "digits", ("--sigma=0",), "sigma: expected a positive"),
        ("digits-linear", "digits", ("--device=oak",), "device: "),
        ("digits-linear", "digits", ("--out=none/page.html",), "no such folder: none"),
        ("digits-linear", "digits", ("--out=.",), "a folder; name a file in it"),
        ("digits-linear", "digits", ("--json=none/a.json",), "no such folder: none"),
        ("digits-linear", "digits", ("--json=page.html",), "another file than --out"),
        ("own_nets:Net", "mine.npz", ("--out=mine.npz",), "another file than --data"),
        ("digits-linear", "digits", ("--out=pipe",), "a device or a pipe"),
        ("own_nets:leave", "mine.npz", (), "leave() raises SystemExit: 0"),
        ("own_nets:small", "mine.npz", (), "float16; call model.float() first"),
    ],
)
def test_what_cannot_be_done_is_said_in_a_line(
    run: Run, tmp_path: Path, model: str, data: str, words: tuple[str, ...], said: str
) -> None:
    (tmp_path / "page.html").write_text("an older page")
    result = run(model, data, *words)
    assert result.exit_code == 2
    assert result.stderr.startswith("robustbook: ")
    assert said in result.stderr
    assert result.stderr.count("\n") == 1
    assert result.stdout == ""
    assert (tmp_path / "page.html").read_text() == "an older page"


def test_too_few_images_asked_for(run: Run) -> None:
    result = run("digits-linear", "digits", "--images=3")
    assert result.exit_code == 2
    assert "--images" in result.stderr


def test_labels_by_another_name_are_not_passed_over(run: Run, tmp_path: Path) -> None:
    result = run("own_nets:Net", "other.npz")
    assert result.exit_code == 0, result.output
    assert "other.npz: nothing named labels in it (but y)" in result.stderr
    assert read_report(tmp_path / "page.html")["accuracy"] is None


def test_a_model_that_fails_later_is_said_to(run: Run, tmp_path: Path) -> None:
    result = run("own_nets:Picky", "mine.npz")
    assert result.exit_code == 1
    assert "own_nets:Picky: KeyError while it was measured: 'w'" in result.stderr
    assert not (tmp_path / "page.html").exists()


def test_what_lies_here_is_imported_for_import_paths_only(
    run: Run, tmp_path: Path
) -> None:
    assert run("digits-linear", "digits").exit_code == 0
    assert str(tmp_path) not in sys.path


@pytest.mark.parametrize("name", ["Changes", "Counts"])
def test_models_that_are_odd_but_fit(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    mine = read_images("mine.npz")
    before = mine.images.clone()
    asked: Any = SimpleNamespace(model=name)
    _check_fit(load_model(f"own_nets:{name}"), mine, asked)
    assert torch.equal(mine.images, before)


def test_a_long_name(run: Run, tmp_path: Path) -> None:
    name = "a" * 245 + ".html"
    assert run("digits-linear", "digits", out=name).exit_code == 0
    assert read_report(tmp_path / name)["model"] == "digits-linear"


@pytest.mark.filterwarnings("default")
def test_warnings_are_lines_of_words(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def warn(_: object) -> float:
        warnings.warn("the noise\n is small", stacklevel=1)
        return 3.0

    monkeypatch.setattr("robustbook.report._make.make", warn)
    result = run("digits-linear", "digits")
    assert result.exit_code == 0, result.output
    assert result.stderr == "robustbook: the noise is small\n"
