"""README's picture is the figure of the published chapter."""

from __future__ import annotations

import base64

import nbformat

from robustbook.chapters import picture
from robustbook.chapters.layout import Chapter

from .conftest import MakeBook

PIXEL = b"\x89PNG\r\n\x1a\n a picture"


def publish_figure(chapter: Chapter, name: str) -> None:
    cell = nbformat.v4.new_code_cell(
        metadata={"mystnb": {"figure": {"name": name}}},
        outputs=[
            nbformat.v4.new_output(
                "display_data", {"image/png": base64.b64encode(PIXEL).decode()}
            )
        ],
    )
    published = Chapter(chapter.root, picture.CHAPTER).published
    published.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(nbformat.v4.new_notebook(cells=[cell]), published)


def test_the_picture_follows_its_chapter(make_book: MakeBook) -> None:
    root = make_book().root
    assert picture.picture_bytes(root) is None
    assert not picture.write_picture(root)
    publish_figure(make_book(), "fig-other")
    assert picture.picture_bytes(root) is None
    publish_figure(make_book(), picture.FIGURE)
    assert picture.write_picture(root)
    assert picture.picture_path(root).read_bytes() == PIXEL
    assert not picture.write_picture(root)
