"""What a link to a page shows elsewhere: a picture and a sentence of its own.

Chat programs and search engines show a page by its ``og:`` and description tags.
sphinxext-opengraph writes them; this extension says what goes in:

- each chapter has a card with its title and its part, drawn in the build on the
  ground and with the emblem of the book's own card, ``book/_static/card.png``, which
  the other pages keep;
- the description is what the page says first, in whole sentences. For a chapter that
  is what its reader will be able to do.
"""

from __future__ import annotations

import re
from functools import cache
from html import escape
from pathlib import Path
from typing import Any

import matplotlib
import yaml
from docutils import nodes
from PIL import Image, ImageDraw, ImageFont
from sphinx.application import Sphinx

FOLDER = "_images/cards"
SIZE = (1200, 630)
MARGIN = 90
TEXT, MUTED = "#e6eaef", "#a9b1bc"
COLORS = 48
LENGTH = 200
FORMULA = "\ufffc"


@cache
def parts(root: Path) -> dict[str, str]:
    """Return the part of each chapter, as the contents name it."""
    toc = yaml.safe_load((root / "_toc.yml").read_text(encoding="utf-8"))
    return {
        chapter["file"]: part["caption"]
        for part in toc["parts"]
        for chapter in part["chapters"]
        if chapter["file"].startswith("book/chapters/")
    }


@cache
def font(name: str, size: int) -> Any:
    """Return a face that comes with matplotlib."""
    path = Path(matplotlib.get_data_path(), "fonts", "ttf", f"{name}.ttf")
    return ImageFont.truetype(str(path), size)


def wrap(text: str, face: Any, width: int) -> list[str]:
    """Break text into lines that are no wider than ``width``."""
    lines = [""]
    for word in text.split():
        longer = f"{lines[-1]} {word}".strip()
        if lines[-1] and face.getlength(longer) > width:
            lines.append(word)
        else:
            lines[-1] = longer
    return lines


def draw_card(base: Image.Image, part: str, title: str) -> Image.Image:
    """Return the card of one chapter, on the ground of the book's own card."""
    ground = base.getpixel((0, 0))
    card = Image.new("RGB", SIZE, ground)
    pen = ImageDraw.Draw(card)
    width = SIZE[0] - 2 * MARGIN
    size = 76 if len(wrap(title, font("DejaVuSans-Bold", 76), width)) < 3 else 64
    face = font("DejaVuSans-Bold", size)
    pen.text((MARGIN, 72), part, font=font("DejaVuSans", 31), fill=MUTED)
    for row, line in enumerate(wrap(title, face, width)):
        pen.text((MARGIN, 138 + row * size * 1.22), line, font=face, fill=TEXT)
    emblem = base.crop((92, 186, 448, 482))
    emblem = emblem.resize((120, round(120 * emblem.height / emblem.width)))
    card.paste(emblem, (MARGIN - 3, SIZE[1] - 62 - emblem.height))
    name = font("DejaVuSans-Bold", 36)
    below = (MARGIN + 145, SIZE[1] - 134)
    pen.text(below, "Robustness, Measured", font=name, fill=TEXT)
    # So few colors that a card weighs some twenty kilobytes.
    return card.quantize(COLORS, dither=Image.Dither.NONE)


def describe(doctree: nodes.document) -> str:
    """Return what a page says first: whole sentences, those without formulas."""
    for paragraph in doctree.findall(nodes.paragraph):
        if not isinstance(
            paragraph.parent, nodes.section | nodes.admonition | nodes.tip
        ):
            continue
        plain = paragraph.deepcopy()
        for formula in list(plain.findall(nodes.math)):
            formula.replace_self(nodes.Text(FORMULA))
        text = shorten(" ".join(plain.astext().split()))
        if len(text) > 20:
            return text
    return ""


def shorten(text: str) -> str:
    """Return whole sentences of at most ``LENGTH`` characters, else whole words."""
    whole = ""
    sentences = [
        sentence
        for sentence in re.split(r"(?<=[.?!])\s+", text)
        if FORMULA not in sentence and not sentence.endswith(":")
    ]
    for sentence in sentences:
        longer = f"{whole} {sentence}".strip()
        if len(longer) > LENGTH:
            break
        whole = longer
    if whole or not sentences:
        return whole
    return sentences[0][: LENGTH - 1].rsplit(" ", 1)[0].rstrip(",;:") + "…"


def add_tags(
    app: Sphinx,
    pagename: str,
    templatename: str,
    context: dict[str, Any],
    doctree: nodes.document | None,
) -> None:
    """Hand the card and the sentence of one page to sphinxext-opengraph."""
    if doctree is None:
        return
    fields = dict(context.get("meta") or {})
    root = Path(app.srcdir)
    part = parts(root).get(pagename)
    title = re.sub(r"<[^>]*>", "", context["title"])
    if part is not None:
        target = Path(app.outdir) / FOLDER / f"{pagename.rpartition('/')[2]}.png"
        target.parent.mkdir(parents=True, exist_ok=True)
        with Image.open(root / "book" / "_static" / "card.png") as base:
            draw_card(base.convert("RGB"), part, title).save(target, optimize=True)
        fields["og:image"] = f"{FOLDER}/{target.name}"
        fields["og:image:alt"] = f"{title}. {part}. Robustness, Measured."
    fields["og:image:width"], fields["og:image:height"] = map(str, SIZE)
    tags = '<meta name="twitter:card" content="summary_large_image" />\n'
    description = describe(doctree) or f"{title} of the book Robustness, Measured."
    fields["og:description"] = escape(description, quote=False)
    tags += f'<meta name="description" content="{escape(description)}" />\n'
    context["meta"] = fields
    context["metatags"] = context.get("metatags", "") + tags


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the handler, before that of sphinxext-opengraph (priority 500)."""
    app.connect("html-page-context", add_tags, priority=400)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
