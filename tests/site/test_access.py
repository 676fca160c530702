"""The pages without a pointer, and with a screen reader: axe-core and the Tab key.

axe-core looks at every page, in light and dark, as wide as a desktop and as a phone.
Two things keep it quick, and lose nothing. Formulas are not typeset: MathJax's own
markup is the same on all pages, and one chapter is looked at with it. And a contrast
is looked at once for each pair of colors that the page shows, not once for each word.
"""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from .conftest import Page, Site, skip_unless_ci
from .test_pages import PREFIX

pytestmark = [pytest.mark.chromium, pytest.mark.slow]

DESKTOP = {"width": 1280, "height": 900}
PHONE = {"width": 390, "height": 844}

# What depends on the width of the screen.
WIDTH_RULES = [
    "aria-hidden-focus",
    "button-name",
    "input-button-name",
    "link-name",
    "nested-interactive",
    "scrollable-region-focusable",
    "summary-name",
]

RUN = """
async (options) => {
  const quick = { resultTypes: ["violations"], preload: false };
  const found = await axe.run(document, { ...quick, ...options });
  return found.violations
    .filter((fault) => ["serious", "critical"].includes(fault.impact))
    .map((fault) => [
      fault.id,
      fault.nodes.length,
      fault.nodes.slice(0, 3).map((node) => node.html.slice(0, 150)),
    ]);
}
"""

# One element for each pair of colors, with its size and weight.
CONTRAST = """
async () => {
  const seen = new Map();
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node; (node = walker.nextNode()); ) {
    const element = node.parentElement;
    if (!node.data.trim() || element.closest("script, style, mjx-container")) continue;
    if (!element.checkVisibility({ visibilityProperty: true, opacityProperty: true }))
      continue;
    const style = getComputedStyle(element);
    const key = [style.color, style.fontSize, style.fontWeight];
    for (let above = element; above; above = above.parentElement) {
      const ground = getComputedStyle(above).backgroundColor;
      if (ground !== "rgba(0, 0, 0, 0)") key.push(ground);
    }
    if (!seen.has(key.join())) seen.set(key.join(), element);
  }
  document.querySelectorAll("[data-sample]").forEach((e) => {
    e.removeAttribute("data-sample");
  });
  for (const element of seen.values()) element.dataset.sample = "";
  const found = await axe.run(
    { include: [["[data-sample]"]] },
    { runOnly: ["color-contrast"], resultTypes: ["violations"], preload: false },
  );
  return found.violations.map((fault) => [
    fault.id,
    fault.nodes.length,
    fault.nodes.slice(0, 3).map((n) => n.html.slice(0, 80) + n.any[0].message),
  ]);
}
"""


@pytest.fixture(scope="module")
def axe() -> str:
    """Return the script of axe-core, as axe-playwright-python brings it."""
    if importlib.util.find_spec("axe_playwright_python") is None:
        skip_unless_ci("axe-core comes with the extra [test] (axe-playwright-python)")
    script = files("axe_playwright_python").joinpath("axe.min.js")
    return script.read_text(encoding="utf-8")


def open_plain(browser: Any, site: Site, page: Page, **options: Any) -> Any:
    """Open a page without typesetting its formulas."""
    context = browser.new_context(viewport=DESKTOP, **options)
    context.route("**/mathjax/**", lambda route: route.abort())
    tab = context.new_page()
    tab.goto((site.root / page.address).as_uri(), wait_until="load")
    return tab


def set_theme(tab: Any, name: str) -> None:
    tab.evaluate("name => { document.documentElement.dataset.theme = name }", name)


def faults_of(tab: Any, axe: str) -> dict[str, Any]:
    """Look at the page in both themes and both widths."""
    tab.evaluate(axe)
    set_theme(tab, "light")
    structure = {"color-contrast": {"enabled": False}}
    found = {
        "desktop": tab.evaluate(RUN, {"rules": structure}),
        "desktop, light": tab.evaluate(CONTRAST),
    }
    set_theme(tab, "dark")
    found["desktop, dark"] = tab.evaluate(CONTRAST)
    tab.set_viewport_size(PHONE)
    # The theme and the book look for what scrolls once the width has settled.
    tab.wait_for_timeout(350)
    found["phone, dark"] = tab.evaluate(CONTRAST)
    set_theme(tab, "light")
    found["phone, light"] = tab.evaluate(CONTRAST)
    found["phone"] = tab.evaluate(RUN, {"runOnly": WIDTH_RULES})
    return {how: faults for how, faults in found.items() if faults}


def test_no_page_has_a_serious_violation(browser: Any, site: Site, axe: str) -> None:
    faults = {}
    for page in site.pages.values():
        # The root forwards; the page for missing pages is served below.
        if page.address in ("index.html", "404.html"):
            continue
        tab = open_plain(browser, site, page)
        found = faults_of(tab, axe)
        if found:
            faults[page.address] = found
        tab.context.close()
    assert faults == {}


def test_typeset_formulas_have_no_serious_violation(
    browser: Any, site: Site, axe: str
) -> None:
    """On a phone, where formulas scroll, and with all rules."""
    page = min(
        (page for page in site.chapters if page.soup.select("article div.math")),
        key=lambda page: len(page.soup.select("article .math")),
    )
    context = browser.new_context(viewport=PHONE)
    tab = context.new_page()
    tab.goto((site.root / page.address).as_uri(), wait_until="load")
    tab.evaluate("() => window.MathJax?.startup?.promise")
    tab.wait_for_timeout(500)
    tab.evaluate(axe)
    assert tab.locator("article mjx-container").count() > 0
    faults = tab.evaluate(RUN, {"rules": {"color-contrast": {"enabled": False}}})
    assert faults == []
    context.close()


# --- the Tab key --------------------------------------------------------------------

FOCUSED = """
() => {
  const e = document.activeElement;
  const style = getComputedStyle(e);
  return {
    tag: e.tagName.toLowerCase(),
    name: e.getAttribute("aria-label") || e.textContent.trim().slice(0, 60),
    href: e.getAttribute("href"),
    formula: Boolean(e.closest("mjx-container")),
    outline: style.outlineStyle !== "none" && parseFloat(style.outlineWidth) > 0,
    shadow: style.boxShadow !== "none",
    summary: Boolean(e.matches("article details.hide > summary")),
    solution: Boolean(e.matches("article .solution button.toggle-button")),
    scrolls: e.scrollWidth > e.clientWidth + 1,
    inArticle: Boolean(e.closest("article")),
  };
}
"""


def walk(tab: Any, most: int = 1500) -> list[dict[str, Any]]:
    """Press Tab until the focus leaves the page; return what it came to."""
    seen = []
    for _ in range(most):
        tab.keyboard.press("Tab")
        at = tab.evaluate(FOCUSED)
        if at["tag"] == "body":
            break
        seen.append(at)
    return seen


@pytest.fixture
def walked(browser: Any, site: Site) -> Iterator[tuple[Any, list[dict[str, Any]]]]:
    """Return a chapter on a phone, formulas typeset, and what the Tab key came to."""
    page = min(
        (
            page
            for page in site.chapters
            if page.soup.select("div.solution.dropdown")
            and page.soup.select("article details.hide")
            and page.soup.select("article div.cell_output figure")
        ),
        key=lambda page: len(str(page.soup)),
    )
    context = browser.new_context(viewport=PHONE)
    tab = context.new_page()
    tab.goto((site.root / page.address).as_uri(), wait_until="load")
    tab.evaluate("() => window.MathJax?.startup?.promise")
    tab.wait_for_timeout(700)
    yield tab, walk(tab)
    context.close()


def test_tab_reaches_everything_and_shows_where_it_is(
    walked: tuple[Any, list[dict[str, Any]]],
) -> None:
    tab, seen = walked
    assert seen[0]["href"] == "#main-content", "the skip link comes first"
    assert [at for at in seen if not (at["outline"] or at["shadow"])] == []
    assert [at for at in seen if not at["name"]] == []
    # A formula is a stop only where it is too wide.
    assert [at for at in seen if at["formula"] and not at["scrolls"]] == []

    def count(what: str) -> int:
        return sum(at[what] for at in seen)

    hidden = "article :is(.toggle-hidden > :not(.admonition-title), "
    hidden += "details:not([open]) > :not(summary)) "
    for what, selector in {
        "summary": "article details.hide > summary",
        "solution": "article .solution button.toggle-button",
    }.items():
        every = tab.locator(selector).count()
        inside = tab.locator(hidden + selector.removeprefix("article ")).count()
        assert count(what) == every - inside > 0, what
    unreached = tab.evaluate(
        """() => [...document.querySelectorAll("article *")].filter((e) =>
          ["auto", "scroll"].includes(getComputedStyle(e).overflowX) &&
          e.scrollWidth > e.clientWidth + 1 && e.tabIndex < 0 &&
          e.checkVisibility({ visibilityProperty: true }) &&
          !e.querySelector("a, button")).map((e) => e.outerHTML.slice(0, 100))"""
    )
    assert unreached == []
    assert any(at["scrolls"] and at["inArticle"] for at in seen)


def test_skip_link_leads_to_the_text(browser: Any, site: Site) -> None:
    tab = open_plain(browser, site, site.pages["book/intro.html"])
    tab.keyboard.press("Tab")
    # It slides in.
    shown = "document.querySelector('#pst-skip-link a').getBoundingClientRect().y >= 0"
    tab.wait_for_function(shown, timeout=10000)
    tab.keyboard.press("Enter")
    tab.wait_for_url("**#main-content", timeout=10000)
    tab.keyboard.press("Tab")
    after = "() => document.activeElement.closest('#main-content') !== null"
    tab.wait_for_function(after, timeout=10000)
    tab.context.close()


def test_search_opens_from_the_keyboard(browser: Any, site: Site) -> None:
    tab = open_plain(browser, site, site.pages["book/intro.html"])
    tab.keyboard.press("Control+k")
    field = "() => document.activeElement.matches('input[type=search]')"
    assert tab.evaluate(field)
    tab.keyboard.type("margin")
    tab.keyboard.press("Enter")
    tab.locator("#search-results li a").first.wait_for(timeout=10000)
    tab.context.close()


def test_solutions_unfold_from_the_keyboard(browser: Any, site: Site) -> None:
    page = next(p for p in site.chapters if p.soup.select("div.solution.dropdown"))
    tab = open_plain(browser, site, page)
    button = tab.locator("div.solution button.toggle-button").first
    assert "Solution" in button.get_attribute("aria-label")
    assert button.get_attribute("aria-expanded") == "false"
    button.focus()
    for key, state in (("Enter", "true"), ("Space", "false")):
        tab.keyboard.press(key)
        tab.wait_for_timeout(50)
        assert button.get_attribute("aria-expanded") == state
    tab.context.close()


# --- the page for pages that are not there ------------------------------------------


class _Pages(SimpleHTTPRequestHandler):
    """Serve the site below its prefix, as GitHub's pages are."""

    def translate_path(self, path: str) -> str:
        path = urlsplit(path).path
        if not path.startswith(PREFIX):
            return str(Path(self.directory, "nothing"))
        return super().translate_path("/" + path.removeprefix(PREFIX))

    def send_error(self, code: int, *args: Any, **options: Any) -> None:
        if code != 404:
            super().send_error(code, *args, **options)
            return
        body = Path(self.directory, "404.html").read_bytes()
        self.send_response(404)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: Any) -> None:
        """Say nothing."""


@pytest.fixture
def served(site: Site) -> Iterator[str]:
    """Return the address at which the site is served, with its prefix."""
    handler = partial(_Pages, directory=str(site.root))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}{PREFIX}"
        server.shutdown()


def test_a_missing_page_is_answered_from_any_depth(
    browser: Any, served: str, axe: str
) -> None:
    context = browser.new_context(viewport=DESKTOP)
    tab = context.new_page()
    failed = []
    tab.on(
        "response",
        lambda answer: failed.append(answer.url) if answer.status >= 400 else None,
    )
    address = f"{served}book/chapters/old/name/of_a_chapter.html"
    answer = tab.goto(address, wait_until="load")
    assert answer.status == 404
    assert failed == [address]
    assert tab.locator("article h1").inner_text().startswith("Page not found")
    assert faults_of(tab, axe) == {}
    tab.set_viewport_size(DESKTOP)
    # It looks like a page of the book, and its ways out work.
    tab.locator(".bd-sidebar-primary .logo__title").wait_for(timeout=10000)
    tab.locator("article a", has_text="preface").click()
    assert tab.url == f"{served}book/intro.html"
    tab.goto(address)
    tab.keyboard.press("Control+k")
    tab.keyboard.type("margin")
    tab.keyboard.press("Enter")
    tab.locator("#search-results li a").first.wait_for(timeout=10000)
    assert urlsplit(tab.url).path == f"{PREFIX}search.html"
    context.close()
