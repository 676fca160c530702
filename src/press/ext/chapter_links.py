"""Point a chapter's buttons at its source instead of at its executed copy.

The theme believes that a page is edited, launched and downloaded from the file
that it was built from. A chapter is built from ``book/chapters/NN_name.ipynb``,
which is generated: an edit there is lost and a launch there shows old outputs.
So on chapter pages

- Binder and Colab open ``notebooks/NN_name.ipynb``, as the release has it whose
  package it installs: the branch may have moved on since,
- "Suggest edit" opens ``notebooks/NN_name.md``, the only edited form,
- the download menu offers the notebook, its text form, and the executed copy.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util import logging

from press.source import revision

logger = logging.getLogger(__name__)

EXECUTED = "book/chapters/"
SOURCES = "notebooks/"


def redirect_buttons(
    app: Sphinx,
    pagename: str,
    templatename: str,
    context: dict[str, Any],
    doctree: nodes.document | None,
) -> None:
    """Rewrite the buttons that the theme prepared for one page."""
    if doctree is None or not pagename.startswith(EXECUTED):
        return
    name = pagename.removeprefix(EXECUTED)
    executed = f"{EXECUTED}{name}.ipynb"
    target = {
        "launch-buttons": f"{SOURCES}{name}.ipynb",
        "source-buttons": f"{SOURCES}{name}.md",
    }
    for group in context["header_buttons"]:
        label = group.get("label")
        if label in target:
            for button in group["buttons"]:
                button["url"] = button["url"].replace(executed, target[label])
                if label == "launch-buttons":
                    button["url"] = _of_release(app, button["url"])
        elif label == "download-buttons":
            group["buttons"][:] = _downloads(app, name, context) + [
                button for button in group["buttons"] if button["type"] == "javascript"
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
    sources_url = context["pathto"]("_sources", 1)
    buttons = []
    for suffix, tooltip, icon in (
        (".ipynb", "Download the notebook, without outputs", "fas fa-code"),
        (".md", "Download the notebook as MyST text", "fas fa-file-lines"),
    ):
        relative = f"{SOURCES}{name}{suffix}"
        source = Path(app.srcdir) / relative
        if not source.is_file():
            logger.warning(
                "%s is missing: the page offers it for download, Binder and Colab "
                "open it; `python -m press sync` makes the .ipynb from the .md",
                relative,
                type="chapter_links",
            )
            continue
        copy = Path(app.outdir) / "_sources" / relative
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, copy)
        buttons.append(
            {
                "type": "link",
                "url": f"{sources_url}/{relative}",
                "text": suffix,
                "tooltip": tooltip,
                "icon": icon,
                "label": f"download{suffix.replace('.', '-')}-button",
            }
        )
    buttons.append(
        {
            "type": "link",
            "url": f"{sources_url}/{context['sourcename']}",
            "text": ".ipynb, executed",
            "tooltip": "Download the notebook with the outputs shown here",
            "icon": "fas fa-chart-line",
            "label": "download-executed-button",
        }
    )
    return buttons


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the rewriting, after the theme's own handlers (priority 501)."""
    app.connect("html-page-context", redirect_buttons, priority=600)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
