"""The frame of a page: buttons, downloads, foot and margin.

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

from press.ext.reader_notebooks import PUBLISHED_FOLDER, WITH_OUTPUTS_FOLDER
from press.pairs import revision

SOURCES = "notebooks/"
CITATION = "CITATION.cff"
PDF = "robustness-measured.pdf"
#: By button: its file, what stands on it, what it says of itself, how it looks.
DOWNLOADS = {
    "ipynb": (
        f"{SOURCES}{{}}.ipynb",
        ".ipynb",
        "Download the notebook, without outputs",
        "fas fa-code",
    ),
    "md": (
        f"{SOURCES}{{}}.md",
        ".md",
        "Download the notebook as MyST text",
        "fas fa-file-lines",
    ),
    "executed": (
        f"{WITH_OUTPUTS_FOLDER}/{{}}.ipynb",
        ".ipynb, executed",
        "Download the notebook with the outputs shown here",
        "fas fa-chart-line",
    ),
}


def frame_page(
    app: Sphinx, pagename: str, _: str, context: dict[str, Any], doctree: nodes.Node
) -> None:
    """Change what the theme prepared for one page."""
    if doctree is not None and pagename.startswith(PUBLISHED_FOLDER):
        _redirect_buttons(app, pagename.removeprefix(PUBLISHED_FOLDER), context)
    _add_links(app, context)
    _name_folds(context)


def _redirect_buttons(app: Sphinx, name: str, context: dict[str, Any]) -> None:
    executed = f"{PUBLISHED_FOLDER}{name}.ipynb"
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
    sources = Path(app.outdir) / "_sources"
    (sources / SOURCES).mkdir(parents=True, exist_ok=True)
    written = f"{SOURCES}{name}.md"
    shutil.copyfile(Path(app.srcdir) / written, sources / written)
    return [
        {
            "type": "link",
            "url": f"{context['pathto']('_sources', 1)}/{file.format(name)}",
            "text": text,
            "tooltip": tooltip,
            "icon": icon,
            "label": f"download-{kind}-button",
        }
        for kind, (file, text, tooltip, icon) in DOWNLOADS.items()
        # No notebook is made of a page that is stale.
        if (sources / file.format(name)).is_file()
    ]


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


def drop_thebe(app: Sphinx, *_: Any) -> None:
    """Let sphinx-thebe hear of no page."""
    for listeners in app.events.listeners.values():
        for listener in list(listeners):
            if listener.handler.__module__ == "sphinx_thebe":
                app.disconnect(listener.id)
    files = app.registry.css_files
    files[:] = [file for file in files if "thebe" not in str(file[0])]


def setup(app: Sphinx) -> None:
    """Register what comes after the theme."""
    app.add_config_value("book_pdf", os.environ.get("ROBUSTBOOK_PDF") == "1", "html")
    app.config.templates_path.append(str(Path(__file__).parent))
    app.connect("html-page-context", frame_page, priority=700)
    app.connect("config-inited", drop_thebe)
