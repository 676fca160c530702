"""``{chapter-times}``, ``{schedule}`` and ``{reading-path}``: what is said of time.

Seconds come from ``book/chapters/timings.json``, reading times from word counts, and
the time of day from the minutes of each item. An item that is too short for what runs
in it is a warning, and so fails the strict build.
"""

from __future__ import annotations

from pathlib import Path

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from press.layout import BookError, list_chapters
from press.timings import read_timings, timings_file
from press.workshop import (
    CODE_LINE,
    FORMULA,
    MOST,
    PICTURE,
    WORDS_A_MINUTE,
    clock,
    faults,
    read_plan,
    reading_minutes,
    run_seconds,
    times_table,
)


class _Times(SphinxDirective):
    """What both have in common."""

    def begin(self) -> Path:
        """Return the book's folder; read the page again when a timing changes."""
        root = Path(self.env.srcdir)
        self.env.note_dependency(str(timings_file(root)))
        return root

    def parse(self, text: str) -> list[nodes.Node]:
        """Parse MyST text."""
        holder = nodes.Element()
        source = f"{self.env.docname} (generated)"
        lines = StringList(text.splitlines(), source=source)
        self.state.nested_parse(lines, 0, holder)
        return holder.children

    def warn(self, message: str) -> nodes.system_message:
        """Say what is wrong; the strict build fails."""
        return self.state.document.reporter.warning(message, line=self.lineno)


class ChapterTimes(_Times):
    """A table of all chapters: reading time and running time."""

    def run(self) -> list[nodes.Node]:
        """Make the table, and say how reading time was estimated."""
        root = self.begin()
        for chapter in list_chapters(root):
            self.env.note_dependency(str(chapter.source))
        rule = (
            f"Reading time is an estimate: {WORDS_A_MINUTE} words a minute, "
            f"{FORMULA} seconds for each displayed formula, {PICTURE} for each picture "
            f"and {CODE_LINE} for each line of code, solutions left folded."
        )
        return self.parse(f"{times_table(root)} {rule}")


class Schedule(_Times):
    """A half day: ``MINUTES | WHAT | LIVE`` on each line, from ``:start:`` on."""

    has_content = True
    option_spec = {"start": str}  # noqa: RUF012

    def run(self) -> list[nodes.Node]:
        """Make the table; warn of items that are too short."""
        timings = read_timings(self.begin())
        start = self.options.get("start", "09:00")
        try:
            items = read_plan("\n".join(self.content))
        except BookError as error:
            return [self.warn(f"schedule: {error}")]
        lines = ["| Time | Minutes | What | Live |", "| :--- | ---: | :--- | :--- |"]
        passed = 0
        for item in items:
            at = clock(start, passed)
            lines.append(f"| {at} | {item.minutes} | {item.what} | {item.live} |")
            passed += item.minutes
        labels = list(dict.fromkeys(label for item in items for label in item.labels))
        seconds, untimed = run_seconds(labels, timings)
        note = (
            f"It ends at {clock(start, passed)}. All that runs in it takes "
            f"{seconds / 60:.1f} minutes on the machine of the table above"
        )
        if untimed:
            chapters = dict.fromkeys(f"ch-{label[3:5]}" for label in untimed)
            names = ", ".join(f"{{numref}}`{label}`" for label in chapters)
            note += f", without {names}, not timed yet"
        text = "\n".join([*lines, "", f"{note}; no item computes for more than "])
        text += f"{MOST:.0%} of its time."
        warnings = [self.warn(f"schedule: {fault}") for fault in faults(items, timings)]
        return [*self.parse(text), *warnings]


class ReadingPath(_Times):
    """A way through the book: its text, and how long its chapters take to read."""

    has_content = True
    required_arguments = 1
    final_argument_whitespace = True

    def run(self) -> list[nodes.Node]:
        """Put the name in front and the time behind."""
        root = self.begin()
        text = " ".join(self.content)
        minutes = reading_minutes(text, root)
        time = f"{minutes} minutes" if minutes < 90 else f"{minutes / 60:.1f} hours"
        for chapter in list_chapters(root):
            self.env.note_dependency(str(chapter.source))
        return self.parse(f"**{self.arguments[0]}.** {text} *About {time} of reading.*")


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directives."""
    app.add_directive("chapter-times", ChapterTimes)
    app.add_directive("schedule", Schedule)
    app.add_directive("reading-path", ReadingPath)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
