"""Interactive figures: Vega specifications that need no server.

JupyterLab and VS Code draw them with the Vega that they include. The pages of the book
include a copy, so that they work from disk, too. The specifications, ``*.vega.json``,
open in any Vega editor.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from importlib import resources
from typing import Any, Final

__all__ = ["hard_decisions_figure", "kernel_figure"]

#: A page for Colab, which does not draw Vega by itself.
_COLAB: Final = """\
<div id="{name}"></div>
<script src="https://cdn.jsdelivr.net/npm/vega@5.33.0/build/vega.min.js"
 integrity="sha384-Kpi0LDGE2Pg6N3+B3LiVIugYJ3rGL3AAqlnkRLfFxZtmejptl+TJ3iKY54HF5U3l"
 crossorigin="anonymous"></script>
<script>
new vega.View(vega.parse({spec}), {{ renderer: "svg", container: "#{name}" }}).run();
</script>
"""


@dataclass(frozen=True, eq=False)
class InteractiveFigure:
    """A Vega 5 specification, and its name on a page: letters and hyphens."""

    name: str
    spec: dict[str, Any]

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        """Return Vega's format, and for Colab a page with a script, too."""
        bundle = {"application/vnd.vega.v5+json": self.spec, "text/plain": repr(self)}
        if "google.colab" in sys.modules:
            # In JSON, "</" only occurs in strings, where "<\\/" means the same.
            spec = json.dumps(self.spec, ensure_ascii=False).replace("</", "<\\/")
            bundle["text/html"] = _COLAB.format(name=self.name, spec=spec)
        return bundle


def kernel_figure() -> InteractiveFigure:
    """Return a figure with three pairs of logits, their posteriors and the kernel.

    Logits can be dragged or set with the keyboard, as the inverse temperature can.

    Examples
    --------
    >>> kernel_figure()
    <InteractiveFigure interactive-kernel>
    """
    return _figure("kernel")


def hard_decisions_figure() -> InteractiveFigure:
    """Return a figure of the kernel if all answers have the same confidence.

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
    return InteractiveFigure(spec["usermeta"]["name"], spec)
