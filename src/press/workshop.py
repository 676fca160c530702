"""What the workshop guide says about time, from what was measured and counted.

The page ``book/workshop.md`` types no seconds: the extension ``press/ext/workshop.py``
fills its tables with the functions here. A plan of a half day is text, one line an
item: its minutes, what is shown, and what people do. A plan is refused in which an
item has less time than its chapters and solutions need to run.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from .layout import BookError, list_chapters
from .source import Source, cell_tags, read_source
from .timings import read_timings

__all__ = [
    "Item",
    "Reading",
    "clock",
    "faults",
    "measure_reading",
    "read_plan",
    "reading_minutes",
    "run_seconds",
    "times_table",
]

#: Words a minute, for prose that has formulas in it.
WORDS_A_MINUTE: Final = 200
#: Seconds that a displayed formula, a picture and a line of code are looked at.
FORMULA, PICTURE, CODE_LINE = 20, 30, 2
#: The share of an item's time that computing may take.
MOST = 0.5

_SOLUTION = re.compile(
    r"^(?P<fence>`{3,}|:{3,})\{solution\}.*?^(?P=fence)\s*$", re.MULTILINE | re.DOTALL
)
_MARK = re.compile(r"^(?:`{3,}|:{3,})\{solution-(start|end)\}", re.MULTILINE)
_FORMULA = re.compile(r"\$\$.*?\$\$(?:\s*\([\w-]+\))?", re.DOTALL)
_FENCE = re.compile(r"^(?:`{3,}|:{3,}).*$|^:[\w-]+:.*$|^\([\w-]+\)=$", re.MULTILINE)
_ROLE = re.compile(r"\{[\w:]+\}`([^`]*)`")
_WORD = re.compile(r"[^\W\d_][\w'’-]*|\$[^$]+\$")
_LABEL = re.compile(
    r"\{(?:ref|numref)\}`(?:[^`<]*<)?(?P<label>(?:ch|ex)-\d\d[\w-]*)>?`"
)


@dataclass(frozen=True)
class Reading:
    """What a reader of a chapter's page looks at, solutions folded.

    Attributes
    ----------
    words, formulas, pictures, code_lines : int
        Counted; a formula within a line is a word.
    """

    words: int
    formulas: int
    pictures: int
    code_lines: int

    @property
    def minutes(self) -> float:
        """An estimate of the time that it takes to read."""
        looked = (
            FORMULA * self.formulas
            + PICTURE * self.pictures
            + CODE_LINE * self.code_lines
        )
        return self.words / WORDS_A_MINUTE + looked / 60


def measure_reading(source: Source) -> Reading:
    """Count what there is to read in a chapter.

    Parameters
    ----------
    source : Source
        The chapter.

    Returns
    -------
    Reading
        Without solutions and hidden cells, which are folded on the page.
    """
    words = formulas = pictures = lines = 0
    solving = False
    for cell in source.notebook.cells:
        tags = set(cell_tags(cell))
        if cell.cell_type == "markdown":
            text, solving = _without_solutions(cell.source, solving)
            formulas += len(_FORMULA.findall(text))
            text = _FENCE.sub("", _FORMULA.sub("", text))
            words += len(_WORD.findall(_ROLE.sub(r"\1", text)))
        elif cell.cell_type == "code" and not solving and "remove-cell" not in tags:
            options = cell.metadata.get("mystnb", {})
            pictures += bool(options.get("figure") or options.get("image"))
            if not tags & {"hide-input", "remove-input", "hide-cell"}:
                lines += sum(1 for line in cell.source.splitlines() if line.strip())
    return Reading(words, formulas, pictures, lines)


def _without_solutions(text: str, solving: bool) -> tuple[str, bool]:
    """Drop solutions; also one that begins in this text, or in one before it."""
    kept = []
    position = 0
    for mark in _MARK.finditer(text):
        if not solving:
            kept.append(text[position : mark.start()])
        solving = mark[1] == "start"
        position = mark.end()
    if not solving:
        kept.append(text[position:])
    return _SOLUTION.sub("", "".join(kept)), solving


@dataclass(frozen=True)
class Item:
    """One line of a plan.

    Attributes
    ----------
    minutes : int
        How long it is to take.
    what : str
        What is shown, as MyST text.
    live : str
        What people do, as MyST text; may be empty.
    """

    minutes: int
    what: str
    live: str

    @property
    def labels(self) -> tuple[str, ...]:
        """The chapters and exercises that it refers to, each once."""
        found = _LABEL.finditer(f"{self.what} {self.live}")
        return tuple(dict.fromkeys(match["label"] for match in found))


def read_plan(text: str) -> list[Item]:
    """Read a plan: ``MINUTES | WHAT | LIVE`` on each line that is not empty.

    Raises
    ------
    BookError
        If a line has another form.
    """
    items = []
    for line in filter(None, map(str.strip, text.splitlines())):
        parts = [part.strip() for part in line.split("|")]
        if len(parts) != 3 or not parts[0].isdecimal() or not parts[1]:
            raise BookError(f"expected MINUTES | WHAT | LIVE, got {line!r}")
        items.append(Item(int(parts[0]), parts[1], parts[2]))
    return items


def clock(start: str, minutes: int) -> str:
    """Return the time of day some minutes after another.

    Examples
    --------
    >>> clock("09:00", 95)
    '10:35'
    """
    hour, _, minute = start.partition(":")
    total = 60 * int(hour) + int(minute) + minutes
    return f"{total // 60 % 24:02d}:{total % 60:02d}"


def reading_minutes(text: str, root: Path) -> int:
    """Return how long the chapters take to read that a text refers to.

    Parameters
    ----------
    text : str
        MyST text with references such as ``{numref}`ch-08```.
    root : Path
        The folder of the book.

    Returns
    -------
    int
        Minutes, to the next five; a chapter that is named twice counts once.
    """
    numbers = {match["label"][3:5] for match in _LABEL.finditer(text)}
    total = sum(
        measure_reading(read_source(chapter)).minutes
        for chapter in list_chapters(root)
        if chapter.name[:2] in numbers
    )
    return 5 * round(total / 5)


_Timings = Mapping[str, Mapping[str, Any]]


def _quick(timings: _Timings, number: str) -> Mapping[str, Any] | None:
    for name, profiles in timings.items():
        if name.startswith(f"{number}_"):
            found: Mapping[str, Any] | None = profiles.get("quick")
            return found
    return None


def _seconds(row: Mapping[str, Any]) -> float:
    """What a run takes on an idle machine."""
    return float(row.get("core_seconds", row["seconds"]))


def run_seconds(labels: Sequence[str], timings: _Timings) -> tuple[float, list[str]]:
    """Return the seconds that chapters and solutions run, and what was never timed.

    Parameters
    ----------
    labels : sequence of str
        Such as "ch-08" and "ex-08-invert". A solution without code takes none.
    timings : mapping
        As :func:`~press.timings.read_timings` reads them.

    Returns
    -------
    seconds : float
        In profile quick.
    untimed : list of str
        The labels of chapters that have no timing.
    """
    total = 0.0
    untimed = []
    for label in labels:
        row = _quick(timings, label[3:5])
        if row is None:
            untimed.append(label)
        elif label.startswith("ch-"):
            total += _seconds(row)
        else:
            total += float(row.get("solutions", {}).get(label, 0.0))
    return total, untimed


def faults(items: Sequence[Item], timings: _Timings) -> list[str]:
    """Say which items of a plan have too little time for what runs in them."""
    found = []
    for item in items:
        seconds, _ = run_seconds(item.labels, timings)
        if seconds > MOST * 60 * item.minutes:
            found.append(
                f"{item.minutes} minutes for {', '.join(item.labels)}, which run "
                f"{seconds:.0f} s; give it more, or run less"
            )
    return found


def _cell(row: Mapping[str, Any] | None) -> str:
    return "" if row is None else f"{_seconds(row):.0f}"


def _longest_solution(row: Mapping[str, Any] | None) -> str:
    solutions = (row or {}).get("solutions", {})
    if not solutions:
        return ""
    longest = max(solutions.values())
    return f"{longest:.0f}" if longest >= 1 else "< 1"


def times_table(root: Path) -> str:
    """Return the table of chapters as MyST text: reading and running times.

    Parameters
    ----------
    root : Path
        The folder of the book.

    Returns
    -------
    str
        With a line below it that says where the seconds were measured.
    """
    timings = read_timings(root)
    lines = [
        "| Chapter | reading, minutes | `quick`, seconds | its slowest solution | "
        "`full`, seconds |",
        "| :--- | ---: | ---: | ---: | ---: |",
    ]
    for chapter in list_chapters(root):
        row = timings.get(chapter.name, {})
        minutes = measure_reading(read_source(chapter)).minutes
        cells = (
            f"{{numref}}`ch-{chapter.name[:2]}`, {{ref}}`ch-{chapter.name[:2]}`",
            f"{minutes:.0f}",
            _cell(row.get("quick")),
            _longest_solution(row.get("quick")),
            _cell(row.get("full")),
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, "", _measured(timings)])


def _measured(timings: _Timings) -> str:
    """Where and when the seconds were measured."""
    rows = [row for profiles in timings.values() for row in profiles.values()]
    if not rows:
        return "Nothing has been timed: `robustbook time`."
    machines = ", ".join(sorted({row["machine"] for row in rows}))
    dates = sorted({row["date"] for row in rows})
    when = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
    quick = [profiles["quick"] for profiles in timings.values() if "quick" in profiles]
    counted = sum("core_seconds" in row for row in quick)
    how = {0: "by the clock", len(quick): "as time of one core"}.get(
        counted, "as time of one core, or by the clock for the first timed"
    )
    return f"Seconds on {machines}, {when}; those of `quick` {how}."
