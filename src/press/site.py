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
from collections.abc import Iterable
from modulefinder import ModuleFinder
from pathlib import Path

from press.layout import BookError

#: The command: strict, and all warnings at once.
BUILD = (
    *(sys.executable, "-c", "from jupyter_book.cli.main import main; main()"),
    *("build", "-W", "-n", "--keep-going"),
)

_STAMP = "build-stamp.json"
# Sphinx reads again only pages whose text changed. After a change to one of these, or
# to the extensions and what they import, others would keep their old links and looks.
_EVERY_PAGE = (
    "_config.yml",
    "_toc.yml",
    "book/_static/**/*",
    "constraints.txt",
    "src/robustbook/__init__.py",
)
_SOURCES = (
    "CITATION.cff",
    "book/**/*",
    "data/README.md",
    "data/claims.toml",
    "notebooks/*.md",
    "src/robustbook/**/*.py",
)


def _glob(root: Path, patterns: Iterable[str]) -> set[Path]:
    return {path for pattern in patterns for path in root.glob(pattern)}


def _extensions() -> set[Path]:
    """The running extensions of Sphinx, and what they import of the press."""
    press = Path(__file__).parent
    files = _glob(press, ["ext/*"])
    finder = ModuleFinder([str(press.parent)])
    for path in files:
        if path.suffix == ".py":
            finder.load_file(str(path))
    modules = (vars(module)["__file__"] for module in finder.modules.values())
    return files | {Path(name) for name in modules if name}


def _hash(files: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for path in sorted(files):
        if path.is_file() and "__pycache__" not in path.parts:
            digest.update(f"{path}\0{path.stat().st_size}\0".encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()


def stamp_of(root: Path) -> dict[str, str]:
    """Return the stamp of a site made from the sources as they are now."""
    return {
        "every_page": _hash(_glob(root, _EVERY_PAGE) | _extensions()),
        "sources": _hash(_glob(root, _SOURCES)),
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
