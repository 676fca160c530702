"""Stamp a clean build with the hash of its sources; make warnings stick.

Sphinx reads again only the pages that changed. A page that was read with a warning,
and not mended since, passes the next strict build without a word. So after a build
with warnings this extension drops what Sphinx remembers, and the next build starts
afresh and warns again.

A build without any warning is stamped: ``build-stamp.json`` beside the pages holds
the hash of everything that they were made from. The tests of the site use a stamped
build instead of making their own, if the sources still have that hash.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from sphinx.application import Sphinx

STAMP = "build-stamp.json"
SOURCES = (
    "_config.yml",
    "_toc.yml",
    "book/**/*",
    "data/README.md",
    "data/claims.toml",
    "notebooks/*",
    "src/robustbook/**/*.py",
)


def source_hash(root: Path) -> str:
    """Return one hash of the names and contents of the site's sources."""
    digest = hashlib.sha256()
    files = {path for pattern in SOURCES for path in root.glob(pattern)}
    for path in sorted(files):
        if path.is_file() and "__pycache__" not in path.parts:
            name = path.relative_to(root).as_posix()
            digest.update(f"{name}\0{path.stat().st_size}\0".encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()


def begin(app: Sphinx) -> None:
    """Remove the mark of an earlier build; note the sources as they are now."""
    (Path(app.outdir) / STAMP).unlink(missing_ok=True)
    app.book_sources = source_hash(Path(app.srcdir))


def stamp(app: Sphinx, exception: Exception | None) -> None:
    """Stamp the build, or make the next one start afresh."""
    if app._warncount or exception is not None:
        (Path(app.doctreedir) / "environment.pickle").unlink(missing_ok=True)
        return
    # Only a build that read every page can speak for every page; a later one
    # inherits the claim, as a build with warnings leaves nothing to inherit.
    if app.builder.format == "html":
        (Path(app.outdir) / STAMP).write_text(
            json.dumps({"sources": app.book_sources, "nitpicky": app.config.nitpicky}),
            encoding="utf-8",
        )


def setup(app: Sphinx) -> dict[str, bool]:
    """Register both ends of the build."""
    app.connect("builder-inited", begin)
    app.connect("build-finished", stamp, priority=950)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
