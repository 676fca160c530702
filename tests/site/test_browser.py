"""The pages as Chromium shows them, and as axe-core sees them."""

from __future__ import annotations

import pytest

from . import axe
from .conftest import DESKTOP, PHONE, require

pytestmark = [pytest.mark.chromium, pytest.mark.slow]

# Text that a reader would see and that still holds TeX, outside of code.
RAW_TEX = r"""
() => {
  const walker = document.createTreeWalker(
    document.querySelector("article"), NodeFilter.SHOW_TEXT);
  const skip = "pre, code, script, style, mjx-container, .highlight";
  const raw = [];
  for (let node; (node = walker.nextNode()); ) {
    if (node.parentElement.closest(skip)) continue;
    if (/\\\(|\\\)|\\\[|\\\]|\$\$|\\(begin|frac|sum|beta)\b|\$[^\s$][^$]*\$/.test(
        node.data)) {
      raw.push(node.data.trim().slice(0, 80));
    }
  }
  return raw;
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

# Tables and formulas that scroll sideways where there is room for them.
CUT = """
() => [...document.querySelectorAll(
  "article :is(.pst-scrollable-table-container, .text_html, div.math)")]
  .filter((e) => e.scrollWidth > e.clientWidth + 1)
  .map((e) => e.className + ": " + e.textContent.trim().slice(0, 40))
"""

# Pictures that reach beyond what holds them, and what scrolls without a word.
UNSAID = """
() => [
  ...[...document.querySelectorAll("article img")]
    .filter((i) => i.getBoundingClientRect().right > document.body.clientWidth)
    .map((i) => "picture: " + i.src),
  ...[...document.querySelectorAll(
    "article :is(.pst-scrollable-table-container, .text_html, div.math)")]
    .filter((e) => e.scrollWidth > e.clientWidth + 1)
    .filter((e) => !getComputedStyle(e, "::after").content.includes("scrolls"))
    .map((e) => e.className + ": " + e.textContent.trim().slice(0, 40)),
  ...[...document.querySelectorAll("article div.math > mjx-container")]
    .filter((e) => e.scrollWidth > e.clientWidth + 1)
    .filter((e) => !getComputedStyle(e.parentElement, "::after").content
      .includes("scrolls"))
    .map((e) => "formula: " + e.textContent.trim().slice(0, 40)),
  ...[...document.querySelectorAll("article mjx-container:not([display]) > svg")]
    .filter((e) => !e.closest(".pst-scrollable-table-container"))
    .filter((e) => e.getBoundingClientRect().right > document.body.clientWidth)
    .map((e) => "in a line: " + e.parentElement.textContent.trim().slice(0, 40)),
]
"""

NOT_LOADED = """
() => [...document.querySelectorAll("article img")]
  .filter((i) => i.complete && !i.naturalWidth).map((i) => i.src)
"""


def faults_on_a_desktop(tab, page):
    written = len(page.soup.select("article .math"))
    typeset = tab.locator("article mjx-container").count()
    errors = tab.locator("article mjx-merror, article [data-mjx-error]")
    return {
        "asks for an external address": tab.foreign,
        "script error": tab.complaints,
        "raw TeX": tab.evaluate(RAW_TEX),
        "formula with an error": errors.count(),
        "formulas not typeset": max(written - typeset, 0),
        "too wide for the desktop": tab.evaluate(OVERFLOW),
        "cut on the desktop": tab.evaluate(CUT),
    }


def faults_on_a_phone(tab, page):
    return {
        "too wide for a phone": tab.evaluate(OVERFLOW),
        "scrolls on a phone, unsaid": tab.evaluate(UNSAID),
        "picture not loaded": tab.evaluate(NOT_LOADED),
    }


def test_every_page_shows_as_it_should(visit, site):
    """No request beyond the disk, no error, no raw TeX, nothing too wide."""
    faults = {}
    for page in site.content:
        tab = visit(page)
        here = faults_on_a_desktop(tab, page)
        axe.turn(tab, PHONE)
        here |= faults_on_a_phone(tab, page)
        if any(here.values()):
            faults[page.address] = {k: str(v) for k, v in here.items() if v}
        tab.context.close()
    assert len(site.content) > 60
    assert faults == {}


#: A page of each kind; the page for missing pages has a test of its own.
KINDS = {
    "a lesson": "book/chapters/28_class_priors.html",
    "a module": "book/api/scores.html",
    "the ledger": "book/claims.html",
    "text": "book/intro.html",
    "the search": "search.html",
}


@pytest.mark.parametrize(
    "kind", [*KINDS, pytest.param("all", marks=pytest.mark.ranges)]
)
def test_a_page_has_no_serious_violation(visit, site, kind):
    require("axe_playwright_python")
    pages = [page for page in site.pages if page not in ("index.html", "404.html")]
    faults = {}
    for page in pages if kind == "all" else [KINDS[kind]]:
        tab = visit(page)
        if found := axe.faults_of(tab):
            faults[page] = found
        tab.close()
    assert faults == {}


def most_theorems(site):
    return max(site.chapters, key=lambda page: len(page.soup.select("div.proof")))


def test_dark_mode_toggles_and_stays(visit, site):
    chapter = visit(most_theorems(site), formulas=False, color_scheme="light")
    background = "() => getComputedStyle(document.body).backgroundColor"
    theme = "() => document.documentElement.dataset.theme"
    light = chapter.evaluate(background)
    button = chapter.locator(".bd-header-article .theme-switch-button:visible")
    mode = "document.documentElement.dataset.mode"
    for _ in range(3):
        before = chapter.evaluate(mode)
        button.click()
        # A page that is busy answers late: the next click would come too early.
        chapter.wait_for_function(f"before => {mode} !== before", arg=before)
        if chapter.evaluate(theme) == "dark":
            break
    assert chapter.evaluate(theme) == "dark"
    assert chapter.evaluate(background) != light
    chapter.reload()
    assert chapter.evaluate(theme) == "dark"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_is_legible(visit, scheme):
    """Body text has a contrast of at least 7 with the page; links may have 4.5."""
    require("axe_playwright_python")
    tab = visit("book/intro.html", formulas=False, color_scheme=scheme)
    text = {"include": [["article p"]], "exclude": [["article a"]]}
    assert axe.violations(tab, text, runOnly=["color-contrast-enhanced"]) == {}


def test_links_to_theorems_and_equations_show_them(visit, site):
    chapter = visit(most_theorems(site), color_scheme="light")
    links = "article :is(a.internal[href*='#thm-'], a.internal[href*='#def-'], "
    links += "a.internal[href*='#equation-'])"
    link = chapter.locator(links).filter(visible=True).first
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
