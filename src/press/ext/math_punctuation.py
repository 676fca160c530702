"""Keep the punctuation after a formula on the formula's line.

MathJax sets a formula as a block of its own inside the line, and a browser may break
the line after it. A period or a comma would then open the next line. Here a formula
and the punctuation behind it become one piece that is not broken.
"""

from __future__ import annotations

import re

from docutils import nodes
from sphinx.application import Sphinx

PUNCTUATION = re.compile(r"[.,;:!?)\]’”]+")


def bind_punctuation(app: Sphinx, doctree: nodes.document) -> None:
    """Wrap every inline formula that punctuation follows."""
    for formula in list(doctree.findall(nodes.math)):
        parent = formula.parent
        place = parent.index(formula)
        after = parent[place + 1] if place + 1 < len(parent) else None
        if not isinstance(after, nodes.Text):
            continue
        found = PUNCTUATION.match(after.astext())
        if found is None:
            continue
        piece = nodes.inline("", "", classes=["unbroken"])
        rest = nodes.Text(after.astext()[found.end() :])
        parent.remove(after)
        parent.replace(formula, [piece, rest])
        piece += [formula, nodes.Text(found.group())]


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the change."""
    app.connect("doctree-read", bind_punctuation)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
