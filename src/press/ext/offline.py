"""Leave out the scripts that would fetch code from elsewhere.

Jupyter Book 1 loads sphinx-thebe on every page, also when its button is off: a
script and the address of a content delivery network. The book runs no code in the
page (Binder and Colab do), and is to be read without a network, so both go.
"""

from __future__ import annotations

from typing import Any

from docutils import nodes
from sphinx.application import Sphinx


def drop_thebe(
    app: Sphinx,
    pagename: str,
    templatename: str,
    context: dict[str, Any],
    doctree: nodes.document | None,
) -> None:
    """Remove thebe's scripts and styles from one page."""
    context["script_files"] = [
        script
        for script in context.get("script_files", [])
        if "thebe" not in str(getattr(script, "filename", script)).lower()
        and "THEBE" not in getattr(script, "attributes", {}).get("body", "")
    ]
    context["css_files"] = [
        sheet
        for sheet in context.get("css_files", [])
        if "thebe" not in str(getattr(sheet, "filename", sheet)).lower()
    ]


def drop_thebe_configuration(
    app: Sphinx, doctree: nodes.document, docname: str
) -> None:
    """Remove the configuration that thebe appends to every page."""
    for node in list(doctree.findall(nodes.raw)):
        text = node.astext()
        if "x-thebe-config" in text or text.startswith("<script>kernelName"):
            node.parent.remove(node)


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the removals, after thebe (priority 500) has added its parts."""
    app.connect("doctree-resolved", drop_thebe_configuration, priority=600)
    app.connect("html-page-context", drop_thebe, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
