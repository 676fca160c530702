"""Each fault of a book is reported once, with its remedy."""

import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from press.checks import check
from press.claims import is_test
from press.source import METADATA, read_source, render
from press.stamps import STAMP, code_sum
from press.status import write_status

from .conftest import complete, write_pair

Edit = Callable[[str], str]


def pretend_publish(chapter, outputs=None, *, pair=True):
    """Publish without running: stamp the source, give its first cell outputs."""
    if pair:
        write_pair(chapter)
    notebook = read_source(chapter).notebook
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    if outputs:
        code[1].outputs = outputs
    for cell in filter(is_test, code):
        claim = {"output_type": "display_data", "data": {"text/plain": "Two."}}
        cell.outputs = [claim | {"metadata": {"robustbook_claim": True}}]
    notebook.metadata = METADATA | {
        STAMP: {
            "code_sha256": code_sum(chapter),
            "parameters": {"profile": "full", "device": "cpu"},
            "versions": {"python": "3.11"},
        }
    }
    chapter.published.parent.mkdir(parents=True, exist_ok=True)
    chapter.published.write_text(json.dumps(notebook))
    write_status(chapter.root)


@pytest.fixture
def chapter(make_book):
    """Return the chapter of a book without a fault."""
    chapter = make_book()
    pretend_publish(chapter)
    return chapter


def faults(chapter):
    return [str(problem) for problem in check(chapter.root)]


def cut(start, end):
    return lambda text: text[: text.index(start)] + text[text.index(end) :]


def swap(old, new):
    return lambda text: text.replace(old, new)


FIGURE = """\
---
mystnb:
  figure: {name: fig-sum, caption: A sum.}
---
say("Two.")"""


@pytest.mark.parametrize(
    ("edit", "fault"),
    [
        (cut("## Key takeaways", "## Exercises"), "no heading Key takeaways"),
        (cut("## References", "None."), "no heading References"),
        (swap("You are here", "Reading"), "no box You are here"),
        (swap("(ch-accuracy)=", "(chapter-1)="), "no anchor (ch-name)="),
        (
            swap(":label: ex-accuracy-two", ":label: ex-accuracy-too"),
            "ex-accuracy-too has no solution",
        ),
        (
            swap(":label: ex-accuracy-two", ":label: ex-accuracy-too"),
            "solution of no exercise: ex-accuracy-two",
        ),
        (
            cut(":::{solution} ex-accuracy-one", "````{exercise-start}"),
            "ex-accuracy-one has no",
        ),
        (
            cut(":::{exercise}", ":::{solution} ex-accuracy-one"),
            "1 exercises with a label",
        ),
        (swap("claim(", "say("), "no tested claim"),
        (swap("[parameters]", "[long]"), "the first code cell is no parameters cell"),
        (swap("print(profile, seed)", "print(seed)\n" * 16), "16 lines of code"),
        (swap("[parameters]", "[parameters, remove-input]"), "2 of 3 code cells are"),
        (swap("We add.", "We add {glue:text}`sum-two:d`."), "a number of a run"),
        (swap("profile, seed", "'fontsize=10'"), "letters too small"),
        (swap("print(profile, seed)", FIGURE), "a figure's cell that also says"),
    ],
)
def test_faults_of_the_text(make_book, edit, fault):
    chapter = make_book(text=edit(complete()))
    pretend_publish(chapter)
    lines = faults(chapter)
    assert any(fault in line for line in lines), lines
    assert all(line.startswith("notebooks/01_small.md") for line in lines), lines
    if "16 lines" in fault:
        number = chapter.source.read_text().splitlines().index("print(seed)") + 1
        assert lines[0].startswith(f"notebooks/01_small.md:{number}: ")


PRINTS = "print(profile, seed)"
CLAIMS = 'claim("One and one make two.", 1 + 1 == 2)\n'


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (PRINTS, ":tags: [long]\n\n" + "print(seed)\n" * 16),
        (CLAIMS, CLAIMS * 16),
        (PRINTS, 'say("Two.")'),
    ],
)
def test_a_cell_may_speak_and_be_long_where_it_says_so_or_is_hidden(
    make_book, old, new
):
    chapter = make_book(text=swap(old, new)(complete()))
    pretend_publish(chapter)
    assert faults(chapter) == []


PAIR, PUBLISHED = "notebooks/01_small.ipynb", "book/chapters/01_small.ipynb"


@pytest.mark.parametrize(
    ("file", "edit", "fault"),
    [
        (PAIR, swap("profile, seed", "profile, speed"), "its code is not that of"),
        (PUBLISHED, swap("We add.", "We sum."), "its text is not the present one"),
        (PUBLISHED, swap("seed = 0", "seed = 1"), "stale: its code changed"),
        (PUBLISHED, swap('"robustbook_claim": true', ""), "-004: a claim that is neve"),
        (PUBLISHED, swap('"full"', '"quick"'), "published with profile quick"),
        (PUBLISHED, swap("One at 1", "<A at 0x7f00aa11bb>"), "shows a memory address"),
        (PUBLISHED, swap('n": "Two.', 'n": "<A at 0x7f00aa11bb>'), ""),  # unseen
        ("_toc.yml", swap("01_small", "02_small"), "01_small is missing"),
        (
            "_toc.yml",
            lambda text: text + text.splitlines()[-1],
            "out of order or twice",
        ),
        ("book/status.md", swap("Seconds", "Hours"), "out of step with the executed"),
    ],
)
def test_a_file_out_of_step(chapter, file, edit, fault):
    printed = {"output_type": "stream", "name": "stdout", "text": "One at 1"}
    pretend_publish(chapter, [printed])
    path = chapter.root / file
    path.write_text(edit(path.read_text()))
    if file != "book/status.md":
        write_status(chapter.root)
    lines = faults(chapter)
    assert [file in line and fault in line for line in lines] == [True] * bool(fault)


def test_a_notebook_that_is_missing_or_has_no_text(chapter):
    chapter.pair.unlink()
    for folder in (chapter.pair.parent, chapter.published.parent):
        (folder / "02_gone.ipynb").write_text(render(read_source(chapter).notebook))
    missing, *gone = faults(chapter)
    assert missing == "notebooks/01_small.ipynb: missing; make book"
    assert len(gone) == 2
    assert all("no notebooks/02_gone.md; git rm it" in fault for fault in gone)


def test_an_audit_needs_no_exercises(make_book):
    lesson = make_book(text=cut("## Key takeaways", "## References")(complete()))
    assert any("0 exercises" in fault for fault in faults(lesson))
    audit = replace(lesson, name="01_audit_of_sums")
    audit.source.write_text(lesson.source.read_text())
    for path in (lesson.source, lesson.pair):
        path.unlink()
    contents = lesson.root / "_toc.yml"
    contents.write_text(contents.read_text().replace(lesson.name, audit.name))
    pretend_publish(audit)
    assert faults(audit) == []
