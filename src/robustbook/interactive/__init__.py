"""Figures to play with: Vega specifications that need no server.

JupyterLab and VS Code draw them with the Vega that they carry; the book's pages with
the copy in their ``_static`` folder, also from disk. The specifications,
``*.vega.json``, open in any Vega editor.
"""

from __future__ import annotations

import html
import json
from dataclasses import dataclass
from importlib import resources
from typing import Any, Final

__all__ = ["InteractiveFigure", "hard_decisions_figure", "kernel_figure"]

#: Where a page of the book finds the library, and where any other page does.
_LIBRARY: Final = "_static/vega/vega.min.js"
_PUBLIC: Final = "https://cdn.jsdelivr.net/npm/vega@5.33.0/build/vega.min.js"
_SUM: Final = "sha384-Kpi0LDGE2Pg6N3+B3LiVIugYJ3rGL3AAqlnkRLfFxZtmejptl+TJ3iKY54HF5U3l"
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
  }};
  if (window.vega) return draw();
  const root = document.documentElement.dataset.content_root;
  const script = document.createElement("script");
  if (root === undefined) {{
    script.crossOrigin = "anonymous";
    script.integrity = "{sum}";
  }}
  script.src = root === undefined ? "{public}" : root + "{library}";
  script.onload = draw;
  document.head.append(script);
}})();
</script>
"""


@dataclass(frozen=True, eq=False)
class InteractiveFigure:
    """A Vega specification that notebooks and the book's pages show.

    Attributes
    ----------
    name : str
        Of the figure on its page: letters and hyphens.
    spec : dict
        The specification, version 5 of Vega.
    """

    name: str
    spec: dict[str, Any]

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        """For JupyterLab its own format, for a page HTML with a script."""
        return {
            "application/vnd.vega.v5+json": self.spec,
            "text/html": self.to_html(),
            "text/plain": repr(self),
        }

    def to_html(self) -> str:
        """Return HTML that draws the figure with the site's Vega, or the public one."""
        # In JSON, "</" only occurs in a string, where "<\\/" says the same.
        spec = json.dumps(self.spec, ensure_ascii=False).replace("</", "<\\/")
        label = html.escape(self.spec["description"], quote=True)
        where = {"library": _LIBRARY, "public": _PUBLIC, "sum": _SUM}
        return _PAGE.format(name=self.name, label=label, spec=spec, **where)


def kernel_figure() -> InteractiveFigure:
    """Three pairs of logits to drag, their posteriors and the agreement kernel.

    A logit is also set with the keyboard, and so is the inverse temperature.

    Examples
    --------
    >>> kernel_figure()
    <InteractiveFigure interactive-kernel>
    """
    return _figure("kernel")


def hard_decisions_figure() -> InteractiveFigure:
    """The kernel of answers that are all given with one confidence, and its capacity.

    Sliders set the number of classes, the share of changed answers and the confidence.

    Examples
    --------
    >>> hard_decisions_figure()
    <InteractiveFigure interactive-hard-decisions>
    """
    return _figure("hard_decisions")


def _figure(name: str) -> InteractiveFigure:
    file = resources.files(__name__) / f"{name}.vega.json"
    spec = json.loads(file.read_text(encoding="utf-8"))
    return InteractiveFigure(f"interactive-{name.replace('_', '-')}", spec)
