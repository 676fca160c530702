"""The lists of dependencies agree, and hold the versions known to work together."""

import re
import tomllib
from pathlib import Path

import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]


def parse(lines):
    """Read requirements; one named twice must be named alike."""
    versions = {}
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
CONDA = yaml.safe_load((ROOT / "environment.yml").read_text("utf-8"))


def test_what_is_required_is_constrained_and_only_the_book_is_pinned():
    listed = [PROJECT["dependencies"], *EXTRAS.values(), *GROUPS.values()]
    required = parse(x for lines in listed for x in lines if isinstance(x, str))
    constraints = parse(lines_of("constraints.txt"))
    # The environment has its own setuptools, and `pip freeze` leaves it out.
    for name in set(required) - {"robustbook", "setuptools"}:
        (pin,) = constraints[name]
        assert pin.operator == "==", name
        assert required[name].contains(pin.version), name
        assert "+" not in pin.version, "not a public version"
        if re.search("sphinx|docutils|jupyter-?book|jupytext|myst|numpydoc", name):
            assert [s.operator for s in required[name]] == ["=="], name
    # A pin would bring another torch to a runtime that has one.
    for name in ("torch", "torchvision"):
        assert [s.operator for s in required[name]] == [">="], name


def test_make_conda_and_binder_install_everything_with_the_constraints():
    included = {group["include-group"] for group in GROUPS["dev"]}
    assert included == set(GROUPS) - {"dev"}
    install = "--constraint constraints.txt --editable . --group dev\n"
    assert install in (ROOT / "Makefile").read_text("utf-8")
    *_, pip = CONDA["dependencies"]
    for lines in (pip["pip"], lines_of(".binder/requirements.txt")):
        assert any(re.fullmatch(r"--constraint \S*constraints.txt", x) for x in lines)
        assert "--editable .[chapters]" in lines


def test_the_pythons_that_ci_tests_are_those_that_are_promised():
    tests = yaml.safe_load((ROOT / ".github/workflows/test.yml").read_text("utf-8"))
    tested = tests["jobs"]["test"]["strategy"]["matrix"]["python"]
    language = "Programming Language :: Python :: 3."
    classifiers = [c for c in PROJECT["classifiers"] if c.startswith(language)]
    assert [c.split(" :: ")[-1] for c in classifiers] == tested
    promised = SpecifierSet(PROJECT["requires-python"])
    assert tested == list(promised.filter([f"3.{minor}" for minor in range(8, 14)]))
    conda = Requirement(CONDA["dependencies"][0]).specifier
    assert tested == list(conda.filter([f"3.{minor}" for minor in range(8, 20)]))
    binder = (ROOT / ".binder/runtime.txt").read_text().strip()
    assert binder in [f"python-{version}" for version in tested]
