"""What axe-core finds wrong with a page that a tab shows."""

from .conftest import DESKTOP, PHONE

# The theme looks for what scrolls a while after the width has changed; the clock is the
# page's, as a busy machine may take longer to lay it out.
REST = """
() => new Promise((done) => requestAnimationFrame(
  () => requestAnimationFrame(() => setTimeout(done, 350))))
"""


def turn(tab, viewport):
    """Show a page on another screen, and let it settle."""
    if tab.viewport_size != viewport:
        tab.set_viewport_size(viewport)
        tab.evaluate(REST)


def violations(tab, context=None, **options):
    """Return the serious faults that a page has, with their first elements."""
    from axe_playwright_python.sync_playwright import Axe

    options |= {"resultTypes": ["violations"], "preload": False}
    return {
        fault["id"]: [node["html"][:150] for node in fault["nodes"][:3]]
        for fault in Axe().run(tab, context, options).response["violations"]
        if fault["impact"] in ("serious", "critical")
    }


COLORS = ["color-contrast", "link-in-text-block"]


def faults_of(tab):
    """Look at a page in both themes on a desktop, and at its structure on a phone."""
    tab.add_style_tag(content="* { transition: none !important }")
    faults = {}
    for screen, theme, options in (
        (DESKTOP, "dark", {"runOnly": COLORS}),
        (DESKTOP, "light", {}),
        (PHONE, "light", {"rules": {rule: {"enabled": False} for rule in COLORS}}),
    ):
        turn(tab, screen)
        tab.evaluate("name => { document.documentElement.dataset.theme = name }", theme)
        if serious := violations(tab, **options):
            faults[f"{screen['width']}, {theme}"] = serious
    return faults
