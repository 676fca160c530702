"""Every takeaway that compares or ranks says what that rests on.

What was proved, or is so by definition, links to its theorem, definition or example.
What was measured links to a figure whose caption says that it shows intervals, or to a
section in which a cell says the claim with its numbers.
"""

import re
from pathlib import Path

import pytest

from press.layout import list_chapters

ROOT = Path(__file__).resolve().parents[2]
LESSONS = {c.name: c for c in list_chapters(ROOT) if not c.is_audit}

COMPARES = re.compile(
    r"""
    (?<!at\ )(?<!any\ )\b(more|less|most|least)\b
    | \b(better|best|worse|worst|fewer|fewest|steadier|cheaper|surer|closer|ahead)\b
    | \b(high|low|great|larg|small|strong|weak|short|long|tight|near)(er|est)\b
    | \brank(s|ed|ing|ings)?\b
    | \bas\ \w+\ as\b | \btimes\ as\b
    | \b(alike|equally|tells?\ .*\ apart|differs?|outlasts?|survives?)\b
    """,
    re.VERBOSE,
)
PROVED = re.compile(r"\{prf:ref\}`(thm|prop|lem|cor|exa|def)-")
FIGURE = re.compile(r"\{numref\}`(?:[^`<]*<)?(fig-[\w-]+)>?`")
SECTION = re.compile(r"\{ref\}`(?:[^`<]*<)?(sec-[\w-]+)>?`")
#: A role, such as a reference: its label is no comparison.
ROLE = re.compile(r"\{[\w:]+\}`[^`]*`")
#: What a caption calls its intervals.
SHOWN = re.compile(r"\b(interval|error bar|band|standard error)s?\b|±")


def takeaways(text):
    """The list under "Key takeaways", an item a line."""
    _, _, rest = text.partition("\n## Key takeaways\n")
    items = re.split(r"^- ", rest.partition("\n## ")[0], flags=re.MULTILINE)[1:]
    return [" ".join(item.split()) for item in items]


def caption(text, name):
    """What stands below a figure, or nothing where the chapter has no such figure."""
    _, found, rest = text.partition(f"name: {name}\n")
    return rest.partition("\ntags:")[0].partition("\n---")[0] if found else ""


def section(text, name):
    """What stands under a labeled heading."""
    _, _, rest = text.partition(f"\n({name})=\n## ")
    return rest.partition("\n## ")[0]


def rests_on_something(item, text):
    """Whether a theorem, an interval or a claim is named, and is there."""
    if PROVED.search(item):
        return True
    if any("claim(" in section(text, name) for name in SECTION.findall(item)):
        return True
    return any(SHOWN.search(caption(text, name)) for name in FIGURE.findall(item))


@pytest.mark.parametrize(
    "item",
    [
        "A is better than B (±).",
        "A is better than B, 3 ± 1.",
        "A is better than B ({ref}`ex-one`).",
        "A is better than B ({eq}`eq-one`).",
        "A is better than B ({numref}`fig-bars`).",
        "A is better than B ({ref}`sec-bars`).",
    ],
)
def test_a_sign_or_a_link_alone_is_nothing_to_rest_on(item):
    text = "name: fig-bars\ncaption: One bar for each.\n---\n(sec-bars)=\n## Bars\n"
    assert COMPARES.search(ROLE.sub("", item))
    assert not rests_on_something(item, text)


@pytest.mark.parametrize("name", LESSONS)
def test_a_takeaway_that_compares_rests_on_something(name):
    text = LESSONS[name].source.read_text(encoding="utf-8")
    assert takeaways(text)
    bare = [
        item
        for item in takeaways(text)
        if COMPARES.search(ROLE.sub("", item)) and not rests_on_something(item, text)
    ]
    assert not bare, f"say what it rests on: {bare}"
