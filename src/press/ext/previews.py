"""Show a theorem, an equation or a term when the pointer rests on a link to it.

Copies of what links point at go into ``_static/previews-data.js``, a script, since
pages opened from disk may not fetch data; ``previews.js`` loads it at the first hover.
"""

from __future__ import annotations

import copy
import gc
import json
import posixpath
from pathlib import Path
from urllib.parse import unquote, urldefrag, urlsplit

from bs4 import BeautifulSoup, Tag
from sphinx.application import Sphinx

MAX_CHARACTERS = 6000
BLOCKS = {"proof", "exercise", "admonition", "math", "citation", "cell", "claim"}


def write_previews(app: Sphinx, exception: Exception | None) -> None:
    """Collect the targets of internal links and write the script."""
    if exception is not None or app.builder.format != "html":
        return
    root = Path(app.outdir)
    addresses = [*map(app.builder.get_target_uri, sorted(app.env.found_docs))]
    script = root / "_static" / "previews-data.js"
    times = [path.stat().st_mtime for a in addresses if (path := root / a).is_file()]
    if script.is_file() and script.stat().st_mtime > max(times, default=0):
        return  # no page was written
    gc.disable()  # a collection would look through millions of elements each time
    links: set[str] = set()
    targets: dict[str, Tag] = {}
    for address in addresses:
        if not (root / address).is_file():
            continue
        _, _, html = (root / address).read_text(encoding="utf-8").partition("<article")
        article = BeautifulSoup(html.rpartition("</article>")[0], "html.parser")
        for link in article.find_all("a", href=True):
            if key := _resolve(address, link["href"]):
                links.add(key)
        for target in article.find_all(id=True):
            targets.setdefault(f"{address}#{target['id']}", target)
    previews = {
        key: html
        for key in sorted(links & targets.keys())
        if (html := preview(targets[key], key.partition("#")[0]))
    }
    gc.enable()
    data = json.dumps(previews, ensure_ascii=False, indent=0).replace("</", "<\\/")
    script.write_text(f"window.bookPreviews = {data};\n", "utf-8")


def _resolve(address: str, href: str) -> str | None:
    """Return "page#anchor" of a link relative to the page at address."""
    path, anchor = urldefrag(href)
    if urlsplit(href).scheme or not anchor:
        return None
    page = posixpath.normpath(
        posixpath.join(posixpath.dirname(address), unquote(path)) if path else address
    )
    return f"{page}#{unquote(anchor)}"


def preview(target: Tag, address: str) -> str | None:
    """Return the HTML to show for one target, or None if it is not worth it."""
    parts = [copy.copy(part) for part in _parts(target)]
    for part in parts:
        _clean(part, address)
    html = "".join(map(str, parts)).strip()
    return html if 0 < len(html) <= MAX_CHARACTERS else None


def _parts(target: Tag) -> list[Tag]:
    """Return the elements that make up the preview of a target."""
    following = _following(target)
    match target.name:
        case "dt":
            while following is not None and following.name == "dt":
                following = _following(following)
            if following is None or following.name != "dd":
                return [target]
            if target["id"].startswith("term-"):
                return [target, following]
            first = following.find("p", recursive=False)
            return [target, first] if isinstance(first, Tag) else [target]
        case "span":
            # An empty anchor in front of the block that it names.
            if target.get_text(strip=True) or not following or following.name == "span":
                return []
            return _parts(following)
        case "div":
            classes = set(target.get("class", []))
            if "cell" in classes:
                return target.find_all("figure", limit=1)
            return [target] if classes & BLOCKS else []
        case "figure" | "table":
            return [target]
    return []


def _following(element: Tag) -> Tag | None:
    """Return the element that stands next, if no text is between."""
    node = element.next_sibling
    while node is not None and not isinstance(node, Tag) and not node.strip():
        node = node.next_sibling
    return node if isinstance(node, Tag) else None


def _clean(part: Tag, address: str) -> None:
    """Drop identifiers and links' marks; make addresses relative to the root."""
    for mark in part.find_all(class_=["headerlink", "viewcode-link", "copybtn"]):
        mark.decompose()
    folder = posixpath.dirname(address)
    for element in [part, *part.find_all(True)]:
        element.attrs.pop("id", None)
        if element.name == "a":
            element.name = "span"
            element.attrs = {"class": element.get("class", [])}
        source = element.get("src")
        if source and not urlsplit(source).scheme:
            source = posixpath.normpath(posixpath.join(folder, source))
            element["data-book-src"] = source
            del element["src"]


def setup(app: Sphinx) -> None:
    """Register the collection, after every page has been written and linked."""
    app.connect("build-finished", write_previews, priority=900)
