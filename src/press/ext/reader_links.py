"""What a reader looks for around the text: how to cite, and the book as a PDF.

``CITATION.cff`` is copied beside the pages, and each page's foot links to it.

The PDF is printed from the pages once they are built (``make pdf``), so a page may
link to it only where somebody will put it: with ``ROBUSTBOOK_PDF=1`` in the
environment of the build, as the workflow of the site has it.

The theme's folding marks in the left margin have no name; here they get the name of
the page whose sections they unfold.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

CITATION = "CITATION.cff"
PDF = "robustness-measured.pdf"


def add_links(
    app: Sphinx,
    pagename: str,
    templatename: str,
    context: dict[str, Any],
    doctree: nodes.document | None,
) -> None:
    """Put the links into the foot of one page."""
    links = [f'<a href="{context["pathto"](CITATION, 1)}">Cite this book</a>']
    if app.config.book_pdf:
        links.append(f'<a href="{context["pathto"](PDF, 1)}">The book as a PDF</a>')
    context["theme_extra_footer"] = (
        context.get("theme_extra_footer", "")
        + f'<p class="reader-links">{" · ".join(links)}</p>'
    )


def name_folds(
    app: Sphinx,
    pagename: str,
    templatename: str,
    context: dict[str, Any],
    doctree: nodes.document | None,
) -> None:
    """Name the marks that unfold a page's sections in the left margin."""
    contents = context.get("generate_toctree_html")
    if contents is None:
        return

    def named(*args: Any, **options: Any) -> Any:
        tree = contents(*args, **options)
        for summary in tree.select("li > details > summary"):
            link = summary.parent.find_previous_sibling("a")
            summary["aria-label"] = f"Pages of {link.get_text(strip=True)}"
        return tree

    context["generate_toctree_html"] = named


def copy_citation(app: Sphinx, exception: Exception | None) -> None:
    """Copy the citation file beside the pages."""
    if exception is None and app.builder.format == "html":
        shutil.copyfile(Path(app.srcdir) / CITATION, Path(app.outdir) / CITATION)


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the handlers, the theme's own (priority 500 and 501) first."""
    app.add_config_value("book_pdf", os.environ.get("ROBUSTBOOK_PDF") == "1", "html")
    app.connect("html-page-context", add_links, priority=700)
    app.connect("html-page-context", name_folds, priority=700)
    app.connect("build-finished", copy_citation)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
