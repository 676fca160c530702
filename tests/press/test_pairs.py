"""The notebooks that readers open: the text of the page, the code of the source."""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
import pytest
from nbconvert import MarkdownExporter

from press.pairs import pair_faults, pair_text, revision, sync
from press.source import read_source, write_whole
from robustbook import __version__

from .conftest import complete, write_pair

CONFIG = """\
repository:
  url: https://example.org/us/book/
  branch: main
html:
  baseurl: https://us.example.org/book/
"""


@pytest.fixture
def chapter(make_book):
    return make_book()


def test_the_code_is_that_of_the_source_without_outputs(chapter):
    pair = nbformat.read(chapter.pair, as_version=4)
    nbformat.validate(pair)
    code = [cell for cell in pair.cells if cell.cell_type == "code"]
    source = read_source(chapter).notebook
    assert code
    assert [(cell.id, cell.source) for cell in code] == [
        (cell.id, cell.source) for cell in source.cells if cell.cell_type == "code"
    ]
    assert all(cell.outputs == [] and cell.execution_count is None for cell in code)
    assert list(pair_faults(read_source(chapter))) == []


def test_a_notebook_holds_nothing_that_only_the_site_resolves():
    """Rendered as any notebook is, without an extension; its links find their place."""
    raw = re.compile(
        r"\{[a-z][\w:]*\}`|^ *(?:`{3,}|:{3,}) ?\{|^\([\w-]+\)=$", re.MULTILINE
    )
    paths = sorted((Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))
    assert paths
    exporter = MarkdownExporter()
    for path in paths:
        text, _ = exporter.from_filename(path)
        assert raw.findall(text) == [], path.name
        links = set(re.findall(r"\]\(#([^)]+)\)", text))
        assert links <= set(re.findall(r'<a id="([^"]+)">', text)), path.name


def test_what_the_page_does_not_show_stands_before_the_next_code(chapter):
    source = read_source(chapter)
    cells = source.notebook.cells
    first, second, hidden = (i for i, c in enumerate(cells) if c.cell_type == "code")
    pair = nbformat.reads(
        pair_text(source, ["# Small", first, second, "## Key takeaways"]), as_version=4
    )
    code = [i for i, cell in enumerate(pair.cells) if cell.cell_type == "code"]
    assert code == [1, 2, 4]
    folded = [cell.id for cell in pair.cells if "jupyter" in cell.metadata]
    assert folded == [cells[hidden].id] == [pair.cells[4].id]


def test_the_code_of_a_solution_is_folded_with_what_it_says(make_book):
    fence = "```{code-cell} python\n1 + 1\n```\n\n"
    text = complete().replace("Two.\n", f"Two.\n\n{fence}")
    source = read_source(make_book(text=text))
    pair = nbformat.reads(pair_text(source, list(range(20))), as_version=4)
    folded = [
        cell.source
        for cell in pair.cells
        if cell.metadata.get("jupyter", {}).get("outputs_hidden")
    ]
    assert folded == ["1 + 1"]


def test_sync_takes_what_the_site_made_of_this_text(chapter):
    made = chapter.root / "_build/html/_sources/notebooks" / chapter.pair.name
    assert sync(chapter.root) == []
    write_whole(made, chapter.pair.read_text())
    chapter.pair.unlink()
    assert list(pair_faults(read_source(chapter))) == ["missing"]
    assert sync(chapter.root) == [chapter.pair]
    assert sync(chapter.root) == []
    text = chapter.source.read_text().replace("We add.", "We add up: β ≥ 0.")
    chapter.source.write_text(text, encoding="utf-8")
    assert sync(chapter.root) == []
    assert list(pair_faults(read_source(chapter))) == ["made from another text"]


def write_config(chapter):
    (chapter.root / "_config.yml").write_text(CONFIG, encoding="utf-8")


def test_the_pair_installs_the_release_where_it_is_missing(chapter):
    before = nbformat.read(chapter.pair, as_version=4).cells
    write_config(chapter)
    title, note, install, *rest = nbformat.reads(write_pair(chapter), 4).cells
    assert "https://us.example.org/book/book/chapters/01_small.html" in note.source
    address = f"https://example.org/us/book/archive/{revision('main')}.tar.gz"
    command = install.source.splitlines()[-1]
    assert f'"robustbook[chapters] @ {address}"' in command
    assert f'"robustbook-data @ {address}#subdirectory=data"' in command
    # The chapter itself is as it was written.
    assert [title.source, *(cell.source for cell in rest)] == [
        cell.source for cell in before
    ]


def test_the_install_cell_does_nothing_where_the_release_is(chapter):
    write_config(chapter)
    _, _, install, *_ = nbformat.reads(write_pair(chapter), 4).cells
    python = install.source.replace("    %pip install", "    ran.append(1)  # ")
    ran: list[int] = []
    exec(python, {"ran": ran})
    assert ran == []
    exec(python.replace(f'"{__version__}"', '"0.0.0"'), {"ran": ran})
    assert ran == [1]
    exec(python.replace("foolbox", "no_such_module"), {"ran": ran})
    assert ran == [1, 1]


def test_a_release_is_a_tag_and_what_comes_before_it_a_branch(monkeypatch):
    assert revision("main") in ("main", f"v{__version__}")
    for version, place in {"2.0.1": "v2.0.1", "2.1.0.dev0": "main"}.items():
        monkeypatch.setattr("press.pairs.package_version", lambda v=version: v)
        assert revision("main") == place
