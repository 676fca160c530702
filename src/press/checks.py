"""Checks of the book: what a reader would trip over, each with its remedy."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from press.claim_faults import ledger_faults
from press.claims import BLOCK, is_test
from press.layout import BookError, Chapter, Problem, list_chapters
from press.pairs import pair_faults
from press.publish import PUBLISHED
from press.source import Source, cell_tags, code_cells, draws_figure, read_source
from press.stamps import STAMP, in_step, read_published, read_stamp, staleness
from press.status import render_status, status_page

MAX_LINES = 15

# A cell with this tag may be longer than MAX_LINES; an audit's may without.
LONG = "long"

# One code cell in ten, at most, is left out of the page by a tag remove-….
CELLS_PER_HIDDEN = 10

# Every lesson has these parts, in these words; an audit needs none of them.
_PARTS = (
    ("box You are here", r"you are here"),
    ("heading Key takeaways", r"^#+ .*key takeaways"),
    ("heading Exercises", r"^#+ .*exercises"),
    ("heading References", r"^#+ .*references"),
)

_SOLUTION = re.compile(
    r"^(?:`{3,}|:{3,})\{solution(?:-start)?\}\s*(?P<label>\S+)", re.MULTILINE
)
_ADDRESS = re.compile(r"\bat 0x[0-9a-f]{6,}")
_PRINTING_CALL = re.compile(r"^\s*(?:say|claim|show_table)\(", re.MULTILINE)
_GLUE = re.compile(r"\{glue:?\w*\}`")
# Letters would be below 9 pixels on a telephone, as `robustbook.style` explains.
_TOO_SMALL_TEXT = re.compile(
    r"(?:font|label)size=(?:\d|10)(?:\.\d+)?\b|figsize=\((?:[6-9]|1\d|5\.9)"
)


def check(root: Path) -> list[Problem]:
    """Check the book in ``root``: what is to mend, in the order of the chapters."""
    chapters = list_chapters(root)
    problems: list[Problem] = []
    for chapter in chapters:
        try:
            source = read_source(chapter)
        except BookError as error:
            place = chapter.show(chapter.source)
            problems.append(Problem(place, str(error), "mend the text"))
            continue
        place = chapter.show(chapter.pair)
        problems += [
            Problem(place, fault, "make book") for fault in pair_faults(source)
        ]
        problems += _check_text(source)
        problems += _check_cells(source)
        problems += _check_published(source)
    problems += _check_strays(root, chapters)
    problems += _check_toc(root, chapters)
    problems += _check_status(root, chapters)
    problems += ledger_faults(root)
    return problems


def _check_text(source: Source) -> Iterator[Problem]:
    chapter = source.chapter
    place = chapter.show(chapter.source)
    prose = "\n\n".join(
        cell.source for cell in source.notebook.cells if cell.cell_type == "markdown"
    )
    if not re.search(r"^\(ch-[a-z-]+\)=$", prose, re.MULTILINE):
        yield Problem(place, "no anchor (ch-name)=", "put it above the title")
    if not any(is_test(cell) for cell in source.notebook.cells):
        remedy = "let a cell say claim(sentence, holds)"
        yield Problem(place, "no tested claim", remedy)
    tags = [cell_tags(cell) for cell in code_cells(source.notebook)]
    if not tags or "parameters" not in tags[0]:
        fault = "the first code cell is no parameters cell"
        yield Problem(place, fault, "tag it parameters")
    if chapter.is_audit:
        return

    for part, pattern in _PARTS:
        if not re.search(pattern, prose, re.IGNORECASE | re.MULTILINE):
            yield Problem(place, f"no {part}", "write it: every chapter has one")

    exercises = {
        block["label"]
        for block in BLOCK.finditer(prose)
        if block["kind"].startswith("exercise")
    }
    solved = {match["label"] for match in _SOLUTION.finditer(prose)}
    if len(exercises) < 2:
        fault = f"{len(exercises)} exercises with a label"
        yield Problem(place, fault, "write at least two, each with a solution")
    for label in sorted(exercises - solved):
        yield Problem(place, f"exercise {label} has no solution", "write one")
    for label in sorted(solved - exercises):
        yield Problem(place, f"solution of no exercise: {label}", "mend the label")


def _check_cells(source: Source) -> Iterator[Problem]:
    code = code_cells(source.notebook)
    hidden = sum(any(t.startswith("remove-") for t in cell_tags(c)) for c in code)
    if hidden > max(1, len(code) // CELLS_PER_HIDDEN):
        place = source.chapter.show(source.chapter.source)
        fault = f"{hidden} of {len(code)} code cells are hidden, at most one in ten"
        yield Problem(place, fault, "show them, or move what they do to the package")
    for index, cell in enumerate(source.notebook.cells):
        if cell.cell_type == "markdown" and _GLUE.search(cell.source):
            fault = "a number of a run in the text"
            yield Problem(source.place(index), fault, "let a cell say it: say, claim")
        if cell.cell_type != "code" or "remove-cell" in cell_tags(cell):
            continue
        if small := _TOO_SMALL_TEXT.search(cell.source):
            fault = f"letters too small for a telephone: {small[0]}"
            remedy = "fontsize=11 or more, figures 5.8 inches wide or less"
            yield Problem(source.place(index), fault, remedy)
        if draws_figure(cell) and _PRINTING_CALL.search(cell.source):
            fault = "a figure's cell that also says something, which gets the caption"
            yield Problem(source.place(index), fault, "say it in the next cell")
        lines = [line for line in cell.source.splitlines() if line.strip()]
        long = LONG in cell_tags(cell) or source.chapter.is_audit
        if len(lines) > MAX_LINES and not long:
            fault = f"{len(lines)} lines of code in this cell, at most {MAX_LINES}"
            remedy = f"split it, move code to the package, or tag it {LONG}"
            yield Problem(source.place(index), fault, remedy)


def _check_published(source: Source) -> Iterator[Problem]:
    chapter = source.chapter
    place = chapter.show(chapter.published)
    if reasons := staleness(chapter):
        yield Problem(place, f"stale: {' and '.join(reasons)}", "make book")
    elif not in_step(chapter):
        yield Problem(place, "its text is not the present one", "make book")
    published = read_published(chapter)
    if published is None:
        return
    profile = published.metadata[STAMP].get("parameters", {}).get("profile")
    if profile not in (None, PUBLISHED["profile"]):
        yield Problem(place, f"published with profile {profile}", "make publish")
    for cell in published.cells:
        shown = [output.get("metadata", {}) for output in cell.get("outputs", [])]
        if is_test(cell) and not any("robustbook_claim" in data for data in shown):
            fault, remedy = "a claim that is never said", "say it in every run"
            yield Problem(f"{place}, cell {cell.id}", fault, remedy)
        visible = not {"remove-cell", "remove-output"} & set(cell_tags(cell))
        for output in cell.get("outputs", []):
            text = output.get("text") or output.get("data", {}).get("text/plain", "")
            if visible and _ADDRESS.search(text):
                fault = "shows a memory address, different in each run"
                remedy = "end the cell with plt.show() or a semicolon"
                yield Problem(f"{place}, cell {cell.id}", fault, remedy)


def _check_strays(root: Path, chapters: Iterable[Chapter]) -> Iterator[Problem]:
    names = {chapter.name for chapter in chapters}
    for folder in ("notebooks", "book/chapters"):
        for path in sorted((root / folder).glob("*.ipynb")):
            if path.stem not in names:
                place = path.relative_to(root).as_posix()
                yield Problem(place, f"no notebooks/{path.stem}.md", "git rm it")


def _check_toc(root: Path, chapters: Iterable[Chapter]) -> Iterator[Problem]:
    """Every chapter is in the table of contents, in order; the build sees the rest."""
    text = (root / "_toc.yml").read_text(encoding="utf-8")
    entries = re.findall(r"^[ -]*(?:root|file): *(\S+)", text, re.MULTILINE)
    expected = [f"book/chapters/{chapter.name}" for chapter in chapters]
    for entry in expected:
        if entry not in entries:
            yield Problem("_toc.yml", f"{entry} is missing", "add it to its part")
    listed = [entry for entry in entries if entry in expected]
    if listed != sorted(set(listed)):
        yield Problem("_toc.yml", "chapters out of order or twice", "sort them")


def _check_status(root: Path, chapters: Iterable[Chapter]) -> Iterator[Problem]:
    page = status_page(root)
    if any(read_stamp(chapter) for chapter in chapters) and (
        not page.is_file() or page.read_text(encoding="utf-8") != render_status(root)
    ):
        fault = "out of step with the executed chapters"
        yield Problem("book/status.md", fault, "make site")
