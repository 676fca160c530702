"""Text becomes notebooks with stable bytes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from press.layout import BookError, Chapter
from press.source import (
    FOLDED,
    cell_tags,
    code_cells,
    parameter_values,
    read_source,
    write_whole,
)

from .conftest import HEAD


def test_places_are_lines_of_the_text(make_book):
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


def test_parameters(make_book):
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


def test_broken_text_is_named(make_book):
    chapter = make_book()
    broken = HEAD + "```{code-cell} python\n---\na: [\n---\n1\n```\n"
    chapter.source.write_text(broken)
    with pytest.raises(BookError, match=r"notebooks/01_small\.md: "):
        read_source(chapter)


def test_write_whole_or_not_at_all(make_book, monkeypatch):
    chapter: Chapter = make_book()
    assert chapter.pair.stat().st_mode & 0o777 == 0o644, "everyone can read it"
    before = chapter.pair.read_bytes()
    assert not write_whole(chapter.pair, before), "its time stays"

    def fail(*args):
        raise OSError("disk full")

    monkeypatch.setattr("pathlib.Path.replace", fail)
    with pytest.raises(OSError, match="disk full"):
        write_whole(chapter.pair, "new")
    assert chapter.pair.read_bytes() == before
    assert [path.name for path in chapter.pair.parent.glob(".*")] == []


def test_an_audit_folds_all_its_code(make_book):
    lesson = make_book()
    audit = replace(lesson, name="01_audit_of_sums")
    audit.source.write_text(lesson.source.read_text())
    for chapter, only_some in ((lesson, True), (audit, False)):
        tags = [cell_tags(c) for c in code_cells(read_source(chapter).notebook)]
        shown = [not {FOLDED, "parameters", "remove-cell"} & set(t) for t in tags]
        assert any(shown) == only_some
