"""The site: built strictly, by Jupyter Book, and only where something changed.

A build without any warning leaves the hash of its sources beside the pages.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from press.layout import BookError

#: The command: strict, and all warnings at once.
BUILD = (
    *(sys.executable, "-c", "from jupyter_book.cli.main import main; main()"),
    *("build", "-W", "-n", "--keep-going"),
)

_STAMP = "build-stamp.json"
# Sphinx reads again only pages whose text changed: after a change to one of these, the
# others would keep their old links and looks.
_EVERY_PAGE = (
    "_config.yml",
    "_toc.yml",
    "book/_static/**/*",
    "src/press/ext/*",
    "src/press/pairs.py",
)
_SOURCES = (
    *_EVERY_PAGE,
    "CITATION.cff",
    "book/**/*",
    "constraints.txt",
    "data/README.md",
    "data/claims.toml",
    "notebooks/*.md",
    "src/**/*.py",
)


def _hash(root: Path, patterns: tuple[str, ...]) -> str:
    digest = hashlib.sha256()
    for path in sorted({path for pattern in patterns for path in root.glob(pattern)}):
        if path.is_file() and "__pycache__" not in path.parts:
            name = path.relative_to(root).as_posix()
            digest.update(f"{name}\0{path.stat().st_size}\0".encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()


def stamp_of(root: Path) -> dict[str, str]:
    """Return the stamp of a site made from the sources as they are now."""
    return {
        "every_page": _hash(root, _EVERY_PAGE),
        "sources": _hash(root, _SOURCES),
        "pdf": os.environ.get("ROBUSTBOOK_PDF", ""),
    }


def _read_stamp(html: Path) -> dict[str, str]:
    try:
        return json.loads((html / _STAMP).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}


def remove_stamp(html: Path) -> None:
    """Take the stamp off a site that is about to change."""
    (html / _STAMP).unlink(missing_ok=True)


def write_stamp(html: Path, stamp: dict[str, str]) -> None:
    """Stamp a site that was built without a warning."""
    (html / _STAMP).write_text(json.dumps(stamp), encoding="utf-8")


def build_site(root: Path) -> Path:
    """Build the site of the book unless it is fresh; return its first page."""
    html = root / "_build" / "html"
    present, stamped = stamp_of(root), _read_stamp(html)
    if present != stamped:
        if present["every_page"] != stamped.get("every_page"):
            shutil.rmtree(html, ignore_errors=True)
            shutil.rmtree(root / "_build" / ".doctrees", ignore_errors=True)
        if status := subprocess.run([*BUILD, str(root)], check=False).returncode:
            raise BookError(f"the strict build of the site ended with status {status}")
    return html / "index.html"
