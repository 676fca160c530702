"""axe-core, as axe-playwright-python brings it, asked no more than it must be.

A contrast is looked at once for each pair of colors that the site shows, not once for
each word of each page.
"""

from __future__ import annotations

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

# One element for each pair of colors, with its size and weight, that is not known to
# be legible. Returns the pairs that are, and the faults.
CONTRAST = """
async (known) => {
  const passed = new Set(known), samples = new Map();
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node; (node = walker.nextNode()); ) {
    const element = node.parentElement;
    if (!node.data.trim() || element.closest("script, style, mjx-container")) continue;
    if (!element.checkVisibility({ visibilityProperty: true, opacityProperty: true }))
      continue;
    const style = getComputedStyle(element);
    const pair = [style.color, style.fontSize, style.fontWeight];
    for (let above = element; above; above = above.parentElement) {
      const { backgroundColor, opacity } = getComputedStyle(above);
      if (backgroundColor !== "rgba(0, 0, 0, 0)") pair.push(backgroundColor);
      if (opacity !== "1") pair.push(opacity);
    }
    const key = pair.join();
    if (!passed.has(key) && !samples.has(key)) samples.set(key, element);
  }
  if (!samples.size) return [[], []];
  document.querySelectorAll("[data-sample]").forEach((e) => {
    e.removeAttribute("data-sample");
  });
  for (const [key, element] of samples) element.dataset.sample = key;
  const { violations, passes } = await axe.run(
    { include: [["[data-sample]"]] },
    { runOnly: ["color-contrast"], resultTypes: ["violations", "passes"],
      elementRef: true, preload: false },
  );
  return [
    passes.flatMap((rule) => rule.nodes.map((node) => node.element.dataset.sample))
      .filter(Boolean),
    violations.map((fault) => [
      fault.id,
      fault.nodes.length,
      fault.nodes.slice(0, 3).map((n) => n.html.slice(0, 80) + n.any[0].message),
    ]),
  ];
}
"""

# The pairs of colors that axe-core found legible.
_legible: set[str] = set()


def load(tab: Any) -> None:
    """Bring axe-core into a page."""
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
    legible, faults = tab.evaluate(CONTRAST, sorted(_legible))
    _legible.update(legible)
    return faults


def faults_of(tab: Any) -> dict[str, Any]:
    """Look at a page on a desktop, then on a phone, in both themes."""
    load(tab)
    faults = {"desktop, light": _contrast(tab, "light"), "desktop": structure(tab)}
    faults["desktop, dark"] = _contrast(tab, "dark")
    tab.set_viewport_size(PHONE)
    # The theme and the book look for what scrolls once the width has settled.
    tab.wait_for_timeout(350)
    faults["phone, dark"] = _contrast(tab, "dark")
    faults["phone, light"] = _contrast(tab, "light")
    faults["phone"] = tab.evaluate(RUN, {"runOnly": WIDTH_RULES})
    return {how: what for how, what in faults.items() if what}
