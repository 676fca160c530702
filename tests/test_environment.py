"""The lists of dependencies agree, and hold the versions known to work together."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]

# What is known to build together; Jupyter Book 1 breaks with newer ones of these.
PINNED = {
    "docutils": "0.21.2",
    "jupyter-book": "1.0.4.post1",
    "jupytext": "1.19.6",
    "myst-nb": "1.4.0",
    "myst-parser": "3.0.1",
    "numpydoc": "1.11.0",
    "papermill": "2.7.0",
    "pydata-sphinx-theme": "0.17.1",
    "sphinx": "7.4.7",
    "sphinx-book-theme": "1.3.0",
    "sphinx-codeautolink": "0.19.0",
    "sphinx-exercise": "1.2.1",
    "sphinx-notfound-page": "1.1.0",
    "sphinx-proof": "0.4.0",
    "sphinxcontrib-bibtex": "2.7.0",
    "sphinxext-opengraph": "0.13.0",
}

Versions = dict[str, SpecifierSet]


def parse(lines: list[str]) -> Versions:
    """Read requirements; one named twice must be named alike."""
    found: Versions = {}
    for line in lines:
        requirement = Requirement(line)
        name = canonicalize_name(requirement.name)
        assert found.setdefault(name, requirement.specifier) == requirement.specifier
    return found


@pytest.fixture(scope="module")
def project() -> dict:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.fixture(scope="module")
def declared(project: dict) -> Versions:
    extras = project["optional-dependencies"]
    assert set(extras) == {"attacks", "book", "chapters", "test"}
    # `chapters` repeats what others pin: see its own test.
    named = [extras[name] for name in ("attacks", "book", "test")]
    return parse(project["dependencies"] + [r for extra in named for r in extra])


@pytest.fixture(scope="module")
def conda() -> dict:
    return yaml.safe_load((ROOT / "environment.yml").read_text())


@pytest.fixture(scope="module")
def constraints() -> Versions:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    return parse([line for line in lines if line and not line.startswith("#")])


def pip_section(conda: dict) -> list[str]:
    (section,) = (item for item in conda["dependencies"] if isinstance(item, dict))
    return section["pip"]


def test_conda_and_pip_list_the_same(declared: Versions, conda: dict) -> None:
    listed = [line for line in pip_section(conda) if not line.startswith("-")]
    assert len(listed) == len(set(listed))
    assert parse(listed) == declared


def test_conda_installs_the_package_with_the_constraints(conda: dict) -> None:
    options = [line for line in pip_section(conda) if line.startswith("-")]
    assert "--editable ." in options
    assert "--constraint constraints.txt" in options
    assert conda["name"] == "robustbook"


def test_python_versions_agree(project: dict, conda: dict) -> None:
    python = Requirement(conda["dependencies"][0])
    assert python.name == "python"
    assert python.specifier == SpecifierSet(project["requires-python"])
    assert python.specifier == SpecifierSet(">=3.11,<3.14")


def test_binder_installs_what_chapters_import(project: dict) -> None:
    lines = (ROOT / "binder" / "requirements.txt").read_text().splitlines()
    stated = {line for line in lines if line and not line.startswith("#")}
    assert "--editable .[chapters]" in stated
    assert "--constraint ../constraints.txt" in stated
    language, _, version = (ROOT / "binder" / "runtime.txt").read_text().partition("-")
    assert language == "python"
    assert SpecifierSet(project["requires-python"]).contains(version.strip())
    # Whatever else is in that folder would take part in the building.
    assert {path.name for path in (ROOT / "binder").iterdir()} == {
        "requirements.txt",
        "runtime.txt",
    }


def test_chapters_import_what_the_book_and_the_attacks_pin(
    project: dict, declared: Versions, constraints: Versions
) -> None:
    chapters = parse(project["optional-dependencies"]["chapters"])
    torchvision = chapters.pop("torchvision")
    assert chapters.items() <= declared.items()
    # A pin would bring another torch to a runtime that has both.
    assert [specifier.operator for specifier in torchvision] == [">="]
    (specifier,) = constraints["torchvision"]
    assert torchvision.contains(specifier.version)


def test_the_book_is_pinned(declared: Versions) -> None:
    for name, version in PINNED.items():
        assert declared[name] == SpecifierSet(f"=={version}"), name


def test_torch_has_a_lower_bound_only(project: dict, constraints: Versions) -> None:
    torch = parse(project["dependencies"])["torch"]
    assert [specifier.operator for specifier in torch] == [">="]
    # The exact build is a constraint of this book, not of the package.
    assert constraints["torch"] == SpecifierSet("==2.13.0")
    assert constraints["torchvision"] == SpecifierSet("==0.28.0")


def test_constraints_satisfy_every_requirement(
    declared: Versions, constraints: Versions
) -> None:
    for name, wanted in declared.items():
        if name == "setuptools":  # of the environment, not of a freeze
            continue
        (specifier,) = constraints[name]
        assert specifier.operator == "==", name
        assert wanted.contains(specifier.version), name


def test_constraints_are_public_versions(constraints: Versions) -> None:
    for name, (specifier,) in constraints.items():
        assert "+" not in specifier.version, name


def test_package_alone_needs_nothing_of_the_book(project: dict) -> None:
    core = parse(project["dependencies"])
    assert not set(core) & set(PINNED)
    assert "torchvision" not in core
