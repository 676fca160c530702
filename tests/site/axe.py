"""axe-core, as axe-playwright-python brings it, asked no more than it must be.

A contrast is looked at once for each pair of colors that the site shows, not once for
each word of each page; and so is what tells a link from the text around it.
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

# One element for each pair of colors, with its size and weight, and one link for each
# look of links in each look of text, that is not settled. Text whose tags and classes,
# up to the root, have been seen on some page is left out. The rest of the page is taken
# away meanwhile: what axe-core takes, it takes for each element of a page.
# Returns what is legible, what axe-core cannot tell, the faults, and the numbers of
# what has been seen now.
LEGIBLE = """
async ([settled, seen]) => {
  const known = new Set(settled), samples = new Map();
  const old = new Set(seen), pairs = new Map();
  const once = (compute, kept = new Map()) => (element) => {
    if (!kept.has(element)) kept.set(element, compute(element));
    return kept.get(element);
  };
  const chain = once((element) => {
    if (!element) return 0;
    let number = chain(element.parentElement);
    const names = ["class", "style"].map((name) => element.getAttribute(name));
    for (const c of element.tagName + names)
      number = (Math.imul(number, 31) + c.codePointAt(0)) | 0;
    return number;
  });
  const groundOf = (element) => {
    if (!element) return "";
    const { backgroundColor, opacity } = getComputedStyle(element);
    return (backgroundColor === "rgba(0, 0, 0, 0)" ? "" : backgroundColor) +
      (opacity === "1" ? "" : opacity) + ground(element.parentElement);
  };
  let ground = once(groundOf);
  const lookOf = (element) => {
    const { color, fontSize, fontWeight } = getComputedStyle(element);
    return [color, fontSize, fontWeight, ground(element)].join();
  };
  const block = once((element) =>
    getComputedStyle(element).display.startsWith("inline") && element.parentElement
      ? block(element.parentElement) : element);
  const size = (element) => element.textContent.replace(/\\s+/g, "").length;
  // As axe-core has it: a link in a text that is longer than its links.
  const inText = once((element) => {
    const links = [...element.querySelectorAll("a[href]")].map(size);
    return size(element) > 2 * links.reduce((a, b) => a + b, 0) &&
      `in text${element.querySelector("br") ? " of lines" : ""}`;
  });
  const linkOf = (link) => [link, link.parentElement, block(link.parentElement)]
    .map((element) => {
      const style = getComputedStyle(element);
      const { display, fontStyle, textDecoration, borderBottom } = style;
      return [lookOf(element), display, fontStyle, textDecoration, borderBottom].join();
    })
    .concat(inText(block(link.parentElement))).join("; ");
  // Of a single character, axe-core cannot tell.
  const long = (element) => element.textContent.trim().length > 1;
  const consider = (kind, key, element) => {
    const sample = samples.get(key)?.element;
    if (known.has(key) || (sample && (long(sample) || !long(element)))) return key;
    if (element.checkVisibility({ visibilityProperty: true, opacityProperty: true }))
      samples.set(key, { kind, element });
    return key;
  };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node; (node = walker.nextNode()); ) {
    const element = node.parentElement;
    if (!node.data.trim()) continue;
    const link = element.closest("a[href]");
    const within = link && inText(block(link.parentElement));
    const number = chain(element) + (within || "");
    if (old.has(number) || element.closest("script, style, mjx-container")) continue;
    const keys = [consider("contrast", lookOf(element), element)];
    if (within) keys.push(consider("link", linkOf(link), link));
    pairs.set(number, [...(pairs.get(number) ?? []), ...keys]);
  }
  const through = (legible) => [...pairs]
    .filter(([, keys]) => keys.every((key) => known.has(key) || legible.has(key)))
    .map(([number]) => number);
  if (!samples.size) return [[], [], [], through(known)];
  const whole = new Set(), path = new Set(), emptied = [];
  for (const { element } of samples.values()) {
    whole.add(block(element));
    for (let e = block(element); e; e = e.parentElement) path.add(e);
  }
  const prune = (parent) => [...parent.children].forEach((child) => {
    if (whole.has(child) || child.matches("style, script")) return;
    if (path.has(child)) return prune(child);
    const content = document.createDocumentFragment();
    content.append(...child.childNodes);
    emptied.push([child, content]);
  });
  const putBack = () => emptied.forEach(([child, content]) => child.append(content));
  prune(document.body);
  ground = once(groundOf);
  const keys = { contrast: new Map(), link: new Map() };
  for (const [key, { kind, element }] of samples) {
    keys[kind].set(element, key);
    element.dataset.sample = "";
    // It looks otherwise without the rest.
    if (key !== (kind === "link" ? linkOf : lookOf)(element)) putBack();
  }
  const { violations, passes } = await axe.run(
    { include: [["[data-sample]"]] },
    { runOnly: ["color-contrast", "link-in-text-block"],
      resultTypes: ["violations", "passes"], elementRef: true, preload: false },
  );
  const kind = { "color-contrast": "contrast", "link-in-text-block": "link" };
  const legible = new Set(passes.flatMap(({ id, nodes }) =>
    nodes.map(({ element }) => keys[kind[id]].get(element))));
  putBack();
  samples.forEach(({ element }) => delete element.dataset.sample);
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


def structure(tab, *without):
    """Return what all rules but that of contrasts, and these, find."""
    rules = {name: {"enabled": False} for name in ("color-contrast", *without)}
    return tab.evaluate(RUN, {"rules": rules})


def _legible(tab, theme):
    set_theme(tab, theme)
    settled = [pair for pair, times in _tried.items() if times >= TRIES]
    seen = _seen[f"{theme}, {tab.viewport_size['width']}"]
    legible, unknown, faults, now = tab.evaluate(LEGIBLE, [settled, [*seen]])
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
    faults = {theme: _legible(tab, theme) for theme in ("dark", "light")}
    tab.evaluate(PLAIN_CODE)
    phone = tab.viewport_size == PHONE
    faults["structure"] = (
        tab.evaluate(RUN, {"runOnly": WIDTH_RULES})
        if phone
        else structure(tab, "link-in-text-block")
    )
    tab.evaluate(PUT_FORMULAS)
    return {how: what for how, what in faults.items() if what}
