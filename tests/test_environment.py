"""The lists of dependencies agree, and hold the versions known to work together."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]

Versions = dict[str, SpecifierSet]


def parse(lines):
    """Read requirements; one named twice must be named alike."""
    versions: Versions = {}
    for line in lines:
        requirement = Requirement(line)
        name, specifier = canonicalize_name(requirement.name), requirement.specifier
        assert versions.setdefault(name, specifier) == specifier, name
    return versions


def lines_of(name):
    """Return the lines of a requirements file, without its comments."""
    lines = (ROOT / name).read_text("utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
CONSTRAINTS = parse(lines_of("constraints.txt"))
CONDA = yaml.safe_load((ROOT / "environment.yml").read_text("utf-8"))


def test_a_plain_installation_brings_four_beside_the_arithmetic():
    arithmetic = {"numpy", "scipy", "torch"}
    assert set(parse(PROJECT["dependencies"])) - arithmetic == {
        *("safetensors", "scikit-learn", "tqdm", "typer")
    }


def test_what_the_book_needs_is_pinned_and_what_a_user_has_is_not():
    versions = parse([*PROJECT["dependencies"], *EXTRAS["chapters"], *EXTRAS["book"]])
    for name, specifier in versions.items():
        if re.search("sphinx|docutils|jupyter-?book|jupytext|myst|numpydoc", name):
            assert [s.operator for s in specifier] == ["=="], name
    # A pin would bring another torch to a runtime that has one.
    for name in ("torch", "torchvision"):
        assert [s.operator for s in versions[name]] == [">="], name
    assert CONSTRAINTS["torch"] == SpecifierSet("==2.13.0")
    assert CONSTRAINTS["sphinx"] == SpecifierSet("==7.4.7")


def test_constraints_satisfy_every_requirement():
    required = parse(sum(EXTRAS.values(), start=[*PROJECT["dependencies"]]))
    # The environment has its own setuptools, and `pip freeze` leaves it out.
    for name in set(required) - {"robustbook", "setuptools"}:
        (pin,) = CONSTRAINTS[name]
        assert pin.operator == "==", name
        assert required[name].contains(pin.version), name
        assert "+" not in pin.version, "not a public version"


def test_make_conda_and_binder_install_the_package_with_the_constraints():
    python, _, pip = CONDA["dependencies"]
    assert Requirement(python).specifier == SpecifierSet(PROJECT["requires-python"])
    assert CONDA["name"] == PROJECT["name"]
    listed = pip["pip"]
    binder = lines_of(".binder/requirements.txt")
    makefile = (ROOT / "Makefile").read_text("utf-8")
    for lines, wanted in ((listed, "book,lab,test"), (binder, "chapters")):
        assert any(re.fullmatch(r"--constraint \S*constraints.txt", x) for x in lines)
        (line,) = (line for line in lines if line.startswith("--editable"))
        assert line == f"--editable .[{wanted}]"
        assert set(wanted.split(",")) <= set(EXTRAS)
    assert "--constraint constraints.txt --editable '.[book,lab,test]'" in makefile
    # Whatever else is in that folder would take part in the building.
    assert {path.name for path in (ROOT / ".binder").iterdir()} == {
        *("requirements.txt", "runtime.txt")
    }
    language, _, version = (ROOT / ".binder/runtime.txt").read_text().partition("-")
    assert language == "python"
    assert SpecifierSet(PROJECT["requires-python"]).contains(version.strip())
