"""The pages without a pointer: the Tab key, and the page for pages that are missing."""

from urllib.parse import urlsplit

import pytest

from . import axe
from .conftest import DESKTOP, PHONE, PREFIX, require

pytestmark = [pytest.mark.chromium, pytest.mark.slow]

# Notes each stop of the focus, and where it leaves the page.
NOTE_STOPS = """
() => {
  window.stops = [];
  addEventListener("focusout", (e) => e.relatedTarget || window.stops.push(null));
  addEventListener("focusin", ({ target: e }) => {
    const style = getComputedStyle(e);
    window.stops.push({
      tag: e.tagName.toLowerCase(),
      name: e.getAttribute("aria-label") || e.textContent.trim().slice(0, 60),
      href: e.getAttribute("href"),
      formula: Boolean(e.closest("mjx-container")),
      outline: style.outlineStyle !== "none" && parseFloat(style.outlineWidth) > 0,
      shadow: style.boxShadow !== "none",
      solution: Boolean(e.matches("article .solution button.toggle-button")),
      scrolls: e.scrollWidth > e.clientWidth,
      inArticle: Boolean(e.closest("article")),
    });
  });
}
"""


def walk(tab, most=1500):
    """Press Tab until the focus leaves the page; return what it came to."""
    tab.evaluate(NOTE_STOPS)
    for _ in range(0, most, 50):
        for _ in range(50):
            tab.keyboard.press("Tab")
        stops = tab.evaluate("() => window.stops")
        if None in stops:
            return stops[: stops.index(None)]
    raise AssertionError(f"after {most} stops the focus is still on the page")


def test_tab_reaches_everything_and_shows_where_it_is(visit, site):
    """A chapter on a phone, its formulas typeset."""
    page = min(
        (
            page
            for page in site.chapters
            if page.soup.select("div.solution.dropdown")
            and page.soup.select("article div.cell_output figure")
        ),
        key=lambda page: (site.root / page.address).stat().st_size,
    )
    tab = visit(page, viewport=PHONE)
    tab.wait_for_timeout(700)
    stops = walk(tab)
    assert stops[0]["href"] == "#main-content", "the skip link comes first"
    assert [stop for stop in stops if not (stop["outline"] or stop["shadow"])] == []
    assert [stop for stop in stops if not stop["name"]] == []
    # A formula is a stop only where it is too wide.
    assert [stop for stop in stops if stop["formula"] and not stop["scrolls"]] == []

    def count(what):
        return sum(stop[what] for stop in stops)

    solutions = tab.locator("article .solution button.toggle-button").count()
    assert count("solution") == solutions > 0
    unreached = tab.evaluate(
        """() => [...document.querySelectorAll("article *")].filter((e) =>
          ["auto", "scroll"].includes(getComputedStyle(e).overflowX) &&
          e.scrollWidth > e.clientWidth + 1 && e.tabIndex < 0 &&
          e.checkVisibility({ visibilityProperty: true }) &&
          !e.querySelector("a, button")).map((e) => e.outerHTML.slice(0, 100))"""
    )
    assert unreached == []
    assert any(stop["scrolls"] and stop["inArticle"] for stop in stops)


def test_solutions_unfold_from_the_keyboard(visit, site):
    page = next(p for p in site.chapters if p.soup.select("div.solution.dropdown"))
    block = visit(page, formulas=False).locator("div.solution.dropdown").first
    body, button = block.locator("section").first, block.locator("button").first
    assert "Solution" in button.get_attribute("aria-label")
    assert button.get_attribute("aria-expanded") == "false"
    for key, state in (("Enter", "true"), ("Space", "false")):
        button.press(key)
        button.page.wait_for_timeout(50)
        assert button.get_attribute("aria-expanded") == state
        assert body.is_visible() == (state == "true")


ADDRESS = f"https://book.example{PREFIX}"


@pytest.fixture
def served(visit, site):
    """Return a tab that finds the site below its prefix, as on GitHub's pages."""

    def answer(route):
        path = urlsplit(route.request.url).path
        file = site.root / path.removeprefix(PREFIX)
        if path.startswith(PREFIX) and file.is_file():
            route.fulfill(path=file)
        else:
            route.fulfill(path=site.root / "404.html", status=404)

    tab = visit()
    tab.context.route("https://book.example/**", answer)
    return tab


def test_a_missing_page_is_answered_from_any_depth(served):
    require("axe_playwright_python")
    tab, failed = served, []

    def answered(response):
        if response.status >= 400:
            failed.append(response.url)

    tab.on("response", answered)
    address = f"{ADDRESS}book/chapters/old/name/of_a_chapter.html"
    answer = tab.goto(address, wait_until="load")
    assert answer.status == 404
    assert failed == [address]
    assert tab.locator("article h1").inner_text().startswith("Page not found")
    assert axe.faults_of(tab) == {}
    tab.set_viewport_size(DESKTOP)
    # It looks like a page of the book, and its ways out work.
    tab.locator(".bd-sidebar-primary .logo__title").wait_for(timeout=10000)
    tab.locator("article a", has_text="preface").click()
    assert tab.url == f"{ADDRESS}book/intro.html"
    tab.goto(address)
    tab.keyboard.press("Control+k")
    assert tab.evaluate("() => document.activeElement.matches('input[type=search]')")
    tab.keyboard.type("margin")
    tab.keyboard.press("Enter")
    tab.locator("#search-results li a").nth(2).wait_for(timeout=10000)
    assert urlsplit(tab.url).path == f"{PREFIX}search.html"
