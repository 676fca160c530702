"""The site: built strictly by Jupyter Book, which reads again only what changed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from press.layout import BookError

#: The command: strict, and all warnings at once. To import the press saves a second.
BUILD = (
    *(sys.executable, "-c", "import press, jupyter_book.cli.main as jb; jb.main()"),
    *("build", "-W", "-n", "--keep-going"),
)
# What pages are made from; a folder is newer, too, if one of its files is gone.
_SOURCES = (
    *("_*.yml", "CITATION.cff", "constraints.txt", "book/**/*", "data/*"),
    *("notebooks/*.md", "src/**/*.*"),
)


def note_of_clean_build(doctrees: Path) -> Path:
    """Return the file by which a build without a warning says what made its pages."""
    return doctrees / f"makers{os.environ.get('ROBUSTBOOK_PDF', '')}"


def build_site(root: Path) -> Path:
    """Build the site of the book unless nothing changed; return its first page."""
    note = note_of_clean_build(root / "_build" / ".doctrees")
    first_page = root / "_build" / "html" / "index.html"
    if note.is_file() and max(_times(root)) < note.stat().st_mtime:
        return first_page
    if status := subprocess.run([*BUILD, str(root)], check=False).returncode:
        raise BookError(f"the strict build of the site ended with status {status}")
    return first_page


def _times(root: Path) -> Iterator[float]:
    """Yield when each source was changed; Sphinx knows which pages are made from it."""
    for pattern in _SOURCES:
        for path in root.glob(pattern):
            if "__pycache__" not in path.parts:
                yield path.stat().st_mtime
