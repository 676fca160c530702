"""Chapters are found by name, number or path."""

import pytest

from press.layout import BookError, find_chapter, list_chapters


@pytest.fixture
def root(tmp_path):
    (tmp_path / "notebooks").mkdir()
    (tmp_path / "_toc.yml").touch()
    for name in ("02_two", "01_one", "12_twelve"):
        (tmp_path / "notebooks" / f"{name}.md").touch()
    return tmp_path


@pytest.mark.parametrize(
    "wanted", ["02_two", "2", "02", "notebooks/02_two.md", "book/chapters/02_two.ipynb"]
)
def test_a_chapter_has_many_names(root, wanted):
    assert find_chapter(root, wanted).name == "02_two"


@pytest.mark.parametrize("wanted", ["3", "two", "1_one", ""])
def test_no_such_chapter(root, wanted):
    with pytest.raises(BookError, match=r"this book has 01_one, 02_two, 12_twelve"):
        find_chapter(root, wanted)


def test_one_number_for_two_chapters(root):
    (root / "notebooks" / "02_more.md").touch()
    with pytest.raises(BookError, match="no chapter '2'"):
        find_chapter(root, "2")


def test_a_name_that_is_no_name(root):
    (root / "notebooks" / "Third.md").touch()
    with pytest.raises(BookError, match=r"notebooks/Third.md: expected a name"):
        list_chapters(root)
