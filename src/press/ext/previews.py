"""Show a theorem, an equation or a term when the pointer rests on a link to it.

Copies of what links point at go into ``_static/previews-data.js``, a script, since
pages opened from disk may not fetch data; ``previews.js`` loads it at the first hover.
Only what is shown is parsed: parsing all pages takes a minute.
"""

from __future__ import annotations

import json
import posixpath
import re
from functools import cached_property
from html import unescape
from pathlib import Path
from urllib.parse import unquote, urldefrag, urlsplit

from bs4 import BeautifulSoup, Tag
from sphinx.application import Sphinx

MAX_CHARACTERS = 6000
BLOCKS = {"proof", "exercise", "admonition", "math", "citation", "cell", "claim"}

_LINK = re.compile(r'<a\s(?:[^>]*?\s)?href="([^"]*#[^"]+)"')
_ANCHOR = re.compile(r'<([a-z]\w*)\s(?:[^>]*?\s)?id="([^"]+)"')
_OPENING = re.compile(r"\s*<([a-z]\w*)\b")


class Page:
    """The article of one page, as text."""

    def __init__(self, address: str, html: str) -> None:
        self.address = address
        _, _, rest = html.partition("<article")
        self.article = rest.rpartition("</article>")[0]

    @property
    def links(self) -> list[str]:
        """Where its internal links lead: "page#anchor"."""
        return [
            key
            for href in dict.fromkeys(_LINK.findall(self.article))
            if (key := _resolve(self.address, unescape(href)))
        ]

    @cached_property
    def anchors(self) -> dict[str, tuple[str, int]]:
        """The element of each identifier: its name and where it begins."""
        return {
            unescape(match[2]): (match[1], match.start())
            for match in reversed(list(_ANCHOR.finditer(self.article)))
        }

    def element(self, name: str, start: int) -> tuple[Tag, int]:
        """Parse the element of that name that begins there; say where it ends."""
        depth = 0
        for tag in re.compile(rf"<(/?){name}\b[^>]*>").finditer(self.article, start):
            depth += -1 if tag[1] else 1
            if depth == 0:
                break
        soup = BeautifulSoup(self.article[start : tag.end()], "html.parser")
        element = soup.find(True)
        assert isinstance(element, Tag)
        return element, tag.end()

    def following(self, end: int) -> tuple[str, int] | None:
        """The name and place of the element that stands next after some place."""
        opening = _OPENING.match(self.article, end)
        return (opening[1], opening.end() - len(opening[1]) - 1) if opening else None

    def preview(self, anchor: str) -> str | None:
        """Return the HTML to show for one target, or None if it is not worth it."""
        if anchor not in self.anchors:
            return None
        parts = self._parts(*self.anchors[anchor])
        for part in parts:
            _clean(part, self.address)
        html = "".join(map(str, parts)).strip()
        return html if 0 < len(html) <= MAX_CHARACTERS else None

    def _parts(self, name: str, start: int) -> list[Tag]:
        """Return the elements that make up the preview of a target."""
        if name not in ("dt", "span", "figure", "table", "div"):
            return []
        target, end = self.element(name, start)
        if name == "dt":
            following = self.following(end)
            while following is not None and following[0] == "dt":
                following = self.following(self.element(*following)[1])
            if following is None or following[0] != "dd":
                return [target]
            explanation, _ = self.element(*following)
            if str(target.get("id", "")).startswith("term-"):
                return [target, explanation]
            first = explanation.find("p", recursive=False)
            return [target, first] if isinstance(first, Tag) else [target]
        if name == "span":
            # An empty anchor in front of the block that it names.
            following = self.following(end)
            if target.get_text(strip=True) or not following or following[0] == "span":
                return []
            return self._parts(*following)
        if name == "div":
            classes = set(target.get("class", []))
            if "cell" in classes:
                return target.find_all("figure", limit=1)
            return [target] if classes & BLOCKS else []
        return [target]


def write_previews(app: Sphinx, exception: Exception | None) -> None:
    """Collect the targets of internal links and write the script."""
    if exception is not None or app.builder.format != "html":
        return
    root = Path(app.outdir)
    addresses = map(app.builder.get_target_uri, sorted(app.env.found_docs))
    pages = {
        address: Page(address, (root / address).read_text(encoding="utf-8"))
        for address in addresses
        if (root / address).is_file()
    }
    previews = {}
    for key in sorted({key for page in pages.values() for key in page.links}):
        address, _, anchor = key.partition("#")
        if address in pages and (html := pages[address].preview(anchor)):
            previews[key] = html
    data = json.dumps(previews, ensure_ascii=False, indent=0).replace("</", "<\\/")
    script = f"window.bookPreviews = {data};\n"
    (root / "_static" / "previews-data.js").write_text(script, "utf-8")


def _resolve(address: str, href: str) -> str | None:
    """Return "page#anchor" of a link relative to the page at address."""
    path, anchor = urldefrag(href)
    if urlsplit(href).scheme or not anchor:
        return None
    page = posixpath.normpath(
        posixpath.join(posixpath.dirname(address), unquote(path)) if path else address
    )
    return f"{page}#{unquote(anchor)}"


def _clean(copy: Tag, address: str) -> None:
    """Drop identifiers and links' marks; make addresses relative to the root."""
    for mark in copy.find_all(class_=["headerlink", "viewcode-link", "copybtn"]):
        mark.decompose()
    for element in [copy, *copy.find_all(True)]:
        element.attrs.pop("id", None)
        if element.name == "a":
            element.name = "span"
            element.attrs = {"class": element.get("class", [])}
        source = element.get("src")
        if source and not urlsplit(source).scheme:
            folder = posixpath.dirname(address)
            element["data-book-src"] = posixpath.normpath(
                posixpath.join(folder, source)
            )
            del element["src"]


def setup(app: Sphinx) -> None:
    """Register the collection, after every page has been written and linked."""
    app.connect("build-finished", write_previews, priority=900)
