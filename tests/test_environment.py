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


PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
PROJECT, GROUPS = PYPROJECT["project"], PYPROJECT["dependency-groups"]
EXTRAS = PROJECT["optional-dependencies"]
CONSTRAINTS = parse(lines_of("constraints.txt"))
CONDA = yaml.safe_load((ROOT / "environment.yml").read_text("utf-8"))
TESTS = yaml.safe_load((ROOT / ".github/workflows/test.yml").read_text("utf-8"))


def test_what_the_book_needs_is_pinned_and_what_a_user_has_is_not():
    versions = parse([*PROJECT["dependencies"], *EXTRAS["chapters"], *GROUPS["book"]])
    for name, specifier in versions.items():
        if re.search("sphinx|docutils|jupyter-?book|jupytext|myst|numpydoc", name):
            assert [s.operator for s in specifier] == ["=="], name
    # A pin would bring another torch to a runtime that has one.
    for name in ("torch", "torchvision"):
        assert [s.operator for s in versions[name]] == [">="], name


def test_constraints_satisfy_every_requirement():
    listed = [PROJECT["dependencies"], *EXTRAS.values(), *GROUPS.values()]
    required = parse(
        line for lines in listed for line in lines if isinstance(line, str)
    )
    # The environment has its own setuptools, and `pip freeze` leaves it out.
    for name in set(required) - {"robustbook", "setuptools"}:
        (pin,) = CONSTRAINTS[name]
        assert pin.operator == "==", name
        assert required[name].contains(pin.version), name
        assert "+" not in pin.version, "not a public version"


def test_every_development_group_is_installed():
    included = {group["include-group"] for group in GROUPS["dev"]}
    assert included == set(GROUPS) - {"dev"}
    install = "--constraint constraints.txt --editable . --group dev\n"
    assert install in (ROOT / "Makefile").read_text("utf-8")


def test_conda_and_binder_install_what_chapters_import_with_the_constraints():
    *_, pip = CONDA["dependencies"]
    for lines in (pip["pip"], lines_of(".binder/requirements.txt")):
        assert any(re.fullmatch(r"--constraint \S*constraints.txt", x) for x in lines)
        assert "--editable .[chapters]" in lines


def test_the_pythons_that_ci_tests_are_those_that_are_promised():
    tested = TESTS["jobs"]["test"]["strategy"]["matrix"]["python"]
    language = "Programming Language :: Python :: 3."
    classifiers = [c for c in PROJECT["classifiers"] if c.startswith(language)]
    assert [c.split(" :: ")[-1] for c in classifiers] == tested
    promised = SpecifierSet(PROJECT["requires-python"])
    assert tested == list(promised.filter([f"3.{minor}" for minor in range(8, 14)]))
    conda = Requirement(CONDA["dependencies"][0]).specifier
    assert tested == list(conda.filter([f"3.{minor}" for minor in range(8, 20)]))
    binder = (ROOT / ".binder/runtime.txt").read_text().strip()
    assert binder in [f"python-{version}" for version in tested]
