"""Text becomes notebooks with stable bytes."""

from __future__ import annotations

import nbformat
import pytest

from press.layout import BookError, Chapter
from press.source import (
    parameter_values,
    read_source,
    render,
    revision,
    sync,
    write_whole,
)
from robustbook import __version__

from .conftest import HEAD, MakeBook


def test_pair_has_ids_and_no_outputs(make_book: MakeBook) -> None:
    chapter = make_book()
    pair = nbformat.read(chapter.pair, as_version=4)
    nbformat.validate(pair)
    assert [cell.id for cell in pair.cells] == [
        f"01_small-{i:03d}" for i in range(len(pair.cells))
    ]
    code = [cell for cell in pair.cells if cell.cell_type == "code"]
    assert code
    assert all(cell.outputs == [] and cell.execution_count is None for cell in code)
    assert set(pair.metadata) == {"kernelspec", "language_info"}


def test_sync_is_idempotent(make_book: MakeBook) -> None:
    chapter = make_book()
    before = chapter.pair.read_bytes()
    modified = chapter.pair.stat().st_mtime_ns
    assert not sync(chapter)
    assert chapter.pair.stat().st_mtime_ns == modified
    chapter.pair.unlink()
    assert sync(chapter)
    assert chapter.pair.read_bytes() == before


def test_sync_follows_the_text(make_book: MakeBook) -> None:
    chapter = make_book()
    text = chapter.source.read_text().replace("We add.", "We add up: β ≥ 0.")
    chapter.source.write_text(text, encoding="utf-8")
    assert sync(chapter)
    assert "β ≥ 0" in chapter.pair.read_text(encoding="utf-8")


def test_places_are_lines_of_the_text(make_book: MakeBook) -> None:
    source = read_source(make_book())
    lines = source.chapter.source.read_text().splitlines()
    for index, cell in enumerate(source.notebook.cells):
        name, number = source.place(index).split(":")
        assert name == "notebooks/01_small.md"
        here = lines[int(number) - 1 :]
        if cell.cell_type == "code":
            # The first line of the cell, under its fence.
            assert lines[int(number) - 2].startswith("```{code-cell}")
        else:
            first = next(line for line in here if line.strip())
            assert first == cell.source.splitlines()[0]


def test_parameters(make_book: MakeBook) -> None:
    cell = (
        "```{code-cell} python\n:tags: [parameters]\n\n"
        'profile = "quick"\nseed: int = 3\nrates = [0.1, -2]\nn = 2 * 5\n```\n'
    )
    notebook = read_source(make_book(text=f"{HEAD}{cell}")).notebook
    assert parameter_values(notebook) == {
        "profile": "quick",
        "seed": 3,
        "rates": [0.1, -2],
        "n": "2 * 5",
    }


def test_cell_metadata_is_kept(make_book: MakeBook) -> None:
    cell = (
        "```{code-cell} python\n---\nmystnb:\n  image:\n    alt: a line\n"
        "tags: [hide-input]\n---\n1\n```\n"
    )
    notebook = read_source(make_book(text=f"{HEAD}{cell}")).notebook
    assert notebook.cells[0].metadata == {
        "mystnb": {"image": {"alt": "a line"}},
        "tags": ["hide-input"],
    }
    assert "alt" in render(notebook)


def test_broken_text_is_named(make_book: MakeBook) -> None:
    chapter = make_book()
    broken = HEAD + "```{code-cell} python\n---\na: [\n---\n1\n```\n"
    chapter.source.write_text(broken)
    with pytest.raises(BookError, match=r"notebooks/01_small\.md: "):
        read_source(chapter)


def test_write_whole_or_not_at_all(
    make_book: MakeBook, monkeypatch: pytest.MonkeyPatch
) -> None:
    chapter: Chapter = make_book()
    before = chapter.pair.read_bytes()

    def fail(*args: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("pathlib.Path.replace", fail)
    with pytest.raises(OSError, match="disk full"):
        write_whole(chapter.pair, "new")
    assert chapter.pair.read_bytes() == before
    assert [path.name for path in chapter.pair.parent.glob(".*")] == []


CONFIG = """\
repository:
  url: https://example.org/us/book/
  branch: main
html:
  baseurl: https://us.example.org/book/
"""


def write_config(chapter: Chapter, text: str = CONFIG) -> None:
    (chapter.root / "_config.yml").write_text(text, encoding="utf-8")


def test_the_pair_installs_the_release_where_it_is_missing(
    make_book: MakeBook,
) -> None:
    chapter = make_book()
    write_config(chapter)
    assert sync(chapter)
    note, install, *rest = nbformat.read(chapter.pair, as_version=4).cells
    assert note.cell_type == "markdown"
    assert "https://us.example.org/book/book/chapters/01_small.html" in note.source
    assert install.cell_type == "code"
    address = f"https://example.org/us/book/archive/{revision('main')}.tar.gz"
    *guard, command = install.source.splitlines()
    assert command == f'    %pip install -q "robustbook[chapters] @ {address}"'
    assert guard[-1].startswith(f'if installed != "{__version__}" or not all(')
    # The chapter itself is as it was written.
    assert [cell.id for cell in rest] == [
        cell.id for cell in read_source(chapter).notebook.cells
    ]
    assert not sync(chapter)


def test_the_install_cell_does_nothing_where_the_release_is(
    make_book: MakeBook,
) -> None:
    chapter = make_book()
    write_config(chapter)
    sync(chapter)
    _, install, *_ = nbformat.read(chapter.pair, as_version=4).cells
    python = install.source.replace("    %pip install", "    ran.append(1)  # ")
    ran: list[int] = []
    exec(python, {"ran": ran})
    assert ran == []
    exec(python.replace(f'"{__version__}"', '"0.0.0"'), {"ran": ran})
    assert ran == [1]
    exec(python.replace("foolbox", "no_such_module"), {"ran": ran})
    assert ran == [1, 1]


def test_without_a_repository_there_is_nothing_to_install_from(
    make_book: MakeBook,
) -> None:
    chapter = make_book()
    before = chapter.pair.read_bytes()
    write_config(chapter, "title: ours\n")
    assert not sync(chapter)
    assert chapter.pair.read_bytes() == before


def test_a_release_is_a_tag_and_what_comes_before_it_a_branch() -> None:
    assert revision("main", "2.0.1") == "v2.0.1"
    assert revision("main", "2.1.0.dev0") == "main"
    assert revision("main") in ("main", f"v{__version__}")
