"""Citations as (Jaynes, 1957), and the list of what one chapter cites.

sphinxcontrib-bibtex takes every ``{bibliography}`` for a place that citations may point
to: one a chapter would define each work twice. ``{chapter-references}`` copies the
entries that the page cites, and defines nothing.
"""

from __future__ import annotations

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective
from sphinx.util.nodes import make_refnode
from sphinxcontrib.bibtex.plugin import register_plugin
from sphinxcontrib.bibtex.style.referencing import BracketStyle
from sphinxcontrib.bibtex.style.referencing.author_year import AuthorYearReferenceStyle

logger = logging.getLogger(__name__)


class RoundAuthorYear(AuthorYearReferenceStyle):
    """Author-year references in round brackets."""

    def __init__(self) -> None:
        kinds = ("parenthetical", "textual", "author", "label", "year")
        round_ones = BracketStyle(left="(", right=")")
        super().__init__(**{f"bracket_{kind}": round_ones for kind in kinds})


class ChapterReferences(SphinxDirective):
    """List the works that this page cites."""

    def run(self) -> list[nodes.Node]:
        """Leave a mark: what is cited is known when all pages have been read."""
        return [chapter_references()]


class chapter_references(nodes.General, nodes.Element):  # noqa: N801
    """Stands for the list until the citations are resolved."""


def fill_chapter_references(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Replace the mark by the entries, in the order of the bibliography."""
    marks = list(doctree.findall(chapter_references))
    if not marks:
        return
    domain = app.env.get_domain("cite")
    cited = {
        key
        for reference in domain.citation_refs
        if reference.docname == docname
        for key in (target.key for target in reference.targets)
    }
    items = nodes.bullet_list(classes=["chapter-references"])
    for citation in domain.citations:
        if citation.key in cited:
            place = citation.bibliography_key.docname, citation.citation_id
            entry = domain.backend.paragraph(citation.formatted_entry)
            entry += nodes.Text(" ")
            hook = nodes.inline(text="\N{LEFTWARDS ARROW WITH HOOK}")
            title = "In the bibliography"
            entry += make_refnode(app.builder, docname, *place, hook, title)
            items += nodes.list_item("", entry)
    if not items.children:
        logger.warning("chapter-references: the page cites nothing", location=docname)
    for mark in marks:
        mark.replace_self(items.deepcopy())


def setup(app: Sphinx) -> None:
    """Register the style and the directive."""
    app.setup_extension("sphinxcontrib.bibtex")
    register_plugin(
        "sphinxcontrib.bibtex.style.referencing", "author_year_round", RoundAuthorYear
    )
    app.add_node(chapter_references)
    app.add_directive("chapter-references", ChapterReferences)
    app.connect("doctree-resolved", fill_chapter_references)
