"""What is changed in, and asked of, the text of every page.

A picture has alternative text. A formula and the punctuation behind it are one piece,
which no line break divides. The hyphen in front of a computed number becomes a minus
sign. Claims are set apart, and so is "Proof."; the proofs of a page get distinct
identifiers.
"""

from __future__ import annotations

import re

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx_proof.nodes import proof_node

logger = logging.getLogger(__name__)

PUNCTUATION = re.compile(r"[.,;:!?)\]’”]+")
MINUS = "\N{MINUS SIGN}"
# At the start, behind a space, or behind a sign that opens or compares.
HYPHEN = re.compile(r"(?:^|(?<=[\s(\[=<>≤≥±~]))-(?=\.?[\d∞])")
CLAIMS = {"✓ ": "holds", "✗ ": "fails"}
NOT_TEXT = (
    nodes.FixedTextElement,
    nodes.image,
    nodes.literal,
    nodes.math,
    nodes.raw,
    nodes.reference,
)


def warn_of_missing_alt(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Look at the pictures of one page, once cell outputs have become pictures."""
    for image in doctree.findall(nodes.image):
        if not image.get("alt", "").strip():
            logger.warning(
                "picture %s has no alternative text; in a code cell, set "
                "`mystnb: image: alt:` in the cell's metadata",
                image.get("uri", "?"),
                location=image if image.line else docname,
                type="alt_text",
            )


def bind_punctuation(app: Sphinx, doctree: nodes.document) -> None:
    """Wrap every inline formula that punctuation follows."""
    for formula in list(doctree.findall(nodes.math)):
        after = formula.next_node(descend=False, siblings=True)
        if not isinstance(after, nodes.Text):
            continue
        punctuation = PUNCTUATION.match(after.astext())
        if punctuation is None:
            continue
        parent = formula.parent
        piece = nodes.inline("", "", classes=["unbroken"])
        rest = nodes.Text(after.astext()[punctuation.end() :])
        # By place: texts of the same words are equal, and `remove` takes the first.
        place = _place(formula)
        parent[place : place + 2] = [piece, rest]
        piece += [formula, nodes.Text(punctuation.group())]


def set_minus_signs(app: Sphinx, doctree: nodes.document) -> None:
    """Replace the hyphens in front of pasted numbers and of numbers in tables."""
    for text in [text for text in doctree.findall(nodes.Text) if _is_number(text)]:
        written = text.astext()
        place = _place(text)
        follows = place > 0 and written.startswith("-")
        start = written[:1] if follows else ""  # behind a word it is no sign
        mended = start + HYPHEN.sub(MINUS, written[len(start) :])
        if mended != written:
            text.parent[place] = nodes.Text(mended)


def _place(node: nodes.Node) -> int:
    """Where a node itself, and not one equal to it, is among its siblings."""
    return next(i for i, child in enumerate(node.parent) if child is node)


def _is_number(text: nodes.Text) -> bool:
    """Whether a text is pasted or in a table, and no code, formula or link."""
    place, computed = text.parent, False
    while place is not None:
        if isinstance(place, NOT_TEXT):
            return False
        pasted = "pasted-text" in place.get("classes", ())
        computed = computed or pasted or isinstance(place, nodes.entry)
        place = place.parent
    return computed


def mark_claims(app: Sphinx, doctree: nodes.document) -> None:
    """Mark what `robustbook.notebook.claim` said."""
    for paragraph in doctree.findall(nodes.paragraph):
        sign = paragraph.children[0].astext() if paragraph.children else ""
        if sign in CLAIMS and isinstance(paragraph.children[1], nodes.strong):
            paragraph["classes"] += ["claim", CLAIMS[sign]]


def mark_proofs(app: Sphinx, doctree: nodes.document) -> None:
    """Mark every proof of one page."""
    for number, proof in enumerate(doctree.findall(proof_node), start=1):
        for block in proof.findall(nodes.admonition):
            if "proof" in block["ids"]:
                block["ids"] = [f"proof-{number}"]
                block["classes"] = ["proof", "proof-text"]
        paragraph = next(iter(proof.findall(nodes.paragraph)), None)
        if paragraph is None or not paragraph.children:
            continue
        first = paragraph.children[0]
        if isinstance(first, nodes.Text) and first.startswith("Proof."):
            opening = nodes.emphasis("", "Proof.", classes=["proof-opening"])
            rest = nodes.Text(first.removeprefix("Proof."))
            paragraph.replace(first, [opening, rest])


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the changes and the check."""
    app.connect("doctree-read", bind_punctuation)
    app.connect("doctree-read", set_minus_signs)
    app.connect("doctree-read", mark_claims)
    app.connect("doctree-read", mark_proofs)
    app.connect("doctree-resolved", warn_of_missing_alt)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
