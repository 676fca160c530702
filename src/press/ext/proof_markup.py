"""Set a proof apart from what it proves.

sphinx-proof puts "Proof." in front of the first sentence as plain text, so that a
reader who scans the page cannot see where a theorem ends and its proof begins; and
it gives every proof of a page the same identifier, which HTML forbids. Here the
word becomes italic, the block a class of its own, the identifiers distinct.
"""

from __future__ import annotations

from docutils import nodes
from sphinx.application import Sphinx
from sphinx_proof.nodes import proof_node


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
    """Register the change."""
    app.connect("doctree-read", mark_proofs)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
