"""Shared parts of docstrings: filled in, everywhere, and missed where they lack."""

import importlib
import inspect
import re
from pathlib import Path

import pytest

import robustbook
from robustbook._docs import SharedDocs

ROOT = Path(__file__).parents[1]
SHARED = SharedDocs(
    """Parts.

    x : Tensor, shape (N, ...)
        Inputs.

        More of them.
    TypeError, ValueError
        If they are not.
    """
)


def test_entries_keep_their_margin_and_their_order():
    def document():
        """Look.

        Parameters
        ----------
        {x}
        y : int

        {TypeError, ValueError}
        """

    def with_heading():
        """Look.

        Raises
        ------
        {TypeError, ValueError}
        """

    SHARED.fill(document)
    assert inspect.getdoc(document).partition("\n\n")[2] == (
        "Parameters\n----------\nx : Tensor, shape (N, ...)\n    Inputs.\n\n"
        "    More of them.\ny : int\n\n"
        "Raises\n------\nTypeError, ValueError\n    If they are not."
    )
    assert inspect.getdoc(SHARED.fill(with_heading)).count("Raises") == 1


def test_a_formula_is_kept_and_a_missing_entry_is_an_error():
    def formula():
        r"""A set {x} and \frac{x}{y}."""

    before = formula.__doc__
    assert SHARED.fill(formula).__doc__ == before
    with pytest.raises(KeyError, match="z"):
        SHARED.fill(lacking)


def lacking():
    """
    {z}
    """


def test_without_docstrings_there_is_no_error():
    assert SharedDocs(None).fill(lacking) is lacking


def modules_with_places():
    source = Path(robustbook.__file__).parents[1]
    return [
        ".".join(path.relative_to(source).with_suffix("").parts)
        for path in sorted(source.glob("robustbook/**/*.py"))
        if ".fill\n" in path.read_text("utf-8") and path.name != "_docs.py"
    ]


@pytest.mark.parametrize("module", modules_with_places())
def test_no_place_is_left_in_a_docstring(module):
    try:
        members = vars(importlib.import_module(module)).values()
    except ImportError as error:  # an extra that is not installed
        pytest.skip(str(error))
    functions = [m for m in members if getattr(m, "__module__", None) == module]
    assert functions
    for member in functions:
        text = inspect.getdoc(member) or ""
        assert not re.search(r"^\s*\{[\w, *]+\}$", text, re.MULTILINE)


def test_every_environment_variable_is_documented():
    pattern = re.compile(r"ROBUSTBOOK_[A-Z]+(?:_[A-Z]+)*")
    code = [*(ROOT / "src").rglob("*.py"), ROOT / "Makefile"]
    used = {name for path in code for name in pattern.findall(path.read_text())}
    # Set by the press for the chapters that it executes.
    used -= {"ROBUSTBOOK_READS"}
    table = (ROOT / "book/api/command_line.md").read_text()
    table = table.partition("## Environment variables")[2]
    assert used
    assert used <= set(pattern.findall(table))
