"""Computed numbers have minus signs, and punctuation stays with its formula."""

from __future__ import annotations

import re

import pytest
from docutils import nodes
from docutils.utils import new_document

from press.ext.text import bind_punctuation, set_minus_signs

from .conftest import Site

MINUS = "\N{MINUS SIGN}"


def after(*content: nodes.Node) -> str:
    """Return the text of a page with this content, after the transform."""
    document = new_document("page")
    document += nodes.paragraph("", "", *content)
    set_minus_signs(None, document)
    return document.astext()


def pasted(text: str) -> nodes.inline:
    return nodes.inline("", text, classes=["pasted-text"])


def cell(*content: nodes.Node) -> nodes.entry:
    return nodes.entry("", nodes.paragraph("", "", *content))


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("-4.33", "~4.33"),
        ("-746", "~746"),
        ("-.5", "~.5"),
        ("-∞", "~∞"),
        ("-0.11 (-0.17 to -0.04)", "~0.11 (~0.17 to ~0.04)"),
        ("[-1, -2] < -3", "[~1, ~2] < ~3"),
        ("4.33", "4.33"),
        ("2026-11-22", "2026-11-22"),
        ("resnet-20", "resnet-20"),
        ("1e-05", "1e-05"),
        ("5-7", "5-7"),
        ("- none", "- none"),
        ("-s0", "-s0"),
    ],
)
def test_a_hyphen_before_a_number_becomes_a_minus_sign(
    written: str, shown: str
) -> None:
    shown = shown.replace("~", MINUS)
    assert after(pasted(written)) == shown
    assert after(cell(nodes.Text(written))) == shown
    assert after(cell(nodes.strong("", written))) == shown
    assert after(cell(pasted(written))) == shown


def test_prose_stays_as_it_was_written() -> None:
    assert after(nodes.Text("-4.33 and (-1)")) == "-4.33 and (-1)"


@pytest.mark.parametrize("kind", [nodes.literal, nodes.math, nodes.reference])
def test_code_formulas_and_links_stay(kind: type[nodes.TextElement]) -> None:
    assert after(cell(kind("", "-4.33"))) == "-4.33"


def test_what_follows_something_in_a_cell_is_no_sign() -> None:
    assert after(cell(nodes.emphasis("", "x"), nodes.Text("-20"))) == "x-20"


def test_texts_of_the_same_words_keep_their_places() -> None:
    minus = f"1, {MINUS}4 and 2, {MINUS}4"
    same = (nodes.Text("1, "), pasted("-4"), nodes.Text(" and 2, "), pasted("-4"))
    assert after(*same) == minus
    document = new_document("page")
    content = (nodes.emphasis("", "x"), nodes.Text(", with "), nodes.math("", "a"))
    again = (nodes.Text(", with "), nodes.math("", "b"), nodes.Text("."))
    document += nodes.paragraph("", "", *content, *again)
    bind_punctuation(None, document)
    assert document.astext() == "x, with a, with b."


def test_no_number_on_a_page_has_a_hyphen_for_its_sign(site: Site) -> None:
    found = [
        (page.address, element.get_text(" ", strip=True))
        for page in site.chapters
        for element in page.soup.select(".pasted-text, .cell_output td")
        if re.match(r"-\.?\d", element.get_text(strip=True))
    ]
    assert found == []
