"""The whole book as one PDF: Chromium prints the pages of the built site.

The pieces become one file with an outline, a title page, contents and page numbers
that run through. A link to another page of the book becomes a link inside the file.
"""

from __future__ import annotations

import io
import itertools
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urldefrag

import matplotlib
import yaml
from jinja2 import Environment
from pypdf import PdfReader, PdfWriter
from pypdf.generic import Destination, Fit, NameObject, TextStringObject
from tqdm import tqdm

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

# Templates of the title page, the contents and the first pages of parts.
_HTML: Any = (
    Environment(autoescape=True, trim_blocks=True)
    .from_string(Path(__file__).with_suffix(".jinja").read_text(encoding="utf-8"))
    .module
)


@dataclass(frozen=True)
class Leaf:
    """A page of the book: where it is in the site, and how deep in the contents."""

    address: str
    depth: int = 0


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


@dataclass
class _Piece:
    """The pages that one print makes, and their anchors."""

    address: str
    pdf: PdfReader
    headings: list[dict[str, Any]] = field(default_factory=list)
    moved: dict[str, str] = field(default_factory=dict)

    @property
    def title(self) -> str:
        return self.headings[0]["text"] if self.headings else self.address


#: An entry of the outline and of the contents: level, text, page, address#name.
_Mark = tuple[int, str, int, str]
#: The number of a page of the file, from 0, and how high on it.
_Place = tuple[int, float]


class _Press:
    """A browser tab that prints pages of one site."""

    def __init__(self, tab: Tab, site: Path) -> None:
        self.tab, self.site = tab, site
        # Faces that come with matplotlib: the file looks the same wherever it is made.
        faces = Path(matplotlib.get_data_path(), "fonts", "ttf").as_uri()
        self.type = TYPE.replace("FACES", faces)
        tab.set_viewport_size({"width": TEXT_WIDTH, "height": 900})
        tab.emulate_media(media="print", color_scheme="light")

    def page(self, address: str, first: int) -> _Piece:
        """Print a page of the site, numbered from ``first`` on."""
        self.tab.goto((self.site / address).as_uri(), wait_until="load")
        self.tab.add_style_tag(content=self.type)
        prepared = self.tab.evaluate(PREPARE)
        headings = prepared["headings"]
        head = headings[0]["text"] if headings else ""
        return _Piece(address, self._print(first, head), headings, prepared["moved"])

    def print_html(self, body: str, first: int, *, numbered: bool = True) -> _Piece:
        """Print HTML that is no page of the site, numbered from ``first`` on."""
        # From a page of the site, as its links and pictures are on the disk.
        self.tab.goto((self.site / "book/intro.html").as_uri(), wait_until="commit")
        self.tab.set_content(
            f"<!doctype html><html lang='en'><body class='book'>{body}</body></html>"
        )
        self.tab.add_style_tag(
            content=f"@page {{ size: A4; margin: 21mm 20mm 22mm; }}\n{self.type}"
        )
        self.tab.evaluate(PREPARE)
        return _Piece("", self._print(first, "", numbered=numbered))

    def _print(self, first: int, head: str, *, numbered: bool = True) -> PdfReader:
        box = "font: 9pt 'Book Serif', serif; color: #4a5361;"
        quoted = re.sub(r"[\"\\\n]", "", head)
        number = "counter(page)" if numbered else "none"
        # A page counts itself before it shows its number.
        self.tab.add_style_tag(
            content=f"html {{ counter-reset: page {first - 1}; }}"
            f'@page {{ @top-left {{ content: "{quoted}"; {box} }}'
            f" @bottom-center {{ content: {number}; {box} }} }}"
            "@page :first { @top-left { content: none; } }"
        )
        printed = self.tab.pdf(prefer_css_page_size=True, print_background=True)
        return PdfReader(io.BytesIO(printed))


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
    with _tab() as tab:
        pieces, marks = _print_all(_Press(tab, site), parts, config)
    address = config["html"]["baseurl"]
    book = _bind(pieces, marks, site, address)
    about = {"Title": config["title"], "Author": config["author"], "Subject": address}
    book.add_metadata({f"/{key}": value for key, value in about.items()})
    book.root_object[NameObject("/Lang")] = TextStringObject("en")
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


def _print_all(
    press: _Press, parts: Sequence[Part], config: Mapping[str, Any]
) -> tuple[list[_Piece], list[_Mark]]:
    """Print the pages, then what stands before them, which names their numbers."""
    logo = (press.site / "_static" / "logo.svg").as_uri()
    cover = _HTML.title(config, logo, package_version())
    title = press.print_html(cover, 1, numbered=False)
    # As long as it will be: the numbers come later.
    draft: list[_Mark] = []
    for part in parts:
        draft += [(0, part.caption, 999, "")] if part.caption else []
        draft += [(leaf.depth, "Some title", 999, "#") for leaf in part.leaves]
    length = len(press.print_html(_HTML.contents(draft, press.site), 1).pdf.pages)
    number = 1 + len(title.pdf.pages) + length
    pieces: list[_Piece] = []
    marks: list[_Mark] = []
    leaves = sum(len(part.leaves) for part in parts)
    with tqdm(total=leaves, unit="page", disable=None) as bar:
        for part in parts:
            if part.caption:
                which, _, name = part.caption.rpartition(" · ")
                page = _HTML.part(which, name)
                pieces.append(press.print_html(page, number, numbered=False))
                marks.append((0, part.caption, number, ""))
                number += len(pieces[-1].pdf.pages)
            for leaf in part.leaves:
                piece = press.page(leaf.address, number)
                pieces.append(piece)
                level = leaf.depth + (1 if part.caption else 0)
                marks.append((level, piece.title, number, leaf.address))
                marks += [
                    (level + 1, heading["text"], 0, f"{leaf.address}#{heading['name']}")
                    for heading in piece.headings
                    if heading["level"] == 2
                ]
                number += len(piece.pdf.pages)
                bar.update()
    contents = press.print_html(
        _HTML.contents([mark for mark in marks if mark[2]], press.site),
        1 + len(title.pdf.pages),
    )
    if len(contents.pdf.pages) != length:
        raise BookError(
            f"the contents take {len(contents.pdf.pages)} pages where {length} were "
            "kept free: shorten a title that runs over two lines"
        )
    return [title, contents, *pieces], marks


def _bind(
    pieces: Sequence[_Piece], marks: Sequence[_Mark], site: Path, address: str
) -> PdfWriter:
    """Put the pieces into one file, in which links lead to its own pages."""
    writer = PdfWriter()
    places: dict[str, _Place] = {}
    for piece in pieces:
        places |= _places(piece, len(writer.pages))
        for page in piece.pdf.pages:
            writer.add_page(page)
    pages = iter(writer.pages)
    root = site.as_uri() + "/"
    for piece in pieces:
        for page in itertools.islice(pages, len(piece.pdf.pages)):
            for annotation in page.get("/Annots", ()):
                link: Any = annotation.get_object()
                uri = _target(link, root + piece.address)
                if not uri.startswith(root):
                    continue
                target = unquote(uri.removeprefix(root))
                place = places.get(target, places.get(urldefrag(target)[0]))
                if place is None:  # no page of the book, so one of the site
                    uri = address + uri.removeprefix(root)
                    link["/A"][NameObject("/URI")] = TextStringObject(uri)
                    continue
                link.pop("/A", None)
                page_of: Any = writer.pages[place[0]].indirect_reference
                fit = Fit.xyz(left=0, top=place[1])
                link[NameObject("/Dest")] = Destination("", page_of, fit).dest_array
    _outline(writer, marks, places)
    return writer


def _places(piece: _Piece, start: int) -> dict[str, _Place]:
    """Say where a page of the book, and each named place on it, lies in the file."""
    if not piece.address:
        return {}
    places = {piece.address: (start, float(piece.pdf.pages[0].mediabox.height))}
    for name, place in piece.pdf.named_destinations.items():
        number = piece.pdf.get_destination_page_number(place)
        if number is not None and place.top is not None:
            anchor = unquote(str(name).removeprefix("/"))
            places[f"{piece.address}#{anchor}"] = (start + number, float(place.top))
    for anchor, heading in piece.moved.items():
        better = places.get(f"{piece.address}#{heading}")
        if anchor and better is not None:
            places[f"{piece.address}#{anchor}"] = better
    return places


def _target(link: Any, page: str) -> str:
    """The address on the disk that a link leads to, if it leads to one."""
    if "/Dest" in link:
        return f"{page}#{str(link['/Dest']).removeprefix('/')}"
    return str(link.get("/A", {}).get("/URI", ""))


def _outline(
    writer: PdfWriter, marks: Sequence[_Mark], places: Mapping[str, _Place]
) -> None:
    above: list[Any] = []
    for level, text, page, address in marks:
        number, top = places.get(address, (page - 1, None))
        del above[level:]
        above.append(
            writer.add_outline_item(
                title=text,
                page_number=number,
                parent=above[-1] if above else None,
                fit=Fit.xyz(left=0, top=top),
                is_open=level == 0,
            )
        )
    writer.page_mode = "/UseOutlines"
