"""Times in the workshop guide are measured or counted, and plans have room for them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import nbformat
import pytest

from press import workshop
from press.layout import BookError, Chapter, list_chapters
from press.source import read_source
from press.timings import (
    read_timings,
    record_timing,
    solution_cells,
    time_quick,
    timings_file,
)

from .conftest import MakeBook, complete

ROOT = Path(__file__).resolve().parents[2]
GUIDE = (ROOT / "book" / "workshop.md").read_text(encoding="utf-8")
PLANS = re.findall(r"^```\{schedule\}\n:start: \S+\n(.*?)^```", GUIDE, re.M | re.S)

TIMINGS = {
    "08_first_measurement": {
        "quick": {
            "core_seconds": 30.0,
            "seconds": 90.0,
            "solutions": {"ex-08-invert": 12.0},
        },
    },
    "09_models": {"quick": {"seconds": 50.0}, "full": {"seconds": 100.0}},
}


def test_what_there_is_to_read(make_book: MakeBook) -> None:
    text = complete().replace(
        "We add.",
        "One two {ref}`three <x>`, $a + b$ four.\n\n$$ x = 1 $$ (eq-x)\n\n"
        ":::{prf:theorem} Five\n:label: thm-x\nSix.\n:::",
    )
    chapter = make_book(text=text)
    found = workshop.measure_reading(read_source(chapter))
    assert found.formulas == 1
    assert found.pictures == 0
    assert found.code_lines == 1  # print; parameters and tests are folded
    longer = make_book(text=text.replace("Six.", "Six seven eight."))
    more = workshop.measure_reading(read_source(longer))
    assert more.words == found.words + 2
    solved = make_book(text=text.replace("\nOne.\n", "\nOne and many more.\n"))
    assert workshop.measure_reading(read_source(solved)) == found
    solved = make_book(text=text.replace("\nTwo.\n", "\nTwo and many more.\n"))
    assert workshop.measure_reading(read_source(solved)) == found


def test_reading_minutes() -> None:
    reading = workshop.Reading(words=400, formulas=3, pictures=2, code_lines=30)
    assert reading.minutes == 2 + (60 + 60 + 60) / 60


def test_solutions_are_found() -> None:
    new = nbformat.v4
    cells = [
        new.new_code_cell("1"),
        new.new_markdown_cell(":::{exercise}\n:label: ex-01-a\n:::\n"
                              "::::{solution-start} ex-01-a\n:class: dropdown\n::::"),
        new.new_code_cell("2"),
        new.new_markdown_cell("so"),
        new.new_code_cell("3"),
        new.new_markdown_cell("::::{solution-end}\n::::"),
        new.new_code_cell("4"),
        new.new_markdown_cell("```{solution-start} ex-01-b\n```"),
        new.new_code_cell("5"),
    ]  # fmt: skip
    notebook = new.new_notebook(cells=cells)
    assert list(solution_cells(notebook)) == [
        (2, "ex-01-a"),
        (4, "ex-01-a"),
        (8, "ex-01-b"),
    ]


@pytest.mark.slow
def test_timing(make_book: MakeBook) -> None:
    solution = "\n```{code-cell} python\nimport time\ntime.sleep(0.3)\n```\n"
    text = complete().replace("\nTwo.\n", f"\nTwo.\n{solution}")
    chapter = make_book(text=text)
    record_timing(chapter, 9.0, profile="full")
    ((timed, seconds),) = time_quick([chapter])
    assert timed == chapter
    row = read_timings(chapter.root)["01_small"]
    assert row["full"]["seconds"] == 9.0
    quick = row["quick"]
    assert quick["seconds"] == round(seconds, 1) > quick["core_seconds"] > 0
    assert 0.3 <= quick["solutions"]["ex-01-two"] < quick["seconds"]


def test_a_chapter_that_is_gone_is_forgotten(make_book: MakeBook) -> None:
    chapter = make_book()
    timings_file(chapter.root).parent.mkdir(parents=True)
    timings_file(chapter.root).write_text(json.dumps({"07_gone": {}}))
    record_timing(chapter, 1.0, profile="quick")
    assert list(read_timings(chapter.root)) == ["01_small"]


def test_a_plan() -> None:
    text = (
        "\n15 | Set-up | all\n\n 30| {numref}`ch-08` and {ref}`so <ex-08-invert>` | \n"
    )
    first, second = workshop.read_plan(text)
    assert (first.minutes, first.what, first.live) == (15, "Set-up", "all")
    assert second.labels == ("ch-08", "ex-08-invert")
    for line in ("15 | no live", "long | what | live", "15 | | live"):
        with pytest.raises(BookError, match=r"expected MINUTES \| WHAT \| LIVE"):
            workshop.read_plan(line)


def test_what_runs_in_it() -> None:
    labels = ["ch-08", "ex-08-invert", "ex-08-hard", "ch-09", "ch-27"]
    assert workshop.run_seconds(labels, TIMINGS) == (30 + 12 + 50, ["ch-27"])
    plan = workshop.read_plan("1 | {numref}`ch-08` | {ref}`ex-08-invert`")
    (fault,) = workshop.faults(plan, TIMINGS)
    assert fault.startswith("1 minutes for ch-08, ex-08-invert, which run 42 s")
    plan = workshop.read_plan("2 | {numref}`ch-08` | {ref}`ex-08-invert`")
    assert workshop.faults(plan, TIMINGS) == []


def test_the_clock() -> None:
    assert workshop.clock("23:50", 20) == "00:10"


def test_the_table(make_book: MakeBook) -> None:
    root = make_book().root
    assert "Nothing has been timed" in workshop.times_table(root)
    chapter = Chapter(root, "01_small")
    record_timing(chapter, 12.3, profile="full")
    record_timing(chapter, 9.0, profile="quick", core_seconds=4.2, solutions={"x": 2.1})
    table = workshop.times_table(root)
    assert "{ref}`ch-01` | 0 | 4 | 2 | 12 |" in table
    assert "Seconds on " in table


def test_the_guide_has_room_for_what_runs() -> None:
    assert len(PLANS) == 2
    timings = read_timings(ROOT)
    known = {chapter.name[:2] for chapter in list_chapters(ROOT)}
    for plan in PLANS:
        items = workshop.read_plan(plan)
        assert workshop.faults(items, timings) == []
        assert 180 <= sum(item.minutes for item in items) <= 240
        _, untimed = workshop.run_seconds([x for i in items for x in i.labels], timings)
        assert not [label for label in untimed if label[3:5] in known], (
            "run `robustbook time --missing`"
        )


def test_the_guide_types_no_seconds() -> None:
    assert not re.search(r"\d+(\.\d+)?\s*(s|sec|seconds)\b", GUIDE)
