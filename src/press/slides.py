"""Slides of a chapter for an instructor, by nbconvert and reveal.js.

Headings, statements, figures and what the cells say become slides. The text between
them becomes the speaker's notes: the key S opens them beside the slides.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import nbformat
from nbformat import NotebookNode
from nbformat.v4 import new_markdown_cell, new_notebook

from press.layout import BookError, Chapter
from press.pairs import pair_faults, with_outputs
from press.source import cell_tags, read_source, write_whole
from press.stamps import in_step

# Sections that are read, not shown.
_LEFT_OUT = re.compile(r"^## .*(References|Exercises)")
_BOX = re.compile(r"^> \*\*You are here")
# Anchors, and links to them: a deck has none.
_WITHIN = re.compile(r'<a id="[^"]*"></a>\n*|\[([^\]]*)\]\(#[^)]*\)')


def slide_deck(page: NotebookNode) -> NotebookNode:
    """Return a chapter's notebook with outputs as a deck, for nbconvert's slides."""
    cells: list[NotebookNode] = []
    left_out = False
    for cell in page.cells:
        if cell.cell_type == "code":
            if not left_out and cell.outputs and "remove-cell" not in cell_tags(cell):
                shown = nbformat.from_dict({**cell, "metadata": {}})
                cells.append(_as(shown, "subslide"))
            continue
        for block in _blocks(_WITHIN.sub(r"\1", cell.source)):
            if block.startswith(("# ", "## ")):
                left_out = bool(_LEFT_OUT.match(block))
            if not left_out:
                cells.append(_as(new_markdown_cell(block), _kind(block)))
    for number, cell in enumerate(cells):
        cell.id = f"slide-{number:03d}"
    return new_notebook(cells=cells, metadata=page.metadata)


def _kind(block: str) -> str:
    if block.startswith(("# ", "## ")):
        return "slide"
    if block.startswith("### ") or (block.startswith("> ") and not _BOX.match(block)):
        return "subslide"  # a definition or a theorem
    # The box and the takeaways stay below their heading, a caption below its figure.
    return "-" if block.startswith((">", "- ", "| ", "**Figure")) else "notes"


def _as(cell: NotebookNode, kind: str) -> NotebookNode:
    cell.metadata["slideshow"] = {"slide_type": kind}
    return cell


def _blocks(text: str) -> Iterator[str]:
    """Split Markdown at its blank lines; a list stays whole."""
    block = ""
    for part in re.split(r"\n\s*\n", text):
        if block.startswith("- ") and part.startswith(("- ", "  ")):
            block += f"\n\n{part}"
            continue
        if block.strip():
            yield block.strip("\n")
        block = part
    if block.strip():
        yield block.strip("\n")


def write_slides(chapter: Chapter) -> Path:
    """Write a chapter's slides into ``_build/slides`` and return where."""
    from nbconvert import SlidesExporter

    if not in_step(chapter) or any(pair_faults(read_source(chapter))):
        raise BookError(f"{chapter.show(chapter.pair)} is not in step: make book")
    pages = (chapter.pair, chapter.published)
    deck = slide_deck(with_outputs(*(nbformat.read(p, as_version=4) for p in pages)))
    exporter = SlidesExporter(exclude_input=True, exclude_output_prompt=True)
    exporter.reveal_scroll = True
    html, _ = exporter.from_notebook_node(deck, {"metadata": {"name": chapter.name}})
    output = chapter.root / "_build" / "slides" / f"{chapter.name}.html"
    write_whole(output, html)
    return output
