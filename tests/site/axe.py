"""axe-core, as axe-playwright-python brings it, asked no more than it must be.

A contrast is looked at once for each pair of colors that the site shows, not once for
each word of each page.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from importlib.resources import files

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
# Text whose tags and classes, up to the root, have been seen on some page is left out.
# Returns the pairs that are legible, those that axe-core cannot tell, the faults, and
# the numbers of what has been seen now.
CONTRAST = """
async ([settled, seen]) => {
  const known = new Set(settled), samples = new Map(), grounds = new Map();
  const old = new Set(seen), chains = new Map(), pairs = new Map();
  const chain = (element) => {
    if (!element) return 0;
    if (!chains.has(element)) {
      let number = chain(element.parentElement);
      const names = ["class", "style"].map((name) => element.getAttribute(name));
      for (const c of element.tagName + names)
        number = (Math.imul(number, 31) + c.codePointAt(0)) | 0;
      chains.set(element, number);
    }
    return chains.get(element);
  };
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
    if (!node.data.trim() || old.has(chain(element))) continue;
    if (element.closest("script, style, mjx-container")) continue;
    const { color, fontSize, fontWeight } = getComputedStyle(element);
    const key = [color, fontSize, fontWeight, ground(element)].join();
    pairs.set(chain(element), [...(pairs.get(chain(element)) ?? []), key]);
    // Of a single character, axe-core cannot tell.
    const long = (e) => e.textContent.trim().length > 1;
    const sample = samples.get(key);
    if (known.has(key) || (sample && (long(sample) || !long(element)))) continue;
    if (element.checkVisibility({ visibilityProperty: true, opacityProperty: true }))
      samples.set(key, element);
  }
  const through = (legible) => [...pairs]
    .filter(([, keys]) => keys.every((key) => known.has(key) || legible.has(key)))
    .map(([number]) => number);
  if (!samples.size) return [[], [], [], through(known)];
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
    through(legible),
  ];
}
"""

# MathJax's own markup is the same on all pages, and one of them is looked at with it.
# On the others it would take half of the time: the first thing that axe-core does is to
# copy the tree.
TAKE_FORMULAS = """
() => {
  window.formulas = [...document.querySelectorAll("mjx-container")].map((formula) => {
    const sign = document.createTextNode("x");
    formula.replaceWith(sign);
    return [sign, formula];
  });
}
"""
PUT_FORMULAS = """
() => window.formulas.forEach(([sign, formula]) => sign.replaceWith(formula))
"""

# The colors of code have been looked at by then.
PLAIN_CODE = """
() => document.querySelectorAll(".highlight pre span").forEach((e) => {
  e.replaceWith(...e.childNodes);
})
"""

# The theme and the book look for what scrolls a while after the width has changed. The
# page's own clock, as a busy machine may take longer to lay it out.
REST = """
() => new Promise((done) => requestAnimationFrame(
  () => requestAnimationFrame(() => setTimeout(done, 350))))
"""

# How often a pair of colors was looked at in vain; after a few times it is settled.
TRIES = 3
_tried: Counter[str] = Counter()
_seen: defaultdict[str, set[int]] = defaultdict(set)


def load(tab):
    """Bring axe-core into a page, where colors change at once from now on."""
    tab.add_style_tag(content="* { transition: none !important }")
    folder = files("axe_playwright_python")
    tab.evaluate(folder.joinpath("axe.min.js").read_text(encoding="utf-8"))


def set_theme(tab, name):
    """Show a page in light or in dark."""
    tab.evaluate("name => { document.documentElement.dataset.theme = name }", name)


def structure(tab):
    """Return what all rules but that of contrasts find."""
    return tab.evaluate(RUN, {"rules": {"color-contrast": {"enabled": False}}})


def _contrast(tab, theme):
    set_theme(tab, theme)
    settled = [pair for pair, times in _tried.items() if times >= TRIES]
    seen = _seen[f"{theme}, {tab.viewport_size['width']}"]
    legible, unknown, faults, now = tab.evaluate(CONTRAST, [settled, [*seen]])
    _tried.update(dict.fromkeys(legible, TRIES))
    _tried.update(unknown)
    seen.update(now)
    return faults


def turn(tab, viewport):
    """Show a page on another screen, and let it settle."""
    if tab.viewport_size != viewport:
        tab.set_viewport_size(viewport)
        tab.evaluate(REST)


def faults_of(tab):
    """Look at a page as wide as it is, in both themes."""
    if tab.evaluate("() => window.axe === undefined"):
        load(tab)
    tab.evaluate(TAKE_FORMULAS)
    faults = {theme: _contrast(tab, theme) for theme in ("dark", "light")}
    tab.evaluate(PLAIN_CODE)
    phone = tab.viewport_size == PHONE
    faults["structure"] = (
        tab.evaluate(RUN, {"runOnly": WIDTH_RULES}) if phone else structure(tab)
    )
    tab.evaluate(PUT_FORMULAS)
    return {how: what for how, what in faults.items() if what}
