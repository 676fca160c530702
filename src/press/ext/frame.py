"""What stands around the text of a page: buttons, downloads, foot and margin.

The theme believes that a page is edited, launched and downloaded from the file that it
was built from, which is generated for a chapter: here the buttons lead to its text and
to its notebook, in the release whose package that installs. The PDF, printed from the
built pages, is promised with ``ROBUSTBOOK_PDF=1`` only. And sphinx-thebe, which Jupyter
Book loads from a network even when its button is off, goes.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

from press.ext.reader_notebooks import EXECUTED as SHOWN
from press.pairs import revision

EXECUTED = "book/chapters/"
SOURCES = "notebooks/"
CITATION = "CITATION.cff"
PDF = "robustness-measured.pdf"
DOWNLOADS = (
    (".ipynb", "Download the notebook, without outputs", "fas fa-code"),
    (".md", "Download the notebook as MyST text", "fas fa-file-lines"),
)


def frame_page(
    app: Sphinx,
    pagename: str,
    templatename: str,
    context: dict[str, Any],
    doctree: nodes.document | None,
) -> None:
    """Change what the theme prepared for one page."""
    if doctree is not None and pagename.startswith(EXECUTED):
        _redirect_buttons(app, pagename.removeprefix(EXECUTED), context)
    _add_links(app, context)
    _name_folds(context)


def _redirect_buttons(app: Sphinx, name: str, context: dict[str, Any]) -> None:
    executed = f"{EXECUTED}{name}.ipynb"
    for group in context["header_buttons"]:
        label, buttons = group.get("label"), group.get("buttons", [])
        for button in buttons:
            if label == "launch-buttons":
                url = button["url"].replace(executed, f"{SOURCES}{name}.ipynb")
                button["url"] = _of_release(app, url)
            elif label == "source-buttons":
                button["url"] = button["url"].replace(executed, f"{SOURCES}{name}.md")
        if label == "download-buttons":
            buttons[:] = _downloads(app, name, context) + [
                button for button in buttons if button["type"] == "javascript"
            ]


def _of_release(app: Sphinx, url: str) -> str:
    """Name the release in a launch address where the theme names the branch."""
    branch = app.config.html_theme_options.get("repository_branch") or "main"
    # Colab's form, then Binder's.
    for before, after in (("/blob/", "/"), ("/", "?")):
        named = f"{before}{branch}{after}"
        url = url.replace(named, f"{before}{revision(branch)}{after}")
    return url


def _downloads(app: Sphinx, name: str, context: dict[str, Any]) -> list[dict[str, str]]:
    """Copy the sources into the site; return the buttons that lead to them."""
    folder = context["pathto"]("_sources", 1)
    keys = ("type", "url", "text", "tooltip", "icon", "label")

    def button(url: str, text: str, tooltip: str, icon: str, kind: str) -> dict:
        label = f"download-{kind}-button"
        values = ("link", f"{folder}/{url}", text, tooltip, icon, label)
        return dict(zip(keys, values, strict=True))

    buttons = []
    for suffix, tooltip, icon in DOWNLOADS:
        relative = f"{SOURCES}{name}{suffix}"
        copy = Path(app.outdir) / "_sources" / relative
        if suffix == ".md":
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(Path(app.srcdir) / relative, copy)
        if copy.is_file():  # no notebook is made of a page that is stale
            buttons.append(button(relative, suffix, tooltip, icon, suffix[1:]))
    executed = f"{SHOWN}/{name}.ipynb"
    if (Path(app.outdir) / "_sources" / executed).is_file():
        tooltip = "Download the notebook with the outputs shown here"
        icon = "fas fa-chart-line"
        buttons.append(button(executed, ".ipynb, executed", tooltip, icon, "executed"))
    return buttons


def _add_links(app: Sphinx, context: dict[str, Any]) -> None:
    """Put the links for readers into the foot of a page."""
    links = [f'<a href="{context["pathto"](CITATION, 1)}">Cite this book</a>']
    if app.config.book_pdf:
        links.append(f'<a href="{context["pathto"](PDF, 1)}">The book as a PDF</a>')
    context["theme_extra_footer"] = (
        context.get("theme_extra_footer", "")
        + f'<p class="reader-links">{" · ".join(links)}</p>'
    )


def _name_folds(context: dict[str, Any]) -> None:
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


def drop_thebe(
    app: Sphinx,
    pagename: str,
    templatename: str,
    context: dict[str, Any],
    doctree: nodes.document | None,
) -> None:
    """Remove thebe's scripts and styles from one page."""
    for kind in ("script_files", "css_files"):
        context[kind] = [
            file
            for file in context.get(kind, [])
            if "thebe" not in str(getattr(file, "filename", file)).lower()
            and "THEBE" not in getattr(file, "attributes", {}).get("body", "")
        ]


def drop_thebe_configuration(
    app: Sphinx, doctree: nodes.document, docname: str
) -> None:
    """Remove the configuration that thebe appends to every page."""
    for node in list(doctree.findall(nodes.raw)):
        text = node.astext()
        if "x-thebe-config" in text or text.startswith("<script>kernelName"):
            node.parent.remove(node)


def copy_citation(app: Sphinx, exception: Exception | None) -> None:
    """Copy the citation file beside the pages."""
    if exception is None and app.builder.format == "html":
        shutil.copyfile(Path(app.srcdir) / CITATION, Path(app.outdir) / CITATION)


def setup(app: Sphinx) -> dict[str, bool]:
    """Register what comes after the theme and thebe (500 and 501)."""
    app.add_config_value("book_pdf", os.environ.get("ROBUSTBOOK_PDF") == "1", "html")
    app.connect("html-page-context", frame_page, priority=700)
    app.connect("html-page-context", drop_thebe, priority=900)
    app.connect("doctree-resolved", drop_thebe_configuration, priority=600)
    app.connect("build-finished", copy_citation)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
