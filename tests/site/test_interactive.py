"""The figures to play with say what the package computes, by hand and by keyboard."""

import pytest
import torch

from robustbook.agreement import (
    agreement_curve,
    posterior_agreement,
    symmetric_channel_capacity,
)

from .conftest import PHONE, open_tab, settle, start

pytestmark = pytest.mark.chromium
KERNEL = "#interactive-kernel"
HARD = "#interactive-hard-decisions"


@pytest.fixture(scope="module")
def opened(browser, site):
    """Return a function that opens the chapter with a figure, once for each screen."""
    tabs = {}

    def opened(name, **options):
        key = name, *options
        if key not in tabs:
            (chapter,) = [page for page in site.chapters if page.soup.select(name)]
            tabs[key] = open_tab(browser, formulas=key == (KERNEL,), **options)
            start(tabs[key], site, chapter)
            settle(tabs[key])
            tabs[key].locator(f"{name} svg").wait_for()
        return tabs[key]

    yield opened
    for tab in tabs.values():
        tab.context.close()


def signal(tab, name, what):
    """What the figure computes now."""
    return tab.evaluate(
        f"async () => (await document.querySelector('{name}').view.runAsync()).{what}"
    )


def test_the_kernel_in_the_hands_is_the_packages(opened):
    tab = opened(KERNEL)
    presets = tab.get_by_label("Start from")
    for name in presets.locator("option").all_inner_texts():
        presets.select_option(name)
        logits = torch.tensor(signal(tab, KERNEL, "signal('logits')"))
        pairs = logits.double().reshape(3, 2, 3).unbind(1)
        here = signal(tab, KERNEL, "signal('value')")
        beta = 10 ** signal(tab, KERNEL, "signal('log_beta')")
        assert here == pytest.approx(float(agreement_curve(*pairs, [beta])), abs=1e-6)
        best = signal(tab, KERNEL, "signal('best').J")
        exact = posterior_agreement(*pairs)
        assert exact.pa - 2e-3 <= best <= exact.pa + 1e-9
    assert tab.complaints == []
    assert tab.foreign == []


def test_a_logit_moves_by_mouse_and_keyboard(opened):
    tab = opened(KERNEL)
    dot = tab.locator(f"{KERNEL} .mark-symbol.role-mark path").nth(10)
    dot.scroll_into_view_if_needed()
    before = signal(tab, KERNEL, "signal('logits')")
    box = dot.bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    tab.mouse.move(x, y)
    tab.mouse.down()
    tab.mouse.move(x, y - 20, steps=4)
    tab.mouse.up()
    after = signal(tab, KERNEL, "signal('logits')")
    assert after[10] > before[10] + 0.5
    assert after[:10] + after[11:] == before[:10] + before[11:]
    slider = tab.get_by_label("Its value")
    slider.focus()
    slider.press("ArrowLeft")
    tab.wait_for_timeout(100)
    assert signal(tab, KERNEL, "signal('logits')")[10] == pytest.approx(
        after[10] - 0.05
    )


def test_a_finger_moves_a_logit_and_not_the_page(opened):
    tab = opened(KERNEL, viewport=PHONE, has_touch=True)
    dot = tab.locator(f"{KERNEL} .mark-symbol.role-mark path").nth(13)
    dot.scroll_into_view_if_needed()
    before, top = signal(tab, KERNEL, "signal('logits')"), tab.evaluate("scrollY")
    box = dot.bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    session = tab.context.new_cdp_session(tab)
    for kind, down in (("Start", 0), ("Move", 8), ("Move", 16), ("Move", 24)):
        touch = {"type": f"touch{kind}", "touchPoints": [{"x": x, "y": y + down}]}
        session.send("Input.dispatchTouchEvent", touch)
    session.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
    assert signal(tab, KERNEL, "signal('logits')")[13] < before[13] - 0.5
    assert tab.evaluate("scrollY") == top


@pytest.mark.parametrize(("classes", "mismatch"), [(10, 0.1), (2, 0.3), (1000, 0.5)])
def test_hard_decisions_reach_the_capacity(opened, classes, mismatch):
    tab = opened(HARD)
    tab.get_by_label("Classes K").select_option(str(classes))
    tab.get_by_role("slider", name="Share of changed").fill(str(mismatch))
    tab.wait_for_timeout(100)
    capacity = symmetric_channel_capacity(mismatch, classes)
    assert signal(tab, HARD, "signal('capacity')") == pytest.approx(capacity)
    best = signal(tab, HARD, "data('top')[0].J")
    assert best == pytest.approx(capacity, abs=5e-3)


@pytest.mark.parametrize("name", [KERNEL, HARD])
def test_figures_fit_a_phone(opened, name):
    tab = opened(name, viewport=PHONE, has_touch=True)
    drawn = tab.locator(f"{name} svg").bounding_box()
    assert drawn["x"] >= 0
    assert drawn["x"] + drawn["width"] <= 390
    sizes = tab.locator(f"{name} svg text").evaluate_all(
        "all => all.map(one => parseFloat(getComputedStyle(one).fontSize))"
    )
    assert min(sizes) >= 9
