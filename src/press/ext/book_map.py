"""``{book-map}``: which chapter needs which, as a picture whose numbers are links.

Drawn from the table of contents and from what each chapter's box "You are here" says
that it needs. What follows by way of another chapter is not drawn.
"""

from __future__ import annotations

import re
from html import escape
from pathlib import Path
from typing import Final

import yaml
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from press.layout import BookError, Chapter, list_chapters

_ANCHOR: Final = re.compile(r"^\((ch-[a-z-]+)\)=$", re.MULTILINE)
_TITLE: Final = re.compile(r"^# (.+)$", re.MULTILINE)
_NEED: Final = re.compile(r"\*\*You\s+need\*\*(.*?)\*\*Keep\*\*", re.DOTALL)
_LABEL: Final = re.compile(r"`(?:[^`<]*<)?(ch-[a-z-]+)>?`")

# In units of a telephone's pixels: steps between boxes, the box, and margins.
_STEP: Final = (58, 74)
_BOX: Final = (38, 28)
_TOP: Final = 26
_LEFT: Final = 14

# Parts that the map leaves out: what no other chapter waits for.
_BESIDE: Final = ("The book · Further", "The audit", "Appendix")


def parts_of(root: Path) -> list[tuple[str, list[Chapter]]]:
    """Return the parts that are lessons, each with its chapters."""
    contents = yaml.safe_load((root / "_toc.yml").read_text(encoding="utf-8"))
    chapters = {chapter.name: chapter for chapter in list_chapters(root)}
    parts = []
    for part in contents.get("parts", []):
        if part["caption"].startswith(_BESIDE):
            continue
        names = [Path(entry.get("file", "")).name for entry in part["chapters"]]
        parts.append((part["caption"], [chapters[name] for name in names]))
    return parts


def needs_of(lessons: list[Chapter]) -> dict[str, set[str]]:
    """Return, by label, the lessons that each one needs and does not get by another."""
    needs: dict[str, set[str]] = {}
    for lesson in lessons:
        text = lesson.source.read_text(encoding="utf-8")
        label = _first(_ANCHOR, text)
        if not label or label in needs:
            fault = f"a second anchor ({label})=" if label else "no anchor (ch-name)="
            raise BookError(f"{lesson.name}: {fault}; above its title, one of its own")
        needs[label] = set(_LABEL.findall(_first(_NEED, text))) & needs.keys()

    def behind(label: str) -> set[str]:
        return needs[label].union(*map(behind, needs[label]))

    return {
        label: needed - set().union(*map(behind, needed))
        for label, needed in needs.items()
    }


def _first(pattern: re.Pattern[str], text: str) -> str:
    match = pattern.search(text)
    return match[1] if match else ""


def draw(root: Path) -> str:
    """Return the picture as an SVG element."""
    parts = parts_of(root)
    lessons = [lesson for _, row in parts for lesson in row]
    if not lessons:
        raise BookError("_toc.yml: no part with lessons to draw")
    needs = needs_of(lessons)
    places: dict[str, tuple[int, int]] = {}
    boxes, captions = [], []
    for y, (caption, row) in enumerate(parts):
        top = _TOP + y * _STEP[1]
        captions.append(f'<text x="{_LEFT}" y="{top - 8}">{escape(caption)}</text>')
        for x, lesson in enumerate(row):
            text = lesson.source.read_text(encoding="utf-8")
            left, number = _LEFT + x * _STEP[0], lesson.number
            places[_first(_ANCHOR, text)] = (left, top)
            title = escape(_first(_TITLE, text))
            boxes.append(
                f'<a href="chapters/{lesson.name}.html"><title>{number} {title}</title>'
                f'<rect x="{left}" y="{top}" width="{_BOX[0]}" height="{_BOX[1]}" '
                f'rx="3"/><text x="{left + _BOX[0] / 2}" y="{top + 19}">{number}</text>'
                "</a>"
            )
    lines = [
        _line(places[needed], places[label])
        for label, all_needed in needs.items()
        for needed in sorted(all_needed)
    ]
    width = max(x for x, _ in places.values()) + _BOX[0] + 1
    height = _TOP + (len(parts) - 1) * _STEP[1] + _BOX[1] + 12
    return (
        f'<svg class="book-map" viewBox="0 0 {width} {height}" role="group" '
        'aria-label="Which chapter needs which: the boxes lead to the chapters">'
        f"<g>{''.join(lines)}</g><g>{''.join(captions)}</g>{''.join(boxes)}</svg>"
    )


def _line(start: tuple[int, int], end: tuple[int, int]) -> str:
    (x0, y0), (x1, y1), (w, h) = start, end, _BOX
    if y0 == y1 and x1 - x0 == _STEP[0]:
        return f'<path d="M{x0 + w} {y0 + h / 2}H{x1}"/>'
    if y0 == y1:  # under the boxes between
        a, b, y = x0 + 3 * w // 4, x1 + w // 4, y0 + h
        return f'<path d="M{a} {y}C{a} {y + 14} {b} {y + 14} {b} {y}"/>'
    x0, y0, x1 = x0 + w // 2, y0 + h, x1 + w // 2
    if y1 - y0 < _STEP[1]:
        return f'<path d="M{x0} {y0}C{x0} {y0 + 22} {x1} {y1 - 22} {x1} {y1}"/>'
    # By the left margin, past the rows between.
    down = f"M{x0} {y0}C{x0} {y0 + 22} 4 {y0 + 8} 4 {y0 + 34}V{y1 - 28}"
    return f'<path d="{down}C4 {y1 - 10} {x1} {y1 - 24} {x1} {y1}"/>'


class BookMap(SphinxDirective):
    """The directive, without arguments."""

    def run(self) -> list[nodes.Node]:
        """Return the picture."""
        root = Path(self.env.srcdir)
        self.env.note_dependency("_toc.yml")
        for _, row in parts_of(root):
            for lesson in row:
                self.env.note_dependency(lesson.show(lesson.source))
        try:
            return [nodes.raw("", draw(root), format="html")]
        except BookError as error:
            return [self.state.document.reporter.warning(error, line=self.lineno)]


def setup(app: Sphinx) -> None:
    """Register the directive."""
    app.add_directive("book-map", BookMap)
