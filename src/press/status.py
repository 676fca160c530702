"""The execution status page: how, when and where each chapter was executed.

What differs from run to run stands beside the chapters, in ``timings.json``.
"""

from __future__ import annotations

import datetime
import json
import os
import platform
from pathlib import Path
from typing import Any

from jinja2 import Template

from press.layout import Chapter, list_chapters
from press.source import write_whole
from press.stamps import read_stamp

_PAGE = Template(
    Path(__file__).with_suffix(".jinja").read_text("utf-8"),
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)


def status_page(root: Path) -> Path:
    """Return where the status page is."""
    return root / "book" / "status.md"


def _timings_file(root: Path) -> Path:
    return root / "book" / "chapters" / "timings.json"


def read_timings(root: Path) -> dict[str, dict[str, Any]]:
    """Return date, machine and seconds of the last publication of each chapter."""
    path = _timings_file(root)
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def record_timing(chapter: Chapter, seconds: float) -> None:
    """Note when, where and how long a chapter ran; forget chapters that are gone."""
    timings = read_timings(chapter.root)
    timings[chapter.name] = {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        "seconds": round(seconds, 1),
    }
    names = {other.name for other in list_chapters(chapter.root)}
    present = {name: row for name, row in timings.items() if name in names}
    text = json.dumps(present, indent=1, sort_keys=True) + "\n"
    write_whole(_timings_file(chapter.root), text)


def render_status(root: Path) -> str:
    """Return the status page of the book in ``root`` as MyST text."""
    timings, chapters = read_timings(root), list_chapters(root)
    rows = [
        (chapter.name, stamp, timings.get(chapter.name, {}))
        for chapter in chapters
        if (stamp := read_stamp(chapter)) is not None
    ]
    # Most chapters share their versions, which are listed once.
    versions: dict[str, list[str]] = {}
    for name, stamp, _ in rows:
        listed = ", ".join(f"{package} {v}" for package, v in stamp["versions"].items())
        versions.setdefault(listed, []).append(name[:2])
    # The first: another chapter leaves the page as it is.
    example = chapters[0].name if chapters else "01_same_accuracy"
    return _PAGE.render(rows=rows, versions=versions, example=example)


def write_status(root: Path) -> bool:
    """Write the status page; return whether it changed."""
    return write_whole(status_page(root), render_status(root))
