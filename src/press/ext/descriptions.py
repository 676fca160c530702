"""Say what a link to a page shows elsewhere: the sentence on its card.

sphinxext-opengraph gets what the page says first, in whole sentences and without
formulas: for a lesson, the one to keep.
"""

from __future__ import annotations

import logging
import re
from html import escape
from typing import Any

import sphinxext.opengraph
from docutils import nodes
from sphinx.application import Sphinx

FORMULA = "\ufffc"

# In the box "You are here".
KEEP = re.compile(r"\bKeep: (.+?) · ")


def describe(doctree: nodes.document, length: int, *_: Any) -> str:
    """Return what a page says first: whole sentences, those without formulas."""
    for paragraph in doctree.findall(nodes.paragraph):
        if not isinstance(
            paragraph.parent, nodes.section | nodes.admonition | nodes.tip
        ):
            continue
        plain = paragraph.deepcopy()
        for formula in list(plain.findall(nodes.math)):
            formula.replace_self(nodes.Text(FORMULA))
        words = " ".join(plain.astext().split())
        if keep := KEEP.search(words):
            words = keep[1][:1].upper() + keep[1][1:]
        text = shorten(words, length)
        if len(text) > 20:
            return escape(text, quote=False)
    title = doctree.next_node(nodes.title)
    return f"{title.astext()}, a page of the book Robustness, Measured."


def shorten(text: str, length: int) -> str:
    """Return whole sentences of at most ``length`` characters, else whole words."""
    shortened = ""
    sentences = [
        sentence
        for sentence in re.split(r"(?<=[.?!])\s+", text)
        if FORMULA not in sentence and not sentence.endswith(":")
    ]
    for sentence in sentences:
        longer = f"{shortened} {sentence}".strip()
        if len(longer) > length:
            break
        shortened = longer
    if shortened or not sentences:
        return shortened
    return sentences[0][: length - 1].rsplit(" ", 1)[0].rstrip(",;:") + "…"


def setup(app: Sphinx) -> None:
    """Hand the sentence to sphinxext-opengraph."""
    app.setup_extension("sphinxext.opengraph")
    sphinxext.opengraph.get_description = describe
    # It says of each card that its face has no bold.
    logging.getLogger("matplotlib.font_manager").setLevel(logging.ERROR)
