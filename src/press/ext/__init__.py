"""The Sphinx extensions of the book, as one: ``press.ext`` in ``_config.yml``."""

from __future__ import annotations

from importlib import import_module

from sphinx.application import Sphinx

_PARTS = (
    "api_summary",
    "book_map",
    "build",
    "citations",
    "claims_ledger",
    "code_links",
    "descriptions",
    "frame",
    "interactive",
    "previews",
    "reader_notebooks",
    "text",
)


def setup(app: Sphinx) -> dict[str, bool]:
    """Set up all parts, once all are imported: their code makes the pages."""
    for part in [import_module(f"press.ext.{part}") for part in _PARTS]:
        part.setup(app)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
