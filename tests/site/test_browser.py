"""What can only be seen in a browser: the pages as Chromium shows them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from .conftest import Page, Site

pytestmark = [pytest.mark.chromium, pytest.mark.slow]

DESKTOP = {"width": 1280, "height": 900}
PHONE = {"width": 390, "height": 844}

# Text that a reader would see and that still holds TeX, outside of code.
RAW_TEX = r"""
() => {
  const walker = document.createTreeWalker(
    document.querySelector("article"), NodeFilter.SHOW_TEXT);
  const skip = "pre, code, script, style, mjx-container, .highlight";
  const found = [];
  for (let node; (node = walker.nextNode()); ) {
    if (node.parentElement.closest(skip)) continue;
    if (/\\\(|\\\)|\\\[|\\\]|\$\$|\\(begin|frac|sum|beta)\b|\$[^\s$][^$]*\$/.test(
        node.data)) {
      found.push(node.data.trim().slice(0, 80));
    }
  }
  return found;
}
"""

# What reaches beyond the right edge, for a message that helps.
OVERFLOW = """
() => {
  const edge = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth <= edge) return [];
  const scrolls = (e) => e && e !== document.body &&
    (getComputedStyle(e).overflowX !== "visible" || scrolls(e.parentElement));
  return [...document.querySelectorAll("body *")]
    .filter((e) => e.getBoundingClientRect().right > edge + 1)
    .filter((e) => !scrolls(e.parentElement))
    .slice(0, 5)
    .map((e) => e.tagName + "." + e.className);
}
"""


def open_page(browser: Any, site: Site, page: Page, **options: Any) -> Any:
    """Open a page from disk, wait until it is typeset, note what goes wrong."""
    context = browser.new_context(viewport=DESKTOP, **options)
    tab = context.new_page()
    tab.foreign, tab.complaints = [], []
    tab.on(
        "request",
        lambda request: (
            None
            if request.url.startswith(("file:", "data:", "blob:"))
            else tab.foreign.append(request.url)
        ),
    )
    tab.on("pageerror", lambda error: tab.complaints.append(str(error)))
    tab.on(
        "console",
        lambda message: (
            tab.complaints.append(message.text) if message.type == "error" else None
        ),
    )
    tab.goto((site.root / page.address).as_uri(), wait_until="load")
    tab.evaluate("() => window.MathJax?.startup?.promise")
    return tab


@pytest.fixture
def chapter(browser: Any, site: Site) -> Iterator[Any]:
    """Return the chapter that has the most theorems, opened."""
    page = max(site.chapters, key=lambda page: len(page.soup.select("div.proof")))
    tab = open_page(browser, site, page, color_scheme="light")
    yield tab
    tab.context.close()


def test_every_page_shows_as_it_should(browser: Any, site: Site) -> None:
    """No request beyond the disk, no error, no raw TeX, nothing too wide."""
    faults: list[tuple[str, str, Any]] = []
    for page in site.content:
        tab = open_page(browser, site, page)
        found = {
            "asks for an external address": tab.foreign,
            "script error": tab.complaints,
            "raw TeX": tab.evaluate(RAW_TEX),
            "formula with an error": tab.locator(
                "article mjx-merror, article [data-mjx-error]"
            ).count(),
            "too wide for the desktop": tab.evaluate(OVERFLOW),
        }
        formulas = len(page.soup.select("article .math"))
        typeset = tab.locator("article mjx-container").count()
        if typeset < formulas:
            found["formulas not typeset"] = formulas - typeset
        tab.set_viewport_size(PHONE)
        tab.wait_for_timeout(100)
        found["too wide for a phone"] = tab.evaluate(OVERFLOW)
        found["picture not loaded"] = tab.evaluate(
            "() => [...document.querySelectorAll('article img')]"
            ".filter((i) => i.complete && !i.naturalWidth).map((i) => i.src)"
        )
        faults += [
            (page.address, what, value) for what, value in found.items() if value
        ]
        tab.context.close()
    assert faults == []


def test_dark_mode_toggles_and_stays(chapter: Any) -> None:
    background = "() => getComputedStyle(document.body).backgroundColor"
    light = chapter.evaluate(background)
    button = chapter.locator(".bd-header-article .theme-switch-button:visible")
    seen = set()
    for _ in range(3):
        button.click()
        chapter.wait_for_timeout(50)
        seen.add(chapter.evaluate("() => document.documentElement.dataset.theme"))
        if chapter.evaluate("() => document.documentElement.dataset.theme") == "dark":
            break
    assert "dark" in seen
    assert chapter.evaluate(background) != light
    chapter.reload()
    assert chapter.evaluate("() => document.documentElement.dataset.theme") == "dark"


def test_dark_mode_text_is_legible(browser: Any, site: Site) -> None:
    """Body text has a contrast of at least 7 with the page, links 4.5."""
    contrast = """
    (selector) => {
      const parse = (c) => c.match(/[\\d.]+/g).slice(0, 3).map(Number);
      const luminance = (c) => parse(c)
        .map((v) => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
        .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
      const text = luminance(
        getComputedStyle(document.querySelector(selector)).color);
      const ground = luminance(getComputedStyle(document.body).backgroundColor);
      return (Math.max(text, ground) + 0.05) / (Math.min(text, ground) + 0.05);
    }
    """
    for scheme in ("light", "dark"):
        page = site.pages["book/intro.html"]
        tab = open_page(browser, site, page, color_scheme=scheme)
        assert tab.evaluate(contrast, "article p") >= 7, scheme
        assert tab.evaluate(contrast, "article p a") >= 4.5, scheme
        tab.context.close()


def test_links_to_theorems_and_equations_show_them(chapter: Any) -> None:
    links = "article :is(a.internal[href*='#thm-'], a.internal[href*='#def-'], "
    links += "a.internal[href*='#equation-'])"
    link = chapter.locator(links).first
    link.scroll_into_view_if_needed()
    link.hover()
    preview = chapter.locator(".book-preview")
    preview.wait_for(state="visible", timeout=5000)
    preview.locator("mjx-container").first.wait_for(state="visible", timeout=5000)
    assert preview.inner_text().strip()
    box = preview.bounding_box()
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= DESKTOP["width"]
    chapter.keyboard.press("Escape")
    assert preview.count() == 0
    assert chapter.foreign == []


def test_search_works_from_disk(browser: Any, site: Site) -> None:
    tab = browser.new_context(viewport=DESKTOP).new_page()
    tab.goto((site.root / "search.html").as_uri() + "?q=agreement")
    tab.locator("#search-results li a").first.wait_for(timeout=10000)
    assert tab.locator("#search-results li").count() >= 3
    tab.context.close()


def test_phone_menu_opens(browser: Any, site: Site) -> None:
    page = site.pages["book/intro.html"]
    tab = open_page(browser, site, page)
    tab.set_viewport_size(PHONE)
    margin = tab.locator(".bd-sidebar-primary").first
    assert not margin.is_visible() or margin.bounding_box()["x"] < 0
    tab.locator("button.primary-toggle:visible").click()
    tab.wait_for_timeout(500)
    chapters = tab.locator("a[href*='chapters/']:visible")
    assert chapters.count() >= 8
    tab.context.close()


def test_solutions_unfold(browser: Any, site: Site) -> None:
    pages = [p for p in site.chapters if p.soup.select("div.solution.dropdown")]
    assert pages
    tab = open_page(browser, site, pages[0])
    block = tab.locator("div.solution.dropdown").first
    body = block.locator("section").first
    assert not body.is_visible()
    block.locator("p.admonition-title .toggle-button, .toggle-button").first.click()
    assert body.is_visible()
    tab.context.close()


def test_the_ledger_shows_one_verdict_at_a_time(browser: Any, site: Site) -> None:
    tab = open_page(browser, site, site.pages["book/claims.html"])
    claims = tab.locator("div.claim")
    fails = tab.locator("div.claim-fails").count()
    assert 0 < fails < claims.count()
    tab.get_by_label("fails (").check()
    assert tab.locator("div.claim:visible").count() == fails
    hidden = tab.locator("div.claim:not(.claim-fails)").first
    assert not hidden.is_visible()
    # A link from a chapter shows its claim whatever is chosen.
    tab.evaluate("id => { location.hash = id }", hidden.get_attribute("id"))
    assert hidden.is_visible()
    tab.get_by_label("all (").check()
    assert tab.locator("div.claim:visible").count() == claims.count()
    tab.context.close()
