"""What linters do not say of private names.

``robustbook.attacks._engine`` may be imported in ``robustbook.attacks`` and below, and
``robustbook._store`` in all of robustbook. Who may import whom otherwise is in
pyproject.toml, and `make lint` checks it.
"""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCES = sorted((ROOT / "src").rglob("*.py"))


def imported(tree):
    """Yield the full name of what is imported anywhere in a module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def reached(tree, package):
    """Return the private names of other packages of ours that are imported."""
    names = []
    for name in imported(tree):
        owner = re.match(r"((?:robustbook|press)(?:\.[^._][^.]*)*)\._[^_]", name)
        if owner and not f"{package}.".startswith(f"{owner[1]}."):
            names.append(name)
    return names


def test_no_module_imports_a_private_name_of_another_package():
    reaches = {}
    for path in SOURCES:
        package = ".".join(path.relative_to(ROOT / "src").parent.parts)
        names = reached(ast.parse(path.read_text("utf-8")), package)
        if names:
            reaches[str(path.relative_to(ROOT))] = names
    assert reaches == {}


def test_no_chapter_imports_a_private_name():
    pattern = re.compile(r"^\s*(?:from|import) (robustbook\S*\._\S+)", re.MULTILINE)
    for path in sorted((ROOT / "notebooks").glob("*.md")):
        assert pattern.findall(path.read_text("utf-8")) == [], path.name


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("from robustbook.attacks._engine import Batch", 1),
        ("from robustbook.attacks import _engine", 1),
        ("import robustbook.attacks._engine", 1),
        ("from robustbook.margins import _recipe", 0),
        ("from robustbook._store.cache import cached_arrays", 0),
        ("from robustbook import __version__", 0),
    ],
)
def test_an_import_of_a_private_name_is_detected(line, names):
    assert len(reached(ast.parse(line), "robustbook.margins")) == names
