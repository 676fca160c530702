"""How long chapters take: kept beside the executed chapters, not in them.

Timings differ from run to run, so they have a file of their own,
``book/chapters/timings.json``. It holds, for each chapter, the last run of each
profile: ``full`` is measured when a chapter is published, ``quick`` by
:func:`time_quick`, with the seconds that each exercise's solution took. The status
page and the workshop guide read it; no page of the book states a time otherwise.
"""

from __future__ import annotations

import datetime
import json
import os
import platform
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from nbformat import NotebookNode

from .execute import Execution, execute
from .layout import Chapter, list_chapters
from .source import Source, read_source, write_whole

__all__ = [
    "machine",
    "read_timings",
    "record_timing",
    "solution_cells",
    "solution_seconds",
    "time_quick",
    "timings_file",
]

_MARK = re.compile(
    r"^(?:`{3,}|:{3,})\{solution-(?P<kind>start|end)\}(?:\s+(?P<label>\S+))?",
    re.MULTILINE,
)


def timings_file(root: Path) -> Path:
    """Return where the timings are."""
    return root / "book" / "chapters" / "timings.json"


def read_timings(root: Path) -> dict[str, dict[str, Any]]:
    """Return the timings: chapter, then profile, then date, machine and seconds."""
    path = timings_file(root)
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def machine() -> str:
    """Return the machine in a few words."""
    return f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores"


def record_timing(
    chapter: Chapter,
    seconds: float,
    *,
    profile: str,
    core_seconds: float | None = None,
    solutions: Mapping[str, float] | None = None,
) -> None:
    """Remember when, where and how long a chapter ran.

    Parameters
    ----------
    chapter : Chapter
        Which one.
    seconds : float
        Of the whole run, the start of the kernel included.
    profile : str
        What was computed: "quick" or "full".
    core_seconds : float, optional
        What the run took of a processor's core. On an idle machine it is near
        ``seconds``; on a busy one it is what the run would take on an idle one.
    solutions : mapping of str to float, optional
        The seconds of each exercise's solution.
    """
    timings = read_timings(chapter.root)
    row: dict[str, Any] = {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "machine": machine(),
        "seconds": round(seconds, 1),
    }
    if core_seconds:
        row["core_seconds"] = round(core_seconds, 1)
    if solutions is not None:
        row["solutions"] = {name: round(s, 1) for name, s in solutions.items()}
    timings.setdefault(chapter.name, {})[profile] = row
    names = {other.name for other in list_chapters(chapter.root)}
    kept = {name: row for name, row in timings.items() if name in names}
    text = json.dumps(kept, indent=1, sort_keys=True) + "\n"
    write_whole(timings_file(chapter.root), text)


def solution_cells(notebook: NotebookNode) -> Iterator[tuple[int, str]]:
    """Yield the code cells of solutions: each one's number and the exercise's label.

    Parameters
    ----------
    notebook : NotebookNode
        The cells of a chapter.

    Yields
    ------
    int
        The number of the cell.
    str
        The label of the exercise that it solves.
    """
    label: str | None = None
    for index, cell in enumerate(notebook.cells):
        if cell.cell_type == "markdown":
            for mark in _MARK.finditer(cell.source):
                label = mark["label"] if mark["kind"] == "start" else None
        elif cell.cell_type == "code" and label is not None:
            yield index, label


def solution_seconds(source: Source, execution: Execution) -> dict[str, float]:
    """Return the seconds that the code of each solution took.

    Parameters
    ----------
    source : Source
        The chapter.
    execution : Execution
        A run of it.

    Returns
    -------
    dict of str to float
        By the exercise's label; a solution without code is not in it.
    """
    seconds: dict[str, float] = {}
    for index, label in solution_cells(source.notebook):
        seconds[label] = seconds.get(label, 0.0) + execution.cell_seconds[index]
    return seconds


def _children_seconds() -> float:
    """The processor time of the processes that this one started and that ended."""
    times = os.times()
    return times.children_user + times.children_system


def time_quick(chapters: Sequence[Chapter]) -> Iterator[tuple[Chapter, float]]:
    """Run chapters in profile quick, one at a time, and remember how long each took.

    Parameters
    ----------
    chapters : sequence of Chapter
        Which ones, all of one book.

    Yields
    ------
    Chapter
        One that ran to its end.
    float
        Its seconds.

    Raises
    ------
    ChapterError
        If a cell raises.
    """
    for chapter in chapters:
        source = read_source(chapter)
        before = _children_seconds()
        execution = execute(
            source,
            parameters={"profile": "quick", "device": "cpu"},
            warnings_fail=False,
        )
        record_timing(
            chapter,
            execution.seconds,
            profile="quick",
            core_seconds=_children_seconds() - before,
            solutions=solution_seconds(source, execution),
        )
        yield chapter, execution.seconds
