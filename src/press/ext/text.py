"""Changes to the text of every page, and a check of its pictures.

A picture has alternative text. A formula and the punctuation behind it are one piece,
which no line break divides. Claims are set apart, and so is "Proof."; the proofs of a
page get distinct identifiers.
"""

from __future__ import annotations

import re

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx_proof.nodes import proof_node

logger = logging.getLogger(__name__)

PUNCTUATION = re.compile(r"[.,;:!?)\]’”]+")
CLAIMS = {"✓ ": "holds", "✗ ": "fails"}


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
        # Not `remove`: it takes the first of texts of the same words.
        place = parent.index(formula)
        parent[place : place + 2] = [piece, rest]
        piece += [formula, nodes.Text(punctuation.group())]


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
                if "dropdown" in block["classes"]:
                    fold_proof(block)
                block["classes"] = ["proof", "proof-text"]
        paragraph = next(iter(proof.findall(nodes.paragraph)), None)
        if paragraph is None or not paragraph.children:
            continue
        start = paragraph.children[0]
        if isinstance(start, nodes.Text) and start.startswith("Proof."):
            opening = nodes.emphasis("", "Proof.", classes=["proof-opening"])
            rest = nodes.Text(start.removeprefix("Proof."))
            paragraph.replace(start, [opening, rest])


def fold_proof(block: nodes.Element) -> None:
    """Fold a proof: a toggle button needs a title, and a proof has none."""
    start = '<details class="toggle-details"><summary>Proof</summary>'
    block.insert(0, nodes.raw("", start, format="html"))
    block.append(nodes.raw("", "</details>", format="html"))


def setup(app: Sphinx) -> None:
    """Register the changes and the check."""
    app.connect("doctree-read", bind_punctuation)
    app.connect("doctree-read", mark_claims)
    app.connect("doctree-read", mark_proofs)
    app.connect("doctree-resolved", warn_of_missing_alt)
