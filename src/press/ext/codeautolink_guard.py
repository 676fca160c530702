"""Keep sphinx-codeautolink from stopping at theorems and from losing links.

sphinx-proof and sphinx-exercise wrap the body of a theorem in a section without an
identifier; sphinx-codeautolink takes the first identifier of every section it
passes and fails. The guard gives it none to take there, and leaves alone the stack
of titles that such a section never filled.

It also decides before the build which pages it will put links into: those whose
source changed. Sphinx writes others anew too (the title of a neighbor changed, the
configuration did), and these would come out without links. The guard gives it the
pages that were in fact written.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx_codeautolink.extension import SphinxCodeAutoLink
from sphinx_codeautolink.extension.block import CodeBlockAnalyser


def guard_sections() -> None:
    """Replace the two methods that visit sections by guarded ones."""
    visit, depart = CodeBlockAnalyser.visit_section, CodeBlockAnalyser.depart_section

    def visit_section(self: CodeBlockAnalyser, node: nodes.section) -> None:
        if node["ids"]:
            visit(self, node)

    def depart_section(self: CodeBlockAnalyser, node: nodes.section) -> None:
        if node["ids"] and self.title_stack:
            depart(self, node)

    CodeBlockAnalyser.visit_section = visit_section
    CodeBlockAnalyser.depart_section = depart_section


def guard_written_pages(app: Sphinx) -> None:
    """Tell sphinx-codeautolink, before it works, which pages were written."""
    owners = [
        getattr(listener.handler, "__self__", None)
        for listener in app.events.listeners["build-finished"]
    ]
    (state,) = (owner for owner in owners if isinstance(owner, SphinxCodeAutoLink))
    written: set[str] = set()

    def note(
        app: Sphinx,
        pagename: str,
        templatename: str,
        context: dict[str, Any],
        doctree: nodes.document | None,
    ) -> None:
        if doctree is not None:
            written.add(str(Path(pagename)))

    def hand_over(app: Sphinx, exception: Exception | None) -> None:
        state.outdated_docs = written

    app.connect("html-page-context", note)
    app.connect("build-finished", hand_over, priority=100)


def setup(app: Sphinx) -> dict[str, bool]:
    """Put both guards up."""
    app.setup_extension("sphinx_codeautolink")
    guard_sections()
    guard_written_pages(app)
    return {"parallel_read_safe": True, "parallel_write_safe": False}
