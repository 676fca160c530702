"""A lesson shown: headings, statements, figures and claims, the text as notes."""

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from press.layout import BookError
from press.slides import slide_deck, write_slides

from .test_checks import pretend_publish


def cell_with_output(text, *tags):
    output = new_output("display_data", {"text/markdown": text})
    return new_code_cell("say()", outputs=[output], metadata={"tags": list(tags)})


def test_what_is_shown_and_what_is_said():
    page = new_notebook(
        cells=[
            new_markdown_cell(
                "# Noise\n\n> **You are here**\n>\n> At noise.\n\nWords."
            ),
            cell_with_output("set up", "remove-cell"),
            new_markdown_cell("## Law\n\n> **Theorem 1.**\n>\n> It is so.\n\n*Proof.*"),
            new_code_cell("silent = 1"),
            cell_with_output("✓ **Holds in this run.** It is."),
            new_markdown_cell("**Figure 1.** It.\n\n- One\n\n- two\n\n## Exercises"),
            new_markdown_cell("Try.\n\n## References"),
            cell_with_output("not shown"),
        ]
    )
    deck = slide_deck(page)
    shown = [
        (cell.metadata.slideshow.slide_type, cell.source.splitlines()[0])
        for cell in deck.cells
    ]
    assert shown == [
        ("slide", "# Noise"),
        ("-", "> **You are here**"),
        ("notes", "Words."),
        ("slide", "## Law"),
        ("subslide", "> **Theorem 1.**"),
        ("notes", "*Proof.*"),
        ("subslide", "say()"),
        ("-", "**Figure 1.** It."),
        ("-", "- One"),
    ]
    nbformat.validate(deck)


def test_slides_are_those_of_the_published_chapter(make_book):
    pytest.importorskip("nbconvert")
    chapter = make_book("answer_to_all = 6 * 7\nprint(answer_to_all)")
    with pytest.raises(BookError, match="make book"):
        write_slides(chapter)
    pretend_publish(chapter, [new_output("stream", text="42\n")])
    slides = write_slides(chapter)
    assert slides == chapter.root / "_build/slides/01_small.html"
    text = slides.read_text("utf-8")
    assert ">42" in text or "42\n" in text
    assert "answer_to_all" not in text, "its code"
