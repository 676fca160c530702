"""The Sphinx extensions of the book, as one: ``press.ext`` in ``_config.yml``."""

from __future__ import annotations

import os
from typing import Any

from sphinx.application import Sphinx
from sphinx_proof.domain import ProofDomain

_PARTS = (
    "api_summary",
    "build_stamp",
    "citations",
    "claims_ledger",
    "code_links",
    "descriptions",
    "frame",
    "previews",
    "text",
)


def _allow_parallel_reading(app: Sphinx, *_: Any) -> None:
    # It keeps its proofs in the environment, which it merges, and nothing here.
    ProofDomain.merge_domaindata = lambda *_: None
    # It numbers once everything is read, and does not say that this is safe.
    if numbering := app.extensions.get("sphinx_multitoc_numbering"):
        numbering.parallel_read_safe = True


def setup(app: Sphinx) -> dict[str, bool]:
    """Set up all parts; read and write pages side by side, on up to four cores."""
    app.parallel = max(app.parallel, min(os.cpu_count() or 1, 4))
    app.connect("env-before-read-docs", _allow_parallel_reading)
    for part in _PARTS:
        app.setup_extension(f"press.ext.{part}")
    return {"parallel_read_safe": True, "parallel_write_safe": True}
