"""A chapter is stale when what it was made from changed, and only then."""

import json
import shutil
from pathlib import Path

import pytest

from press.layout import Chapter
from press.publish import publish
from press.stamps import program, staleness

from .conftest import book_in

PROVENANCE = Path(__file__).resolve().parents[2] / "src/robustbook/_store/provenance.py"

PACKAGE = {
    "__init__.py": "",
    "_store/__init__.py": "",
    "_store/files.py": """
import json, os

def read(path, *keys):
    with open(os.environ["ROBUSTBOOK_READS"], "a") as file:
        file.write(json.dumps([os.path.abspath(path), *keys]) + chr(10))
    content = json.load(open(path))
    for key in keys:
        content = content[key]
    return content
""",
    "scores.py": "from robustbook._store.files import read\nLIMIT = 1\n",
    "attacks/__init__.py": "from ._pgd import pgd\nfrom ._fab import fab\n",
    "attacks/_pgd.py": "def pgd():\n    return 1\n",
    "attacks/_fab.py": "def fab():\n    return 2\n",
}
BODY = """
from robustbook.attacks import (
    pgd,
)
from robustbook.scores import LIMIT, read

print(pgd() + LIMIT, read("data/results/noise.json"))
print(read("data/checkpoints/registry.json", "models", "a"))
"""


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """A chapter on a small package and its data, published."""
    chapter = book_in(tmp_path_factory.mktemp("book"))(BODY)
    package = chapter.root / "src" / "robustbook"
    for name, text in PACKAGE.items():
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).write_text(text)
    shutil.copy(PROVENANCE, package / "_store")
    for name, content in {
        "results/noise": [1],
        "results/text": [2],
        "checkpoints/registry": {"models": {"a": 1, "b": 2}},
    }.items():
        path = chapter.root / "data" / f"{name}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(content))
    assert publish([chapter]) == []
    return chapter


@pytest.fixture
def published(original, tmp_path):
    """A copy of it, which stays fresh."""
    shutil.copytree(original.root, tmp_path, dirs_exist_ok=True)
    chapter = Chapter(tmp_path, original.name)
    assert staleness(chapter) == []
    return chapter


def edit(chapter, file, old, new):
    path = chapter.root / file
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


@pytest.mark.parametrize(
    ("file", "old", "new", "reason"),
    [
        ("notebooks/01_small.md", "We add.", "We add up.", "its text changed"),
        ("src/robustbook/attacks/_pgd.py", "1", "3", "code that it imports changed"),
        ("src/robustbook/scores.py", "1", "3", "code that it imports changed"),
        ("src/robustbook/_store/files.py", "abs", "real", "code that it imports"),
        ("data/results/noise.json", "1", "3", "data/results/noise.json changed"),
        ("data/checkpoints/registry.json", "1", "3", "registry.json#/models/a changed"),
    ],
)
def test_an_input_makes_it_stale(published, file, old, new, reason):
    edit(published, file, old, new)
    (told,) = staleness(published)
    assert reason in told
    edit(published, file, new, old)
    assert staleness(published) == []


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("src/robustbook/attacks/_fab.py", "2", "3"),
        ("src/robustbook/attacks/__init__.py", "from ._fab import fab", "x = 1"),
        ("src/robustbook/scores.py", "LIMIT", "# A comment.\nLIMIT"),
        ("src/robustbook/attacks/_pgd.py", "return", '"""Say one."""\n    return'),
        ("data/results/text.json", "2", "3"),
        ("data/checkpoints/registry.json", "2", "3"),
    ],
)
def test_what_it_does_not_read_leaves_it_fresh(published, file, old, new):
    edit(published, file, old, new)
    assert staleness(published) == []


def test_data_that_is_gone_or_damaged_makes_it_stale(published):
    (published.root / "data/results/noise.json").unlink()
    (published.root / "data/checkpoints/registry.json").write_text("{")
    assert len(staleness(published)) == 2


@pytest.mark.usefixtures("fast_kernels")
def test_data_that_changes_during_the_run_is_not_stamped(make_book):
    chapter = make_book(
        "import json, os, pathlib, time\n"
        'path = pathlib.Path("data/x.json").resolve()\n'
        "path.parent.mkdir(exist_ok=True)\n"
        "time.sleep(0.05)\n"
        'path.write_text("1")\n'
        'pathlib.Path(os.environ["ROBUSTBOOK_READS"]).write_text('
        "json.dumps([str(path)]))"
    )
    (failure,) = publish([chapter])
    assert "its inputs changed while it ran" in str(failure)


def test_a_chapter_depends_on_the_commands_that_it_runs():
    assert program("text\n!cd {folder} && robustbook score a b\n") == (
        "import robustbook.cli"
    )
    assert program("`robustbook score a b` and !important") == ""
