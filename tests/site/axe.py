"""axe-core, as axe-playwright-python brings it, asked no more than it must be.

A contrast is looked at once for each pair of colors that the site shows, not once for
each word of each page.
"""

from __future__ import annotations

from collections import Counter
from importlib.resources import files
from typing import Any

from .conftest import PHONE

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
  const { violations } = await axe.run(document, { ...quick, ...options });
  return violations
    .filter((fault) => ["serious", "critical"].includes(fault.impact))
    .map((fault) => [
      fault.id,
      fault.nodes.length,
      fault.nodes.slice(0, 3).map((node) => node.html.slice(0, 150)),
    ]);
}
"""

# One element for each pair of colors, with its size and weight, that is not settled.
# Returns the pairs that are legible, those that axe-core cannot tell, and the faults.
CONTRAST = """
async (settled) => {
  const known = new Set(settled), samples = new Map(), grounds = new Map();
  const ground = (element) => {
    if (!element) return "";
    if (!grounds.has(element)) {
      const { backgroundColor, opacity } = getComputedStyle(element);
      grounds.set(element,
        (backgroundColor === "rgba(0, 0, 0, 0)" ? "" : backgroundColor) +
        (opacity === "1" ? "" : opacity) + ground(element.parentElement));
    }
    return grounds.get(element);
  };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node; (node = walker.nextNode()); ) {
    const element = node.parentElement;
    if (!node.data.trim() || element.closest("script, style, mjx-container")) continue;
    const { color, fontSize, fontWeight } = getComputedStyle(element);
    const key = [color, fontSize, fontWeight, ground(element)].join();
    // Of a single character, axe-core cannot tell.
    const long = (e) => e.textContent.trim().length > 1;
    const sample = samples.get(key);
    if (known.has(key) || (sample && (long(sample) || !long(element)))) continue;
    if (element.checkVisibility({ visibilityProperty: true, opacityProperty: true }))
      samples.set(key, element);
  }
  if (!samples.size) return [[], [], []];
  document.querySelectorAll("[data-sample]").forEach((e) => {
    e.removeAttribute("data-sample");
  });
  for (const [key, element] of samples) element.dataset.sample = key;
  const { violations, passes } = await axe.run(
    { include: [["[data-sample]"]] },
    { runOnly: ["color-contrast"], resultTypes: ["violations", "passes"],
      elementRef: true, preload: false },
  );
  const legible = new Set(
    passes.flatMap((rule) => rule.nodes.map((node) => node.element.dataset.sample)));
  return [
    [...samples.keys()].filter((key) => legible.has(key)),
    [...samples.keys()].filter((key) => !legible.has(key)),
    violations.map((fault) => [
      fault.id,
      fault.nodes.length,
      fault.nodes.slice(0, 3).map((n) => n.html.slice(0, 80) + n.any[0].message),
    ]),
  ];
}
"""

# MathJax's own markup is the same on all pages, and one of them is looked at with it.
# On the others it would take half of the time: the first thing that axe-core does is to
# copy the tree.
NO_FORMULAS = """
() => document.querySelectorAll("mjx-container").forEach((e) => e.replaceWith("x"))
"""

# The colors of code have been looked at by then.
PLAIN_CODE = """
() => document.querySelectorAll(".highlight pre span").forEach((e) => {
  e.replaceWith(...e.childNodes);
})
"""

# How often a pair of colors was looked at in vain; after a few times it is settled.
TRIES = 3
_tried: Counter[str] = Counter()


def load(tab: Any) -> None:
    """Bring axe-core into a page, where colors change at once from now on."""
    tab.add_style_tag(content="* { transition: none !important }")
    folder = files("axe_playwright_python")
    tab.evaluate(folder.joinpath("axe.min.js").read_text(encoding="utf-8"))


def set_theme(tab: Any, name: str) -> None:
    """Show a page in light or in dark."""
    tab.evaluate("name => { document.documentElement.dataset.theme = name }", name)


def structure(tab: Any) -> list[Any]:
    """Return what all rules but that of contrasts find."""
    return tab.evaluate(RUN, {"rules": {"color-contrast": {"enabled": False}}})


def _contrast(tab: Any, theme: str) -> list[Any]:
    set_theme(tab, theme)
    settled = [pair for pair, times in _tried.items() if times >= TRIES]
    legible, unknown, faults = tab.evaluate(CONTRAST, settled)
    _tried.update(dict.fromkeys(legible, TRIES))
    _tried.update(unknown)
    return faults


def faults_of(tab: Any) -> dict[str, Any]:
    """Look at a page on a desktop, then on a phone, in both themes."""
    load(tab)
    tab.evaluate(NO_FORMULAS)
    faults = {theme: _contrast(tab, theme) for theme in ("dark", "light")}
    tab.evaluate(PLAIN_CODE)
    faults["desktop"] = structure(tab)
    tab.set_viewport_size(PHONE)
    # The theme and the book look for what scrolls once the width has settled.
    tab.wait_for_timeout(350)
    faults["phone, dark"] = _contrast(tab, "dark")
    faults["phone, light"] = _contrast(tab, "light")
    faults["phone"] = tab.evaluate(RUN, {"runOnly": WIDTH_RULES})
    return {how: what for how, what in faults.items() if what}
