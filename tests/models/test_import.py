"""A model by import path, and each way in which that can fail."""

import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from robustbook.models import JPEGReverseSigmoid, _load, load_model

MODULE = """
import torch
from torch import nn

network = nn.Sequential(nn.Flatten(), nn.Dropout(), nn.Linear(64, 10))
ten = 10
unborn = nn.LazyLinear(3)
make = lambda: network
sized = lambda width, depth, seed=0: network
nothing = lambda: None


def broken():
    raise RuntimeError("no weights\\nhere")


def leave():
    raise SystemExit(0)


class Lazy:
    @property
    def net(self):
        raise ImportError("later")


lazy = Lazy()


class Zoo:
    best = network

    class Net(nn.Linear):
        def __init__(self, *unused, classes=3, **others):
            super().__init__(64, classes)
"""


FAULTY = {"needy": "import oak_tree", "wrong": "1 / 0", "typo": "def f(:"}
FAULTY["leaves"] = "import sys; sys.exit(0)"


@pytest.fixture(autouse=True)
def brought(tmp_path, monkeypatch):
    package = tmp_path / "brought_along"
    package.mkdir()
    for name, text in {"__init__": "", "nets": MODULE, **FAULTY}.items():
        (package / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in [key for key in sys.modules if key.startswith("brought_along")]:
        monkeypatch.delitem(sys.modules, name)


@pytest.mark.parametrize("attribute", ["network", "make", "Zoo.best"])
def test_it_is_the_module_itself_ready_to_be_evaluated(attribute):
    model = load_model(f"brought_along.nets:{attribute}")
    assert model is sys.modules["brought_along.nets"].network
    assert not any(module.training for module in model.modules())
    assert not any(p.requires_grad for p in model.parameters())
    assert model(torch.zeros(2, 1, 8, 8)).shape == (2, 10)


def test_a_class_without_required_arguments_is_called_and_a_defense_may_follow():
    defended = load_model("brought_along.nets:make+jpeg-rs")
    assert isinstance(defended, JPEGReverseSigmoid)
    model = load_model("brought_along.nets:Zoo.Net")
    assert isinstance(model, nn.Linear)
    assert model.out_features == 3


def test_torchvision_is_mended_before_a_reader_can_import_it(tmp_path, monkeypatch):
    module = "import os\nos.environ['MENDED']\nfrom brought_along.nets import network\n"
    (tmp_path / "brought_along" / "late.py").write_text(module)
    monkeypatch.delenv("MENDED", raising=False)
    monkeypatch.setattr(
        _load, "mend_torchvision", lambda: monkeypatch.setenv("MENDED", "yes")
    )
    assert isinstance(load_model("brought_along.late:network"), nn.Module)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("oak:net", "ModuleNotFoundError: No module named 'oak'; install what is"),
        ("brought_along.needy:net", "No module named 'oak_tree'"),
        ("brought_along.wrong:net", "got ZeroDivisionError: division by zero"),
        ("brought_along.typo:net", "got SyntaxError"),
        ("brought_along.nets:Zoo.oak", "got AttributeError: .*'oak'"),
        ("brought_along.nets:ten", "got TypeError: 'int' object is not callable"),
        ("brought_along.nets:sized", "missing 2 required .*'width' and 'depth'"),
        ("brought_along.nets:broken", "got RuntimeError: no weights here"),
        ("brought_along.leaves:net", "got SystemExit: 0"),
        ("brought_along.nets:leave", "got SystemExit: 0"),
        ("brought_along.nets:lazy.net", "got ImportError: later"),
        ("brought_along.nets:unborn", "expected initialized weights, got lazy ones"),
        ("brought_along.nets:nothing", "to return a torch.nn.Module, got NoneType"),
    ],
)
def test_a_failed_import_tells_the_cause_in_one_line(name, words):
    with pytest.raises(ValueError, match=words) as caught:
        load_model(name)
    message = str(caught.value)
    assert message.startswith(f"name: {name!r}: ")
    assert "\n" not in message


@pytest.mark.parametrize(
    "name", ["brought_along.nets:", ":net", "a:b:c", "models/net.py:net", "digits-cnn:"]
)
def test_an_import_path_has_a_module_and_an_attribute(name):
    with pytest.raises(ValueError, match=r"expected package\.module:attribute"):
        load_model(name)


def test_a_name_is_a_string():
    with pytest.raises(TypeError, match="name: expected a string, got PosixPath"):
        load_model(Path("x"))
