"""Every takeaway that compares or ranks says what that rests on.

What was proved, or is so by definition, links to its theorem, definition or example.
What was measured carries its interval: a number glued under a name that ends in
``-ci``, a ± between two glued numbers with the kind of error it is, or a link to a
figure whose caption says that it shows intervals.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from press.layout import Chapter, list_chapters

ROOT = Path(__file__).resolve().parents[2]
CHAPTERS = {chapter.name[:2]: chapter for chapter in list_chapters(ROOT)}

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
INTERVAL = re.compile(r"\{glue:text\}`(c\d\d-[\w-]+-ci)`")
#: A role, such as a reference: its label is no comparison.
ROLE = re.compile(r"\{[\w:]+\}`[^`]*`")
#: What a caption calls its intervals.
SHOWN = re.compile(r"\b(interval|error bar|band|standard error)s?\b|±")
#: A measured number and its error, and what error that is.
ERROR = re.compile(r"\{glue:text\}`[^`]*`\s*\(?±\s*\{glue:text\}`[^`]*`")
KIND = re.compile(r"\b95 %|\bstandard (error|deviation)s?\b")
#: Two ends, or a number and its error.
ENDS = re.compile(r"[+−-]?\d[\d.,]*\s?%?\s?(to|±)\s?[+−-]?\d[\d.,]*")


def takeaways(text: str) -> list[str]:
    """The list under "Key takeaways", an item a line."""
    _, _, rest = text.partition("\n## Key takeaways\n")
    items = re.split(r"^- ", rest.partition("\n## ")[0], flags=re.MULTILINE)[1:]
    return [" ".join(item.split()) for item in items]


def caption(text: str, name: str) -> str:
    """What stands below a figure, or nothing where the chapter has no such figure."""
    _, found, rest = text.partition(f"name: {name}\n")
    return rest.partition("\ntags:")[0].partition("\n---")[0] if found else ""


def rests_on_something(item: str, text: str) -> bool:
    """Whether a proof or an interval is named, and the interval is there."""
    if PROVED.search(item) or (ERROR.search(item) and KIND.search(item)):
        return True
    # Glued as it is called, or by a helper that adds the chapter.
    said = [(f'"{name}"', f'"{name[4:]}"') for name in INTERVAL.findall(item)]
    if any(whole in text or bare in text for whole, bare in said):
        return True
    return any(SHOWN.search(caption(text, name)) for name in FIGURE.findall(item))


@pytest.mark.parametrize(
    "item",
    [
        "A is better than B (±).",
        "A is better than B, 3 ± 1.",
        "A is better, {glue:text}`c01-a` ± {glue:text}`c01-b`.",
        "A is better than B ({ref}`ex-01-one`).",
        "A is better than B ({eq}`eq-01-one`).",
        "A is better than B ({numref}`fig-01-bars`).",
        "A is better than B ({glue:text}`c01-a-ci`).",
    ],
)
def test_a_sign_or_a_link_alone_is_nothing_to_rest_on(item: str) -> None:
    text = "name: fig-01-bars\ncaption: One bar for each.\n---\n"
    assert COMPARES.search(ROLE.sub("", item))
    assert not rests_on_something(item, text)


@pytest.mark.parametrize("number", CHAPTERS)
def test_a_takeaway_that_compares_rests_on_an_interval_or_a_proof(number: str) -> None:
    text = CHAPTERS[number].source.read_text(encoding="utf-8")
    assert takeaways(text)
    bare = [
        item
        for item in takeaways(text)
        if COMPARES.search(ROLE.sub("", item)) and not rests_on_something(item, text)
    ]
    assert not bare, f"say what it rests on: {bare}"


def published(chapter: Chapter) -> dict[str, str]:
    """The values that the executed chapter glued."""
    notebook = json.loads(chapter.published.read_text(encoding="utf-8"))
    return {
        output["metadata"]["scrapbook"]["name"]: "".join(value)
        for cell in notebook["cells"]
        for output in cell.get("outputs", ())
        if "scrapbook" in output.get("metadata", {})
        for kind, value in output["data"].items()
        if kind.endswith("text/plain")
    }


@pytest.mark.parametrize("number", CHAPTERS)
def test_what_is_glued_as_an_interval_has_two_ends(number: str) -> None:
    values = published(CHAPTERS[number])
    assert values
    odd = {
        name: value
        for name, value in values.items()
        if name.endswith("-ci") and not ENDS.search(value)
    }
    assert not odd
