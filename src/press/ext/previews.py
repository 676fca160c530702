"""Show a theorem, an equation or a term when the pointer rests on a link to it.

A proof that says "by Lemma 3.2 and (4.1)" should not send its reader away. This
extension collects, from the pages as written, a copy of everything that some
internal link points at and that is worth a preview: theorem-like blocks, exercises,
equations, figures, tables, glossary terms, works cited, documented functions.
The copies go into one script, ``_static/previews-data.js``; ``previews.js`` loads
it at the first hover. A script, since pages opened from disk may not fetch data.
"""

from __future__ import annotations

import json
import posixpath
from pathlib import Path
from urllib.parse import unquote, urldefrag, urlsplit

from bs4 import BeautifulSoup, Tag
from sphinx.application import Sphinx

MAX_CHARACTERS = 6000
BLOCKS = ("proof", "exercise", "admonition", "math", "citation", "cell", "claim")


def write_previews(app: Sphinx, exception: Exception | None) -> None:
    """Collect the targets of internal links and write the script."""
    if exception is not None or app.builder.format != "html":
        return
    root = Path(app.outdir)
    pages = {
        app.builder.get_target_uri(docname): BeautifulSoup(
            (root / app.builder.get_target_uri(docname)).read_text(encoding="utf-8"),
            "html.parser",
        )
        for docname in sorted(app.env.found_docs)
        if (root / app.builder.get_target_uri(docname)).is_file()
    }
    previews: dict[str, str] = {}
    for address, page in pages.items():
        article = page.find("article")
        if article is None:
            continue
        for link in article.find_all("a", href=True):
            key = _resolve(address, link["href"])
            if key is None or key in previews:
                continue
            target_page, _, anchor = key.partition("#")
            if target_page in pages:
                html = _preview(pages[target_page], target_page, anchor)
                if html:
                    previews[key] = html
    script = "window.bookPreviews = " + json.dumps(
        dict(sorted(previews.items())), ensure_ascii=False, indent=0
    ).replace("</", "<\\/")
    (root / "_static" / "previews-data.js").write_text(script + ";\n", "utf-8")


def _resolve(address: str, href: str) -> str | None:
    """Return "page#anchor" of a link relative to the page at address."""
    if urlsplit(href).scheme or "#" not in href:
        return None
    path, anchor = urldefrag(href)
    if not anchor:
        return None
    page = posixpath.normpath(
        posixpath.join(posixpath.dirname(address), unquote(path)) if path else address
    )
    return f"{page}#{unquote(anchor)}"


def _preview(page: BeautifulSoup, address: str, anchor: str) -> str | None:
    """Return the HTML to show for one target, or None if it is not worth it."""
    target = page.find(id=anchor)
    if not isinstance(target, Tag):
        return None
    parts = _parts(target)
    if not parts:
        return None
    copies = [BeautifulSoup(str(part), "html.parser") for part in parts]
    for copy in copies:
        _clean(copy, address)
    html = "".join(str(copy) for copy in copies).strip()
    return html if len(html) <= MAX_CHARACTERS else None


def _parts(target: Tag) -> list[Tag]:
    """Return the elements that make up the preview of a target."""
    if target.name == "dt":
        explanation = target.find_next_sibling("dd")
        first = explanation.find("p", recursive=False) if explanation else None
        if target.find_parent("dl", class_="glossary"):
            return [target, explanation] if explanation else []
        return [target, first] if first else [target]
    if target.name == "span" and target.parent is not None:
        # An empty anchor in front of the block that it names.
        following = target.find_next_sibling()
        if not target.get_text(strip=True) and isinstance(following, Tag):
            return _parts(following) if following.name != "span" else []
        return []
    if target.name in ("figure", "table"):
        return [target]
    classes = set(target.get("class", []))
    if target.name == "div" and classes & set(BLOCKS):
        figure = target.find("figure")
        if "cell" in classes:
            return [figure] if figure else []
        return [target]
    return []


def _clean(copy: BeautifulSoup, address: str) -> None:
    """Drop identifiers and links' marks; make addresses relative to the root."""
    for mark in copy.find_all(class_=["headerlink", "viewcode-link", "copybtn"]):
        mark.decompose()
    for element in copy.find_all(True):
        element.attrs.pop("id", None)
        if element.name == "a":
            element.name = "span"
            element.attrs = {"class": element.get("class", [])}
        for attribute in ("src",):
            value = element.get(attribute)
            if value and not urlsplit(value).scheme:
                element[f"data-book-{attribute}"] = posixpath.normpath(
                    posixpath.join(posixpath.dirname(address), value)
                )
                del element[attribute]


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the collection, after every page has been written and linked."""
    app.connect("build-finished", write_previews, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
