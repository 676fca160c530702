"""The map of the preface shows what the chapters say that they need."""

from pathlib import Path

import pytest
import yaml

from press.ext.book_map import draw, needs_of, parts_of
from press.layout import BookError, Chapter

ROOT = Path(__file__).resolve().parents[2]

LESSON = """(ch-{label})=
# {label}

**You
need**: {needs} · **Keep**: it
"""


def test_needs_of_needs_are_not_drawn(tmp_path):
    (tmp_path / "notebooks").mkdir()
    lessons = []
    for number, (label, needs) in enumerate(
        [("one", ""), ("two", "one"), ("three", "one two"), ("four", "five")], start=1
    ):
        lesson = Chapter(tmp_path, f"0{number}_{label}")
        links = " ".join(f"{{numref}}`ch-{need}`" for need in needs.split())
        lesson.source.write_text(LESSON.format(label=label, needs=links))
        lessons.append(lesson)
    needs = [*needs_of(lessons).values()]
    assert needs == [set(), {"ch-one"}, {"ch-two"}, set()]


@pytest.mark.parametrize(
    ("text", "fault"),
    [("(ch-b)=\n# One\n", "02_b: a second anchor"), ("# One\n", "01_a: no anchor")],
)
def test_a_book_without_places_to_lead_to_is_said(tmp_path, text, fault):
    (tmp_path / "notebooks").mkdir()
    for name, written in (("01_a", text), ("02_b", "(ch-b)=\n# Two\n")):
        (tmp_path / "notebooks" / f"{name}.md").write_text(written)
    part = {"caption": "I", "chapters": [{"file": "01_a"}, {"file": "02_b"}]}
    (tmp_path / "_toc.yml").write_text(yaml.safe_dump({"parts": [part]}))
    with pytest.raises(BookError, match=fault):
        draw(tmp_path)


def test_every_lesson_is_drawn_and_all_but_the_first_need_one_before():
    lessons = [lesson for _, row in parts_of(ROOT) for lesson in row]
    alone = [label for label, needs in needs_of(lessons).items() if not needs]
    assert alone == ["ch-accuracy"]
    picture = draw(ROOT)
    for lesson in lessons:
        assert f'href="chapters/{lesson.name}.html"' in picture
