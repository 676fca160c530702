"""The recipes for contributors, followed to the letter in copies of the book."""

import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from press.layout import list_chapters
from press.stamps import staleness
from robustbook._store.provenance import Code
from robustbook.studies.results import stale_results

from .press.conftest import complete
from .press.small_book import press, small_book

ROOT = Path(__file__).parents[1]
_BLOCK = re.compile(
    r"^(?P<fence>`{3,})\{code-block\} (?P<kind>\w+)\n"
    r":caption: \W*(?P<path>[\w./-]+)\W*\n\n"
    r"(?P<text>.*?)^(?P=fence)$",
    re.MULTILINE | re.DOTALL,
)


KINDS = ("measure", "attack", "study", "data set", "network", "chapter")
#: These change what every study imports.
REGISTERED = {"A new data set", "A new network"}


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """A copy with the recipes for a measure, an attack, a study and a chapter."""
    others = {f"A new {kind}" for kind in KINDS} - REGISTERED
    return followed(tmp_path_factory.mktemp("book"), others)


@pytest.fixture(scope="module")
def larger(tmp_path_factory):
    """A copy with the recipes for a data set and a network."""
    return followed(tmp_path_factory.mktemp("book"), REGISTERED)


def followed(copy, chosen):
    """Copy what is edited, and follow the recipes with the chosen headings."""
    # With what mypy knows of the rest, where it has been run.
    ignore = shutil.ignore_patterns("__pycache__", "_static")
    for folder in ("src", "notebooks", "tests/attacks", "book", ".mypy_cache"):
        if (ROOT / folder).is_dir():
            shutil.copytree(ROOT / folder, copy / folder, ignore=ignore)
    (copy / "tests" / "studies").mkdir()
    for file in ("pyproject.toml", "_toc.yml", "_config.yml"):
        shutil.copy(ROOT / file, copy / file)
    for folder in ("data", "book/_static"):
        (copy / folder).symlink_to(ROOT / folder)
    text = (ROOT / "book" / "contributing.md").read_text()
    blocks = [
        block
        for recipe in re.split(r"^(?=## A new )", text, flags=re.MULTILINE)[1:]
        if recipe.partition("\n")[0].removeprefix("## ") in chosen
        for block in _BLOCK.finditer(recipe)
    ]
    assert len(blocks) >= 9
    for block in blocks:
        path = copy / block["path"]
        if block["kind"] == "diff":
            path.write_text(_patched(path.read_text(), block["text"]))
        else:
            assert not path.exists(), f"{path.name} is there already"
            path.write_text(block["text"])
    return copy


def _patched(text, diff):
    """Add the lines with a plus after the one without."""
    context, *added = diff.splitlines(keepends=True)
    assert context.startswith(" ")
    assert all(line.startswith("+") for line in added)
    assert text.count(context[1:]) == 1, context
    return text.replace(context[1:], context[1:] + "".join(x[1:] for x in added))


def run(copy, *command, status=0):
    environment = dict(os.environ, PYTHONPATH=str(copy / "src"), MYPYPATH="")
    done = subprocess.run(
        [sys.executable, *(command if command[0] == "-c" else ("-m", *command))],
        cwd=copy, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout


def test_there_are_exactly_six_recipes():
    text = (ROOT / "book" / "contributing.md").read_text()
    headings = re.findall(r"^## (.+)$", _BLOCK.sub("", text), re.MULTILINE)
    assert headings == [f"A new {kind}" for kind in KINDS]


@pytest.mark.slow
def test_the_code_is_clean(copy):
    new = [
        "src/robustbook/top_k.py",
        "src/robustbook/attacks/_corners.py",
        "src/robustbook/attacks/__init__.py",
        "src/robustbook/studies/adversarial/top_two.py",
        "src/robustbook/studies/_registry.py",
        "tests/studies/test_top_two.py",
        "tests/test_top_k.py",
        "tests/attacks/test_corners.py",
        "tests/attacks/test_calls.py",
    ]
    run(copy, "ruff", "check", *new)
    run(copy, "ruff", "format", "--check", *new)
    run(copy, "mypy", *new[:5])
    run(copy, "-c", "from importlinter.cli import *; lint_imports_command()")


@pytest.mark.slow
def test_the_measure_the_attack_and_the_study_pass_their_tests(copy):
    out = run(
        copy, "pytest", "-q", "-p", "no:cacheprovider",
        "tests/test_top_k.py", "tests/attacks/test_corners.py",
        "tests/studies/test_top_two.py",
        "src/robustbook/top_k.py", "src/robustbook/attacks/_corners.py",
        "tests/attacks/test_calls.py", "-k", "corners or top_k or top_two",
    )  # fmt: skip
    passed = re.search(r"(\d+) passed", out)
    assert passed is not None
    assert int(passed[1]) >= 13


@pytest.mark.slow
def test_the_data_set_and_the_network_are_clean_and_pass_their_tests(larger):
    folder = "src/robustbook"
    new = [f"{folder}/datasets/_stripes.py", f"{folder}/models/_perceptron.py"]
    tests = ["tests/test_stripes.py", "tests/test_perceptron.py"]
    run(larger, "ruff", "check", *new, *tests)
    run(larger, "ruff", "format", "--check", *new, *tests)
    run(larger, "mypy", *new)
    out = run(larger, "pytest", "-q", "-p", "no:cacheprovider", *tests)
    assert "2 passed" in out


def test_nothing_else_becomes_stale(copy):
    """Neither stored results, nor what a cache keeps by the code, nor chapters."""
    assert stale_results(copy) == stale_results(ROOT)
    before, after = Code(ROOT / "src"), Code(copy / "src")
    files = (ROOT / "src").glob("robustbook/**/*.py")
    paths = {path.relative_to(ROOT / "src").with_suffix("") for path in files}
    names = {".".join(path.parts).removesuffix(".__init__") for path in paths}
    modules = names - {"robustbook"}
    changed = {m for m in modules if before.fingerprint(m) != after.fingerprint(m)}
    studies = {"__main__", "_all", "_registry", "adversarial"}
    assert changed == {
        "robustbook.attacks",
        "robustbook.studies",
        *(f"robustbook.studies.{name}" for name in studies),
    }, "what lists them, as there are more now"
    for chapter in list_chapters(ROOT):
        if chapter not in list_studies():
            assert staleness(replace(chapter, root=copy)) == staleness(chapter)


def list_studies():
    """The chapters that read settings from the list of studies."""
    chapters = list_chapters(ROOT)
    return [c for c in chapters if "import STUDIES" in c.source.read_text("utf-8")]


@pytest.mark.slow
def test_the_chapter_is_published_and_built_without_a_fault(copy, tmp_path):
    """In a book with it, the page of the measure, and what it refers to."""
    faults = set(run(copy, "press", "check", status=1).splitlines())
    known = set(press(ROOT, "check", status=None).splitlines())
    # A chapter that reads the list of studies may be stale already.
    listed = {
        f"{c.show(c.published)}: stale: code that it imports changed; make book"
        for c in list_studies()
    }
    assert faults - known == listed - known | {
        "notebooks/99_top_two.ipynb: missing; make book",
        "book/chapters/99_top_two.ipynb: stale: it was never executed; make book",
    }
    chapter = (copy / "notebooks" / "99_top_two.md").read_text()
    first = complete().replace("ch-accuracy", "ch-first")
    pages = {"book/api/top_k.md": (copy / "book" / "api" / "top_k.md").read_text()}
    small_book(tmp_path, {"02_first": first, "99_top_two": chapter}, pages)
    (tmp_path / "src").symlink_to(copy / "src")
    press(tmp_path, "publish")
    press(tmp_path, "site")
    html = tmp_path / "_build" / "html" / "book"
    page = (html / "chapters" / "99_top_two.html").read_text()
    assert "<strong>Holds in this run.</strong> The answer stays on" in page
    assert "top_k_agreement" in (html / "api" / "top_k.html").read_text()
    assert press(tmp_path, "check") == "2 chapters: all in step, nothing stale\n"
