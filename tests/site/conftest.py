"""The built site, and one browser to look at it with.

What `make site` built serves as long as the sources are the same. Else the site is
built here, in the time in which other workers run other tests.
"""

from __future__ import annotations

import os
import posixpath
import subprocess
import sys
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urldefrag, urlsplit

import pytest
import yaml

from ..conftest import require

ROOT = Path(__file__).resolve().parents[2]
CONFIG = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))
TOC = yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8"))
REPOSITORY = CONFIG["repository"]["url"]
PREFIX = CONFIG["sphinx"]["config"]["notfound_urls_prefix"]
DESKTOP = {"width": 1280, "height": 900}
PHONE = {"width": 390, "height": 844}


def in_browser(test):
    """Mark a test that needs Chromium."""
    return pytest.mark.chromium(pytest.mark.slow(test))


def documents(node):
    """Return the documents that the table of contents lists."""
    names = [node[key] for key in ("root", "file") if key in node]
    for key in ("parts", "chapters", "sections"):
        for child in node.get(key, []):
            names += documents(child)
    return names


@dataclass(frozen=True)
class Page:
    """One page of the site: its path from the root of the site, and its HTML."""

    address: str
    soup: Any = field(repr=False)

    @cached_property
    def anchors(self):
        """Every identifier that a link may point at."""
        return {
            element[attribute]
            for attribute in ("id", "name")
            for element in self.soup.find_all(attrs={attribute: True})
        }

    @property
    def is_content(self):
        """Whether an author wrote the page, rather than Sphinx."""
        return self.address.startswith("book/")

    @property
    def is_chapter(self):
        """Whether the page is an executed chapter."""
        return self.address.startswith("book/chapters/")

    @property
    def name(self):
        """For example ``02_a_first_measurement``."""
        return posixpath.basename(self.address).removesuffix(".html")

    def target(self, href):
        """Return the page and the anchor that a link leads to."""
        path, anchor = urldefrag(href)
        path = unquote(urlsplit(path).path)
        if path.startswith(PREFIX):
            path = posixpath.normpath(path.removeprefix(PREFIX) or "index.html")
        elif path:
            folder = posixpath.dirname(self.address)
            path = posixpath.normpath(posixpath.join(folder, path))
        else:
            path = self.address
        return path, unquote(anchor)

    def meta(self, **attributes):
        """Return what the page's head says under a name or a property."""
        return [tag["content"] for tag in self.soup.find_all("meta", attributes)]


@dataclass(frozen=True)
class Site:
    """The built site."""

    root: Path
    pages: dict[str, Page]

    @property
    def content(self):
        """The pages that an author wrote."""
        return [page for page in self.pages.values() if page.is_content]

    @property
    def chapters(self):
        """The executed chapters."""
        return [page for page in self.pages.values() if page.is_chapter]


@pytest.fixture(scope="session")
def build():
    """Return where the site is, what its build complained of, what it wrote."""
    for name in ("bs4", "jupyter_book"):
        require(name)
    done = subprocess.run(
        [sys.executable, "-m", "press", "site"],
        cwd=ROOT,
        env=os.environ | {"NO_COLOR": "1", "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    lines = (done.stdout + done.stderr).splitlines()
    signs = "WARNING", "ERROR", "Error: "
    notable = [line for line in lines if any(sign in line for sign in signs)]
    faults = "\n".join(notable or lines[-40:]) if done.returncode else ""
    wrote = [line for line in lines if line.startswith("wrote ")]
    return ROOT / "_build" / "html", faults, wrote


@pytest.fixture(scope="session")
def site(build):
    """Return the site with all its pages parsed."""
    from bs4 import BeautifulSoup

    root, faults, _ = build
    if faults:
        pytest.fail("no site: see test_the_site_is_built_strictly", pytrace=False)
    pages = {}
    for path in sorted(root.rglob("*.html")):
        address = path.relative_to(root).as_posix()
        moved = address.removesuffix(".html") in CONFIG["sphinx"]["config"]["redirects"]
        if moved or address.startswith(("_static/", "_sources/")):
            continue
        soup = BeautifulSoup(path.read_text(encoding="utf-8"), "html.parser")
        pages[address] = Page(address, soup)
    return Site(root, pages)


def open_tab(browser, *, formulas=True, viewport=DESKTOP, **options):
    """Open an empty tab; without formulas, pages do not wait for them.

    What goes wrong is in ``tab.foreign``, the addresses beyond the disk, and
    ``tab.complaints``, the errors of scripts.
    """
    context = browser.new_context(viewport=viewport, **options)
    if not formulas:
        context.route("**/mathjax/**", lambda route: route.abort())
    tab = context.new_page()
    tab.foreign, tab.complaints = [], []

    def note_request(request):
        if not request.url.startswith(("file:", "data:", "blob:")):
            tab.foreign.append(request.url)

    def note_error(message):
        if message.type == "error":
            tab.complaints.append(message.text)

    tab.on("request", note_request)
    tab.on("console", note_error)
    tab.on("pageerror", lambda error: tab.complaints.append(str(error)))
    return tab


@pytest.fixture
def visit(browser, site):
    """Return a function that opens a page, or none, in a tab of its own."""
    tabs = []

    def visit(page=None, **options):
        tabs.append(tab := open_tab(browser, **options))
        if page:
            start(tab, site, page)
            settle(tab)
        return tab

    yield visit
    for tab in tabs:
        tab.context.close()


def start(tab, site, page):
    """Begin to open a page of the site from disk."""
    address = page.address if isinstance(page, Page) else page
    path, mark, query = address.partition("?")
    tab.goto((site.root / path).as_uri() + mark + query, wait_until="commit")


def settle(tab):
    """Wait until what was begun is there, and typeset."""
    tab.wait_for_load_state("load")
    tab.evaluate("() => window.MathJax?.startup?.promise")
