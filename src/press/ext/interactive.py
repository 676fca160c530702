"""Figures to play with, drawn on the page by the Vega that the book carries."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Final

from docutils import nodes
from jinja2 import Template
from myst_nb.core import render
from sphinx.application import Sphinx

VEGA: Final = "application/vnd.vega.v5+json"
# The script is asked for by the figure: pages without one do without it.
_PAGE: Final = Template(
    Path(__file__).with_suffix(".jinja").read_text("utf-8"),
    autoescape=True,
    keep_trailing_newline=True,
)


def to_html(spec: dict[str, Any]) -> str:
    """Return HTML that draws a specification, under the name that it gives itself."""
    # In JSON, "</" only occurs in a string, where "<\\/" says the same.
    text = json.dumps(spec, ensure_ascii=False).replace("</", "<\\/")
    name, label = spec["usermeta"]["name"], spec["description"]
    return _PAGE.render(name=name, label=label, spec=text)


class VegaRenderer(render.MimeRenderPlugin):
    """Turns what a cell shows as Vega into HTML."""

    mime_priority_overrides: ClassVar[Sequence[tuple[str, str, int | None]]] = [
        ("*", VEGA, 1)
    ]

    @staticmethod
    def handle_mime(
        renderer: render.NbElementRenderer, data: render.MimeData, inline: bool
    ) -> list[nodes.Element] | None:
        """Return the nodes of a Vega specification; leave all else to others."""
        if data.mime_type != VEGA or inline:
            return None
        return [nodes.raw("", to_html(data.content), format="html")]


def setup(app: Sphinx) -> None:
    """Register the renderer, which myst-nb else takes from installed packages only."""
    others = render.load_mime_renders
    render.load_mime_renders = lambda: [*others(), VegaRenderer]
