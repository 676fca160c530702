"""The book as a PDF: a few of its pages, printed and read again."""

import re
import unicodedata
from concurrent.futures import ThreadPoolExecutor

import pytest
import yaml

from press.ext.frame import PDF
from press.layout import BookError
from press.pdf import (
    PREPARE,
    TEXT_WIDTH,
    print_book,
    read_contents,
)

from .conftest import CONFIG, ROOT, TOC, documents, in_browser, require

CHAPTERS = [
    "book/chapters/05_the_agreement_kernel.html",
    "book/chapters/08_hard_decisions.html",
]
PAGES = [*CHAPTERS, "book/bibliography.html"]


def test_the_contents_are_those_of_the_site():
    parts = read_contents(ROOT)
    addresses = [leaf.address for part in parts for leaf in part.leaves]
    assert addresses == [f"{name}.html" for name in documents(TOC)]
    captions = [part.caption for part in parts]
    assert captions == ["", *(part["caption"] for part in TOC["parts"])]
    assert any(leaf.depth == 1 for leaf in parts[-1].leaves)


def test_a_site_that_is_not_built_is_said(tmp_path):
    with pytest.raises(BookError, match=r"intro\.html is not built.*make site"):
        print_book(ROOT, site=tmp_path)


@pytest.fixture(scope="module")
def book(browser, site, tmp_path_factory):
    """Return the PDF of two chapters and the bibliography, read again."""
    for name in ("playwright", "pypdf"):
        require(name)
    import pypdf

    output = tmp_path_factory.mktemp("pdf") / "book.pdf"
    # In a thread of its own: the other tests' browser runs in this one.
    with ThreadPoolExecutor(1) as pool:
        pool.submit(
            print_book, ROOT, site=site.root, output=output, only=PAGES
        ).result()
    return pypdf.PdfReader(output)


@pytest.fixture(scope="module")
def shown(book):
    """Return the text of each page, its ligatures taken apart."""
    found = [" ".join(page.extract_text().split()) for page in book.pages]
    return [unicodedata.normalize("NFKC", text) for text in found]


@in_browser
def test_title_contents_and_numbers(book, shown):
    assert "Robustness, Measured" in shown[0]
    assert "Contents" in shown[1]
    assert book.metadata.title == CONFIG["title"]
    assert book.root_object["/Lang"] == CONFIG["sphinx"]["config"]["language"]
    assert {tuple(map(float, page.mediabox[2:])) for page in book.pages} == {
        tuple(map(float, book.pages[0].mediabox[2:]))
    }
    outline = {item.title: item for item in flat(book.outline)}
    for title in ("5. The agreement kernel", "Bibliography"):
        page = book.get_destination_page_number(outline[title])
        assert title in shown[page]
        # The number in the contents, and on the page itself.
        assert re.search(rf"{re.escape(title)} {page + 1}\b", shown[1])
        assert re.search(rf"\b{page + 1}\b", shown[page])


def flat(outline):
    return [
        leaf
        for item in outline
        for leaf in (flat(item) if isinstance(item, list) else [item])
    ]


@in_browser
def test_the_outline_has_parts_chapters_and_sections(book, shown):
    part, chapters, appendix, rest = book.outline
    assert part.title.startswith("Part I ")
    assert appendix.title == "Appendix"
    assert [item.title for item in rest if not isinstance(item, list)] == [
        "Bibliography"
    ]
    names = [item.title for item in chapters if not isinstance(item, list)]
    assert [name.split(".")[0] for name in names] == ["5", "8"]
    sections = chapters[1]
    assert sections[0].title.startswith("5.1. ")
    for item in sections:
        assert item.title in shown[book.get_destination_page_number(item)]


@in_browser
def test_links_lead_into_the_file_or_to_the_site(book):
    numbers = {page.indirect_reference.idnum: n for n, page in enumerate(book.pages)}
    inside, outside = [], []
    for number, page in enumerate(book.pages):
        for reference in page.get("/Annots", ()):
            link = reference.get_object()
            if "/Dest" in link:
                place = link["/Dest"]
                assert place[1] == "/XYZ"
                inside.append((number, numbers[place[0].idnum]))
            else:
                outside.append(link["/A"]["/URI"])
    assert [uri for uri in outside if not uri.startswith(("http", "mailto"))] == []
    base = CONFIG["html"]["baseurl"]
    assert any(uri.startswith(f"{base}book/chapters/") for uri in outside)
    # The last that the contents lead to; it may be longer than a page.
    bibliography = max(target for source, target in inside if source == 1)
    assert any(target >= bibliography for source, target in inside if source > 2)
    assert len({target for source, target in inside if source == 1}) == len(PAGES)


@in_browser
def test_solutions_are_open_and_buttons_gone(shown, site):
    text = " ".join(shown)
    plain = re.sub(r"\W+", "", text)
    for address in CHAPTERS:
        for block in site.pages[address].soup.select("div.solution.dropdown"):
            first = block.select_one("section p")
            for formula in first.select(".math"):
                formula.decompose()
            words = re.findall(r"[A-Za-z]{4,}", first.get_text(" "))
            if len(words) > 2:
                assert words[0] in plain, address
                assert all(word in plain for word in words), words
    for button in ("Show the source", "Skip to main content", "Back to top", "Ctrl"):
        assert button not in text


@in_browser
def test_nothing_is_wider_than_the_paper(browser, site):
    """Formulas, tables, code and figures of the widest kinds."""
    wide = max(site.chapters, key=lambda page: len(page.soup.select("article table")))
    context = browser.new_context(viewport={"width": TEXT_WIDTH, "height": 900})
    tab = context.new_page()
    tab.emulate_media(media="print", color_scheme="light")
    for address in (wide.address, CHAPTERS[0], "book/data.html"):
        tab.goto((site.root / address).as_uri(), wait_until="load")
        tab.evaluate(PREPARE)
        beyond = tab.evaluate(
            """(width) => [...document.querySelectorAll(
                 "article :is(svg, img, table, td, pre, p, code)")]
               .filter((e) => !e.closest("mjx-assistive-mml"))
               .filter((e) => e.getBoundingClientRect().right > width + 2)
               .map((e) => e.outerHTML.slice(0, 120))""",
            TEXT_WIDTH,
        )
        assert beyond == [], address
    context.close()


def test_the_workflow_puts_the_pdf_where_the_pages_link_to_it():
    text = (ROOT / ".github" / "workflows" / "pages.yml").read_text(encoding="utf-8")
    steps = yaml.safe_load(text)["jobs"]["build"]["steps"]
    build = next(step for step in steps if step.get("run") == "make pdf")
    assert build["env"]["ROBUSTBOOK_PDF"] == "1"
    assert any(step.get("run") == f"mv _build/{PDF} _build/html/" for step in steps)
