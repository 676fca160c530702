"""What can be seen in the pages' HTML, without a browser."""

import gzip
import json
import re
from collections import Counter, defaultdict
from itertools import pairwise
from urllib.parse import urlsplit

import nbformat
import pytest

from press.pairs import revision

from .conftest import CONFIG, REPOSITORY, ROOT

# What a browser loads to show a page: (element, attribute).
SOURCES = ("script", "img", "iframe", "source", "video", "audio", "embed")
LOADS = [
    *((name, "src") for name in SOURCES),
    *(("img", "srcset"), ("object", "data"), ("image", "href"), ("use", "href")),
]
LOADING_LINKS = {"stylesheet", "icon", "preload", "prefetch", "preconnect", "manifest"}


def is_external(address):
    return urlsplit(address).scheme not in ("", "data") or address.startswith("//")


@pytest.fixture(scope="module")
def loads(site):
    """What a browser loads to show each page, as it is written there."""
    written = {}
    for page in site.pages.values():
        elements = page.soup.find_all({name for name, _ in LOADS})
        written[page.address] = {
            element[attribute]
            for element in elements
            for name, attribute in LOADS
            if element.name == name and element.get(attribute)
        }
        for link in page.soup.find_all("link", href=True):
            if LOADING_LINKS & set(link.get("rel", [])):
                written[page.address].add(link["href"])
    return written


def test_the_site_is_built_strictly(build):
    assert build[1] == ""


def test_every_internal_link_and_anchor_resolves(site):
    broken = []
    for page in site.pages.values():
        for link in page.soup.find_all("a", href=True):
            href = link["href"]
            if is_external(href) or href == "#":
                continue
            target, anchor = page.target(href)
            if target in site.pages:
                if anchor and anchor not in site.pages[target].anchors:
                    broken.append((page.address, href, "no such anchor"))
            elif not (site.root / target).is_file():
                broken.append((page.address, href, "no such file"))
    assert broken == []


def test_alternative_text_of_a_figure_is_a_sentence(site):
    short = [
        (page.address, image.get("alt", ""))
        for page in site.content
        for image in page.soup.select("article img")
        if len(image.get("alt", "").split()) < 4
    ]
    assert short == []


def test_every_page_has_a_title_and_one_main_heading(site):
    for page in site.content:
        title = page.soup.title.get_text(strip=True)
        headings = page.soup.select("article h1")
        assert len(headings) == 1, (page.address, headings)
        assert title.endswith("Robustness, Measured"), (page.address, title)
        assert len(title) > len("Robustness, Measured"), page.address


def test_headings_skip_no_level(site):
    jumps = []
    for page in site.content:
        levels = [
            int(heading.name[1])
            for heading in page.soup.select("article :is(h1, h2, h3, h4, h5, h6)")
        ]
        for before, after in pairwise(levels):
            if after > before + 1:
                jumps.append((page.address, before, after))
    assert jumps == []


def test_launch_buttons_open_the_source_notebook(site):
    assert len(site.chapters) >= 8
    for page in site.chapters:
        links = [
            link["href"] for link in page.soup.select(".dropdown-launch-buttons a")
        ]
        notebook = f"notebooks/{page.name}.ipynb"
        assert len(links) == 2, page.address
        assert any(link.startswith("https://mybinder.org/") for link in links)
        assert any(link.startswith("https://colab.research.google.") for link in links)
        assert all(link.endswith(notebook) for link in links), links
        # The notebook and the package that it installs are of one release.
        release = revision(CONFIG["repository"]["branch"])
        assert all(f"/{release}/" in link or f"/{release}?" in link for link in links)
        assert (ROOT / notebook).is_file()


def test_edit_button_opens_the_edited_form(site):
    for page in site.content:
        link = page.soup.select_one("a.btn-source-edit-button")
        name = page.address.removesuffix(".html")
        source = f"notebooks/{page.name}.md" if page.is_chapter else f"{name}.md"
        assert link is not None, page.address
        assert link["href"] == f"{REPOSITORY}/edit/main/{source}"
        generated = source == "book/status.md"
        assert generated or (ROOT / source).is_file(), source


def test_chapters_can_be_downloaded(site):
    for page in site.chapters:
        for suffix in ("ipynb", "md"):
            link = page.soup.select_one(f"a.btn-download-{suffix}-button")
            assert link is not None, (page.address, suffix)
            path, _ = page.target(link["href"])
            source = ROOT / "notebooks" / f"{page.name}.{suffix}"
            assert (site.root / path).read_bytes() == source.read_bytes()
        link = page.soup.select_one("a.btn-download-executed-button")
        assert link is not None, page.address
        path, _ = page.target(link["href"])
        executed, notebook = (
            nbformat.read(file, as_version=4)
            for file in (site.root / path, ROOT / "notebooks" / f"{page.name}.ipynb")
        )
        assert any(cell.get("outputs") for cell in executed.cells)
        assert [
            cell.source.split("\n\n# Executed with:")[0] for cell in executed.cells
        ] == [cell.source for cell in notebook.cells]


def test_old_addresses_lead_to_the_new_pages(site):
    redirects = CONFIG["sphinx"]["config"]["redirects"]
    for old, new in redirects.items():
        assert not (ROOT / f"{old}.ipynb").exists()
        page = site.root / f"{old}.html"
        assert f'content="0; url={new}"' in page.read_text("utf-8")
        assert (page.parent / new).is_file(), new


def test_each_page_has_a_social_card_and_each_chapter_one_of_its_own(site):
    from PIL import Image

    base = CONFIG["html"]["baseurl"]
    cards = []
    for page in site.content:
        (image,) = page.meta(property="og:image")
        assert image.startswith(base), page.address
        assert page.meta(property="og:url") == [base + page.address]
        path = site.root / image.removeprefix(base)
        assert path.is_file()
        if page.is_chapter:
            cards.append(path.read_bytes())
            with Image.open(path) as card:
                (width,) = page.meta(property="og:image:width")
                assert card.size == (int(width), 600)
            (alt,) = page.meta(property="og:image:alt")
            assert [alt] == page.meta(property="og:description")
    assert len(set(cards)) == len(cards)
    assert sum(map(len, cards)) < 90_000 * len(cards)


def test_each_page_describes_itself(site):
    pages = defaultdict(list)
    for page in site.content:
        (text,) = page.meta(name="description")
        assert 20 <= len(text) <= 205, (page.address, text)
        assert not re.search(r"[<>$\\]", text), (page.address, text)
        assert page.meta(property="og:description") == [text], page.address
        (title,) = page.meta(property="og:title")
        assert title in page.soup.select_one("article h1").get_text(), page.address
        pages[text].append(page.address)
    assert {text: same for text, same in pages.items() if len(same) > 1} == {}


def test_a_page_weighs_less_than_a_megabyte_and_a_half(site, loads):
    """Its text and pictures; the theme and MathJax, a browser loads once for all."""
    loaded = {}
    for page in site.content:
        local = {
            page.target(file)[0] for file in loads[page.address] if "data:" not in file
        }
        loaded[page.address] = {file for file in local if (site.root / file).is_file()}
    # The largest script, which the page of results alone needs.
    assert not any("searchindex.js" in files for files in loaded.values())
    times = Counter(path for files in loaded.values() for path in files)
    common = {path for path in times if path.startswith("_static/") and times[path] > 1}
    weights = {
        address: sum((site.root / path).stat().st_size for path in files - common)
        + (site.root / address).stat().st_size
        for address, files in loaded.items()
    }
    assert {a: w for a, w in weights.items() if w > 1_500_000} == {}
    # Most of it is MathJax and the icons; compressed, as it is served, a third.
    contents = [(site.root / path).read_bytes() for path in common]
    assert sum(map(len, contents)) < 5_000_000
    assert sum(len(gzip.compress(data)) for data in contents) < 1_700_000
    # Loaded when the pointer first rests on a link, and by the search.
    for later in ("_static/previews-data.js", "searchindex.js"):
        data = (site.root / later).read_bytes()
        assert len(gzip.compress(data)) < 400_000, later


def test_each_page_says_how_to_cite(site):
    for page in site.pages.values():
        if page.address == "index.html":
            continue
        link = page.soup.select_one(".reader-links a[href$='CITATION.cff']")
        assert link is not None, page.address
        target, _ = page.target(link["href"])
        copy = (site.root / target).read_bytes()
        assert copy == (ROOT / "CITATION.cff").read_bytes()


def test_theorems_are_numbered_once(site):
    for chapter, page in enumerate(site.chapters, start=1):
        blocks = page.soup.select("article div.proof > p.admonition-title")
        numbers = [
            match.group()
            for block in blocks
            if (match := re.search(r"\d+\.\d+", block.get_text()))
        ]
        expected = [f"{chapter}.{n}" for n in range(1, len(numbers) + 1)]
        assert numbers == expected, page.address


def test_code_cells_link_to_the_package(site):
    linked = [
        link["href"]
        for page in site.chapters
        for link in page.soup.select("a.sphinx-codeautolink-a")
        if "/api/" in link["href"]
    ]
    assert any("posterior_agreement" in href for href in linked)


def test_previews_cover_theorems_equations_terms_and_works(site):
    text = (site.root / "_static" / "previews-data.js").read_text(encoding="utf-8")
    body = text.removeprefix("window.bookPreviews = ").rstrip().removesuffix(";")
    previews = json.loads(body)
    for part in ("#thm-", "#def-", "#equation-eq-", "#term-", "bibliography.html#"):
        assert any(part in key for key in previews), part
    for key in previews:
        page, _, anchor = key.partition("#")
        assert anchor in site.pages[page].anchors, key
    assert not re.search(r"""(?<!-)(?:src|href)=\\"(?!data:)""", text)


@pytest.mark.parametrize("folder", ["book", "_static"])
def test_no_page_names_the_machine_it_was_built_on(site, folder):
    faults = [
        path.name
        for path in (site.root / folder).rglob("*")
        if path.suffix in (".html", ".js", ".css")
        and not {"mathjax", "vega"} & set(path.parts)
        and str(ROOT) + "/" in path.read_text(encoding="utf-8")
    ]
    assert faults == []


@pytest.mark.parametrize("file", ["mathjax/tex-svg-full.js", "vega/vega.min.js"])
def test_what_the_book_carries_is_what_it_describes(file):
    import hashlib

    script = ROOT / "book" / "_static" / file
    folder = script.parent
    digest = hashlib.sha256(script.read_bytes()).hexdigest()
    assert digest in (folder / "README.md").read_text(encoding="utf-8")
    assert (folder / "LICENSE").is_file()


def test_no_number_that_a_cell_says_has_a_hyphen_for_its_sign(site):
    faults = [
        (page.address, element.get_text(" ", strip=True))
        for page in site.chapters
        for element in page.soup.select(".cell_output :is(p, td)")
        if re.search(r"(?:^|[\s(\[])-\.?\d", element.get_text(strip=True))
    ]
    assert faults == []
