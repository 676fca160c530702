"""What a page says of itself where it is linked: its first sentences, whole."""

import pytest
from docutils.core import publish_doctree

from press.ext.descriptions import describe


@pytest.mark.parametrize(
    ("text", "description"),
    [
        (
            "It is short.\n\nThis one says what the page is about.",
            "This one says what the page is about.",
        ),
        (
            "We measure :math:`x`. A classifier is asked twice. It agrees or not.",
            "A classifier is asked twice. It agrees or not.",
        ),
        (
            "A classifier is asked twice for its answer: " + "and again, " * 9 + ".",
            "A classifier is asked twice for its answer: and again, and again…",
        ),
        ("So.", "Noise, a page of the book Robustness, Measured."),
    ],
)
def test_a_description_is_of_whole_sentences(text, description):
    page = f"Noise\n=====\n\nIn\n--\n\n{text}\n\nOut\n---\n\nEnd."
    assert describe(publish_doctree(page), 70) == description
