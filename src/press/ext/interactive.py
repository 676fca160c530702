"""Figures to play with, drawn on the page by the Vega that the book carries."""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape
from typing import Any, ClassVar, Final

from docutils import nodes
from myst_nb.core import render
from sphinx.application import Sphinx

VEGA: Final = "application/vnd.vega.v5+json"
# The script is asked for by the figure: pages without one do without it.
_PAGE: Final = """\
<div class="interactive" id="{name}" role="group" aria-label="{label}"></div>
<script type="application/json" id="{name}-spec">{spec}</script>
<script>
(() => {{
  const draw = () => {{
    const place = document.getElementById("{name}");
    const spec = JSON.parse(document.getElementById("{name}-spec").textContent);
    const how = {{ renderer: "svg", container: place }};
    place.view = new vega.View(vega.parse(spec), how);
    place.view.runAsync();
    // A finger on a dot drags it; anywhere else it scrolls the page.
    place.addEventListener("touchstart", (event) => {{
      if (event.target.closest(".mark-symbol")) event.preventDefault();
    }}, {{ passive: false }});
  }};
  const script = document.createElement("script");
  const root = document.documentElement.dataset.content_root;
  script.src = root + "_static/vega/vega.min.js";
  script.onload = draw;
  document.head.append(script);
}})();
</script>
"""


def to_html(spec: dict[str, Any]) -> str:
    """Return HTML that draws a specification, under the name that it gives itself."""
    # In JSON, "</" only occurs in a string, where "<\\/" says the same.
    text = json.dumps(spec, ensure_ascii=False).replace("</", "<\\/")
    label = escape(spec["description"], quote=True)
    return _PAGE.format(name=spec["usermeta"]["name"], label=label, spec=text)


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
