"""Write the minus sign of a computed number as a minus sign.

Python writes a negative number with a hyphen, which is shorter than a plus sign and
may end a line. Here the hyphen in front of a number becomes a minus sign, U+2212: in
numbers that a chapter pastes into its prose, and in the cells of tables. Code and
formulas stay as they are.
"""

from __future__ import annotations

import re

from docutils import nodes
from sphinx.application import Sphinx

MINUS = "\N{MINUS SIGN}"
# At the start, behind a space, or behind a sign that opens or compares.
HYPHEN = re.compile(r"(?:^|(?<=[\s(\[=<>≤≥±~]))-(?=\.?[\d∞])")
NOT_TEXT = (
    nodes.FixedTextElement,
    nodes.image,
    nodes.literal,
    nodes.math,
    nodes.raw,
    nodes.reference,
)


def set_minus_signs(app: Sphinx, doctree: nodes.document) -> None:
    """Replace the hyphens in front of pasted numbers and of numbers in tables."""
    for text in [text for text in doctree.findall(nodes.Text) if _is_number(text)]:
        written = text.astext()
        follows = text.parent.index(text) > 0 and written.startswith("-")
        start = written[:1] if follows else ""  # behind a word it is no sign
        mended = start + HYPHEN.sub(MINUS, written[len(start) :])
        if mended != written:
            text.parent.replace(text, nodes.Text(mended))


def _is_number(text: nodes.Text) -> bool:
    """Whether a text is pasted or in a table, and no code, formula or link."""
    place, found = text.parent, False
    while place is not None:
        if isinstance(place, NOT_TEXT):
            return False
        pasted = "pasted-text" in place.get("classes", ())
        found = found or pasted or isinstance(place, nodes.entry)
        place = place.parent
    return found


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the change."""
    app.connect("doctree-read", set_minus_signs)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
