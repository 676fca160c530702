"""Warn of every picture without alternative text.

A reader who listens to the page, or whose connection drops the picture, has only
that sentence. The strict build turns the warning into a failure, so that no
figure can be published without it. For the output of a code cell it is set in the
cell's metadata, under ``mystnb: image: alt``.
"""

from __future__ import annotations

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util import logging

logger = logging.getLogger(__name__)


def warn_of_missing_alt(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Look at the pictures of one page, once cell outputs have become pictures."""
    for image in doctree.findall(nodes.image):
        if not image.get("alt", "").strip():
            logger.warning(
                "picture %s has no alternative text; in a code cell, set "
                "`mystnb: image: alt:` in the cell's metadata",
                image.get("uri", "?"),
                location=image if image.line else docname,
                type="alt_text",
            )


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the check."""
    app.connect("doctree-resolved", warn_of_missing_alt)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
