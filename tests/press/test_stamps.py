"""A chapter is stale when what it was made from changed, and only then."""

import json
import shutil
from pathlib import Path

import pytest

from press.layout import BookError, Chapter
from press.publish import publish
from press.stamps import (
    code_sum,
    data_sums,
    in_step,
    publish_new_words,
    staleness,
)

from .conftest import HEAD, book_in, complete

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
        ("notebooks/01_small.md", "seed = 0", "seed = 1", "its code changed"),
        ("notebooks/01_small.md", "[parameters]", "[long]", "its code changed"),
        ("src/robustbook/attacks/_pgd.py", "1", "3", "code that it imports changed"),
        ("src/robustbook/scores.py", "1", "3", "code that it imports changed"),
        ("src/robustbook/_store/files.py", "abs", "real", "code that it imports"),
        ("data/results/noise.json", "1", "3", "data/results/noise.json changed"),
        ("data/checkpoints/registry.json", "1", "3", "registry.json#/models/a changed"),
        # What it does not read, and what computes nothing:
        ("src/robustbook/attacks/_fab.py", "2", "3", None),
        ("src/robustbook/attacks/__init__.py", "from ._fab import fab", "x = 1", None),
        ("src/robustbook/scores.py", "LIMIT", "# A comment.\nLIMIT", None),
        ("notebooks/01_small.md", "We add.", "We `import robustbook.attacks`.", None),
        ("notebooks/01_small.md", "[parameters]", "[parameters, hide-input]", None),
        ("src/robustbook/attacks/_pgd.py", "return", '"""Say."""\n    return', None),
        ("data/results/text.json", "2", "3", None),
        ("data/checkpoints/registry.json", "2", "3", None),
    ],
)
def test_an_input_makes_it_stale_and_nothing_else_does(
    published, file, old, new, reason
):
    edit(published, file, old, new)
    given = staleness(published)
    assert len(given) == (reason is not None)
    assert reason is None or reason in given[0]
    edit(published, file, new, old)
    assert staleness(published) == []


@pytest.mark.parametrize("registry", ["{", '{"models": {"b": 2}}', '{"models": 3}'])
def test_data_that_is_gone_or_damaged_makes_it_stale(published, registry):
    (published.root / "data/results/noise.json").unlink()
    (published.root / "data/checkpoints/registry.json").write_text(registry)
    assert len(staleness(published)) == 2


def test_sums_are_of_data_of_the_book_also_where_it_is_missing(tmp_path):
    path = tmp_path / "data" / "large.json"
    path.parent.mkdir()
    reads = [[str(path)], [str(tmp_path / "cache" / "images.pt")]]
    missing = data_sums(tmp_path, reads)
    assert list(missing) == ["data/large.json"]
    path.write_bytes(b'{"rows": []}\n')
    there = data_sums(tmp_path, reads)
    assert there != missing
    # As a checkout on Windows ends its lines.
    path.write_bytes(b'{"rows": []}\r\n')
    assert data_sums(tmp_path, reads) == there


@pytest.mark.parametrize("read", [["list.json", "0"], ["slash.json", "a/b"]])
def test_data_that_cannot_be_found_again_is_not_stamped(tmp_path, read):
    (tmp_path / "data").mkdir()
    (tmp_path / "data/list.json").write_text("[1]")
    (tmp_path / "data/slash.json").write_text('{"a/b": 1}')
    with pytest.raises(BookError, match=f"data/{read[0]}.*cannot be found again"):
        data_sums(tmp_path, [[str(tmp_path / "data" / read[0]), *read[1:]]])


def test_new_words_get_the_outputs_that_are_there(published, monkeypatch):
    """As a run would: cells have other numbers, captions are new, no kernel starts."""
    text = published.source.read_text().replace("We add.", "We add up.\n\n+++\n\nSo.")
    text = text.replace("[parameters]", "[parameters]\n:mystnb: {image: {alt: New}}")
    published.source.write_text(text)
    assert not in_step(published)
    with monkeypatch.context() as patch:
        patch.setattr("press.publish.execute", None)
        assert publish_new_words(published)
        assert not publish_new_words(published)
    assert staleness(published) == []
    assert in_step(published)
    woven = published.published.read_bytes()
    published.published.unlink()
    assert publish([published]) == []
    assert published.published.read_bytes() == woven


def test_new_words_beside_new_code_wait_for_the_run(published):
    edit(published, "notebooks/01_small.md", "We add.", "We add up.")
    edit(published, "data/results/noise.json", "1", "3")
    before = published.published.read_bytes()
    assert not publish_new_words(published)
    edit(published, "data/results/noise.json", "3", "1")
    edit(published, "notebooks/01_small.md", "seed = 0", "seed = 1")
    assert not publish_new_words(published)
    assert published.published.read_bytes() == before


WRITES = """
import json, os, pathlib, time
path = pathlib.Path({path!r}).resolve()
path.parent.mkdir(exist_ok=True)
time.sleep(0.05)
path.write_text(path.read_text().replace("1", "2") if path.is_file() else "1")
reads = pathlib.Path(os.environ["ROBUSTBOOK_READS"])
reads.write_text(json.dumps([str(path)]) if "data" in path.parts else "")
"""


@pytest.mark.parametrize(
    "path", ["data/x.json", "notebooks/01_small.md", "src/robustbook/scores.py"]
)
def test_what_changes_during_the_run_is_not_stamped(published, path):
    body = f"from robustbook.scores import LIMIT\n{WRITES.format(path=path)}"
    published.source.write_text(complete(body))
    before = published.published.read_bytes()
    (failure,) = publish([published])
    assert "its inputs changed while it ran" in str(failure)
    assert published.published.read_bytes() == before


def test_words_that_change_during_the_run_are_published(make_book):
    chapter = make_book(
        "import pathlib\n"
        'path = pathlib.Path("notebooks/01_small.md")\n'
        'path.write_text(path.read_text().replace("We " "add.", "We add up."))'
    )
    assert publish([chapter]) == []
    assert in_step(chapter)
    assert "We add up." in chapter.published.read_text()


@pytest.mark.parametrize(
    ("code", "module"),
    [
        ("import robustbook.scores", "scores"),
        ("import torch, robustbook.scores as s", "scores"),
        ("import numpy; from robustbook.scores import LIMIT", "scores"),
        ("from robustbook \\\n    import scores", "scores"),
        ("import importlib\nimportlib.import_module('robustbook.scores')", "scores"),
        ("if seed:\n    from robustbook import scores", "scores"),
        ("!cd {folder} && robustbook score a b", "cli"),
        ("%%bash\nrobustbook score a b", "cli"),
        ("out = !python -m robustbook.scores", "scores"),
        ("import subprocess\nsubprocess.run(['robustbook', 'score'])", "cli"),
        ("print('`robustbook score a b`')", None),
        ("import numpy, robustbookish", None),
        ("this is no Python, import robustbook.scores", None),
    ],
)
def test_an_import_is_seen_wherever_code_says_it(original, tmp_path, code, module):
    shutil.copytree(original.root, tmp_path, dirs_exist_ok=True)
    (tmp_path / "src/robustbook/cli.py").write_text("LIMIT = 1\n")
    cell = f"```{{code-cell}} python\n{code}\n```\n"
    chapter = Chapter(tmp_path, original.name)
    chapter.source.write_text(f"{HEAD}import robustbook.attacks and look.\n\n{cell}")
    before, changed = code_sum(chapter), []
    for name in ("scores", "cli", "attacks/_pgd"):
        path = tmp_path / f"src/robustbook/{name}.py"
        path.write_text(path.read_text() + "\nNEW = 1\n")
        if code_sum(chapter) != before:
            changed.append(name)
            before = code_sum(chapter)
    assert changed == ([module] if module else [])
