"""Keep sphinx-codeautolink from stopping at theorem blocks.

sphinx-proof and sphinx-exercise wrap the body of a theorem in a section without an
identifier; sphinx-codeautolink takes the first identifier of every section it
passes and fails. The guard gives it none to take there, and leaves alone the stack
of titles that such a section never filled.
"""

from __future__ import annotations

from docutils import nodes
from sphinx.application import Sphinx
from sphinx_codeautolink.extension.block import CodeBlockAnalyser


def setup(app: Sphinx) -> dict[str, bool]:
    """Replace the two methods by guarded ones."""
    visit, depart = CodeBlockAnalyser.visit_section, CodeBlockAnalyser.depart_section

    def visit_section(self: CodeBlockAnalyser, node: nodes.section) -> None:
        if node["ids"]:
            visit(self, node)

    def depart_section(self: CodeBlockAnalyser, node: nodes.section) -> None:
        if node["ids"] and self.title_stack:
            depart(self, node)

    CodeBlockAnalyser.visit_section = visit_section
    CodeBlockAnalyser.depart_section = depart_section
    return {"parallel_read_safe": True, "parallel_write_safe": True}
