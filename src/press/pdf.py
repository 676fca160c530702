"""The whole book as one PDF: Chromium prints the pages of the built site, joined.

Joined to one page, they get links, an outline and the tags that a screen reader needs
from Chromium. It is printed twice: the first time tells the numbers in the contents.
"""

from __future__ import annotations

import io
import os
import posixpath
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urldefrag, urlsplit

import matplotlib
import yaml
from bs4 import BeautifulSoup
from jinja2 import Environment
from pypdf import PdfReader, PdfWriter
from pypdf.generic import NameObject, TextStringObject

from press.layout import BookError, package_version
from press.source import check_writable, write_whole

if TYPE_CHECKING:
    from playwright.sync_api import Page as Tab

#: What the programs are called that can print.
CHROMIUM = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")

#: The width of the text on A4 in CSS pixels: 210 mm less two margins of 20 mm.
TEXT_WIDTH = 642

#: What is done to a page before it is printed, and how it looks.
PREPARE = Path(__file__).with_suffix(".js").read_text(encoding="utf-8")
TYPE = Path(__file__).with_suffix(".css").read_text(encoding="utf-8")

# What is printed beside the pages.
_HTML: Any = (
    Environment(autoescape=True, trim_blocks=True)
    .from_string(Path(__file__).with_suffix(".jinja").read_text(encoding="utf-8"))
    .module
)
# What names an identifier of the same page.
_NAMING = ("id", "name", "for", "aria-labelledby", "aria-describedby", "aria-controls")


@dataclass(frozen=True)
class Leaf:
    """A page of the book: where it is in the site, and how deep in the contents."""

    address: str
    depth: int = 0

    @property
    def anchor(self) -> str:
        """What names the page in the joined one."""
        return re.sub(r"\W+", "-", self.address.removesuffix(".html"))


@dataclass(frozen=True)
class Part:
    """A part of the book: what it is called, nothing for the preface, its pages."""

    caption: str
    leaves: tuple[Leaf, ...]


def read_contents(root: Path) -> list[Part]:
    """Return the parts of the book in ``root``, the preface first, by ``_toc.yml``."""
    toc = yaml.safe_load((root / "_toc.yml").read_text(encoding="utf-8"))
    parts = [Part("", (Leaf(f"{toc['root']}.html"),))]
    for part in toc["parts"]:
        leaves = tuple(_leaves(part["chapters"], 0))
        parts.append(Part(part["caption"], leaves))
    return parts


def _leaves(entries: Sequence[Mapping[str, Any]], depth: int) -> Iterator[Leaf]:
    for entry in entries:
        yield Leaf(f"{entry['file']}.html", depth)
        yield from _leaves(entry.get("sections", ()), depth + 1)


def find_chromium() -> str | None:
    """Return the program: ``ROBUSTBOOK_CHROMIUM``, else what is on the path."""
    named = os.environ.get("ROBUSTBOOK_CHROMIUM")
    return named or next(filter(None, map(shutil.which, CHROMIUM)), None)


def print_book(
    root: Path,
    *,
    site: Path | None = None,
    output: Path | None = None,
    only: Sequence[str] | None = None,
) -> Path:
    """Print the built site of the book into one PDF; return where it is.

    ``only`` are the addresses of the pages to print, all if left out.
    """
    site = (site or root / "_build" / "html").resolve()
    output = output or root / "_build" / "robustness-measured.pdf"
    parts = [
        Part(part.caption, leaves)
        for part in read_contents(root)
        if (leaves := tuple(x for x in part.leaves if not only or x.address in only))
    ]
    for address in (leaf.address for part in parts for leaf in part.leaves):
        if not (site / address).is_file():
            raise BookError(
                f"{address} is not built: expected it in {site}; run `make site` first"
            )
    check_writable(output)
    config = yaml.safe_load((root / "_config.yml").read_text(encoding="utf-8"))
    first_page = parts[0].leaves[0].address
    with _tab() as tab:
        tab.set_viewport_size({"width": TEXT_WIDTH, "height": 900})
        tab.emulate_media(media="print", color_scheme="light")
        # Pictures on the disk are shown to a page that is there.
        tab.goto((site / first_page).as_uri(), wait_until="commit")
        tab.set_content(join(parts, site, config), wait_until="load", timeout=0)
        tab.set_default_timeout(0)
        titles = tab.evaluate(PREPARE)
        tab.evaluate(_NUMBER, _page_numbers(PdfReader(io.BytesIO(_print(tab)))))
        book = PdfWriter(clone_from=PdfReader(io.BytesIO(_print(tab))))
    address = config["html"]["baseurl"]
    about = {"Title": config["title"], "Author": config["author"], "Subject": address}
    book.add_metadata({f"/{key}": value for key, value in about.items()})
    book.page_mode = "/UseOutlines"
    # Chromium writes a title twice that stands at the top of a page.
    for item, title in zip(
        _outline(book.root_object["/Outlines"]), titles, strict=True
    ):
        item[NameObject("/Title")] = TextStringObject(title)
    content = io.BytesIO()
    book.write(content)
    write_whole(output, content.getvalue())
    return output


@contextmanager
def _tab() -> Iterator[Tab]:
    from playwright.sync_api import sync_playwright

    program = find_chromium()
    if program is None:
        raise BookError(
            f"no Chromium found: expected one of {', '.join(CHROMIUM)} on the path; "
            "install one, or name it in ROBUSTBOOK_CHROMIUM"
        )
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=program,
            args=["--no-sandbox", "--disable-gpu", "--allow-file-access-from-files"],
        )
        yield browser.new_page()
        browser.close()


_NUMBER = """
(numbers) => {
  for (const place of document.querySelectorAll("[data-page-of]"))
    place.textContent = numbers[place.dataset.pageOf] ?? "";
}
"""


def _print(tab: Tab) -> bytes:
    return tab.pdf(
        prefer_css_page_size=True, print_background=True, outline=True, tagged=True
    )


def _outline(item: Any) -> Iterator[Any]:
    """Yield what stands below an item of the outline, in order."""
    below = item.get_object().get("/First")
    while below is not None:
        yield below.get_object()
        yield from _outline(below)
        below = below.get_object().get("/Next")


def _page_numbers(book: PdfReader) -> dict[str, int]:
    """Say on which page each named place is."""
    numbers = {}
    for name, place in book.named_destinations.items():
        number = book.get_destination_page_number(place)
        if number is not None:
            numbers[unquote(str(name).removeprefix("/"))] = number + 1
    return numbers


def join(parts: Sequence[Part], site: Path, config: Mapping[str, Any]) -> str:
    """Return the pages of a site as one, behind a title, with contents and parts."""
    leaves = {leaf.address: leaf for part in parts for leaf in part.leaves}
    # Faces that come with matplotlib: the file looks the same wherever it is made.
    faces = Path(matplotlib.get_data_path(), "fonts", "ttf").as_uri()
    styles = [TYPE.replace("FACES", faces)]
    frame, entries, articles = None, [], []
    for part in parts:
        if part.caption:
            entries.append((0, part.caption, ""))
            articles.append(BeautifulSoup(_HTML.part(part.caption), "html.parser"))
        for leaf in part.leaves:
            page = _joinable(leaf, leaves, site, config["html"]["baseurl"])
            frame = frame or page
            article: Any = page.find("article")
            for mark in article.find_all(class_="headerlink"):
                mark.decompose()
            title = " ".join(article.find("h1").get_text().split())
            entries.append((leaf.depth + 1, title, leaf.anchor))
            levels = leaf.depth + bool(part.caption)
            for head in article.find_all(re.compile("^h[1-5]$")):
                head["aria-level"] = int(head.name[1]) + levels
            article["id"] = leaf.anchor
            article["style"] = f"page: {leaf.anchor}; break-before: page;"
            head = title.replace("\\", "").replace('"', "")
            styles.append(
                f'@page {leaf.anchor} {{ @top-left {{ content: "{head}"; }} }}'
            )
            articles.append(article.extract())
    assert frame is not None
    style = frame.new_tag("style")
    style.string = "\n".join(styles)
    frame.head.append(style)
    frame.title.string = config["title"]
    logo = (site / "_static" / "logo.svg").as_uri()
    front = _HTML.title(config, logo, package_version()) + _HTML.contents(entries)
    frame.body.clear()
    place = frame.body
    for name in ("bd-main", "bd-content", "bd-article-container"):
        place.append(inner := frame.new_tag("div", attrs={"class": name}))
        place = inner
    for article in (BeautifulSoup(front, "html.parser"), *articles):
        place.append(article)
    return f"<!doctype html>{frame.html}"


def _joinable(leaf: Leaf, leaves: Mapping[str, Leaf], site: Path, base: str) -> Any:
    """Read a page, and let all that it names be found from the joined one."""
    page = BeautifulSoup((site / leaf.address).read_text("utf-8"), "html.parser")
    folder = posixpath.dirname(leaf.address)

    def local(address: str) -> str:
        path = unquote(urlsplit(address).path)
        return posixpath.normpath(posixpath.join(folder, path))

    for element in page.find_all(True):
        for attribute in _NAMING:
            name = element.get(attribute)
            # A figure to play with has a name of its own, which its script knows.
            if name and element.name != "meta" and "interactive" not in name:
                element[attribute] = f"{leaf.anchor}.{name}"
        for attribute in ("src", "href"):
            address: Any = element.get(attribute)
            if address is None or urlsplit(address).scheme:
                continue
            path, anchor = urldefrag(address)
            if element.name != "a":
                element[attribute] = (site / local(path)).as_uri()
                continue
            target = local(path) if path else leaf.address
            if target not in leaves:  # no page of the book, so one of the site
                element[attribute] = base + target + ("#" + anchor if anchor else "")
                continue
            place = leaves[target].anchor + (f".{unquote(anchor)}" if anchor else "")
            element[attribute] = f"#{place}"
    return page
