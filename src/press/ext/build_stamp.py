"""Stamp a clean build with the hash of its sources; make warnings stick.

Sphinx reads again only the pages that changed. A page that was read with a warning,
and not mended since, passes the next strict build without a word. So a build with
warnings makes Sphinx forget what it remembers: the next one starts afresh and warns
again. A later build inherits the claim of a stamp, as one with warnings leaves nothing
to inherit.
"""

from __future__ import annotations

from pathlib import Path

from sphinx.application import Sphinx

from press.site import remove_stamp, stamp_of, write_stamp


def begin(app: Sphinx) -> None:
    """Remove the stamp of an earlier build; note the sources as they are now."""
    remove_stamp(Path(app.outdir))
    app.book_stamp = stamp_of(Path(app.srcdir))


def end(app: Sphinx, exception: Exception | None) -> None:
    """Stamp the build, or make the next one start afresh."""
    if app._warncount or exception is not None:
        (Path(app.doctreedir) / "environment.pickle").unlink(missing_ok=True)
    elif app.builder.format == "html" and app.config.nitpicky:
        write_stamp(Path(app.outdir), app.book_stamp)


def setup(app: Sphinx) -> dict[str, bool]:
    """Register both ends of the build."""
    app.connect("builder-inited", begin)
    app.connect("build-finished", end, priority=950)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
