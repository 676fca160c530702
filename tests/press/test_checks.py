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


def test_a_good_book_has_none(chapter):
    assert faults(chapter) == []


def test_a_stale_chapter(make_book):
    chapter = make_book()
    assert any("stale: it was never executed; make book" in f for f in faults(chapter))
    pretend_publish(chapter)
    chapter.source.write_text(chapter.source.read_text() + "\nMore.\n")
    write_pair(chapter)
    assert faults(chapter) == [
        "book/chapters/01_small.ipynb: its text is not the present one; make book"
    ]
    chapter.source.write_text(
        chapter.source.read_text().replace("seed = 0", "seed = 1")
    )
    write_pair(chapter)
    assert faults(chapter) == [
        "book/chapters/01_small.ipynb: stale: its code changed; make book"
    ]


def test_a_pair_out_of_step(chapter):
    text = chapter.pair.read_text()
    chapter.pair.write_text(text.replace("profile, seed", "profile, speed"))
    assert faults(chapter) == [
        "notebooks/01_small.ipynb: its code is not that of its text; make book"
    ]
    chapter.pair.unlink()
    assert faults(chapter) == ["notebooks/01_small.ipynb: missing; make book"]


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


PRINTS = "print(profile, seed)"
CLAIMS = 'claim("One and one make two.", 1 + 1 == 2)\n'


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (PRINTS, ":tags: [long]\n\n" + "print(seed)\n" * 16),
        (CLAIMS, CLAIMS * 16),
    ],
)
def test_a_cell_may_be_long_that_says_so_or_is_not_shown(make_book, old, new):
    chapter = make_book(text=swap(old, new)(complete()))
    pretend_publish(chapter)
    assert faults(chapter) == []


def test_a_problem_names_its_line(make_book):
    chapter = make_book(text=swap(PRINTS, "x = 1\n" * 16)(complete()))
    pretend_publish(chapter)
    number = chapter.source.read_text().splitlines().index("x = 1") + 1
    (problem,) = faults(chapter)
    assert problem.startswith(f"notebooks/01_small.md:{number}: 16 lines")


def test_a_claim_that_is_never_said(chapter):
    text = chapter.published.read_text().replace('"robustbook_claim": true', "")
    chapter.published.write_text(text)
    (problem,) = faults(chapter)
    assert "cell 01_small-004: a claim that is never said" in problem


def test_an_address_of_memory_is_seen(chapter):
    printed = {"output_type": "stream", "name": "stdout", "text": "<A at 0x7f00aa11bb>"}
    pretend_publish(chapter, [printed])
    (problem,) = faults(chapter)
    assert "cell 01_small-003: shows a memory address" in problem


def test_an_address_that_no_reader_sees_is_none(chapter):
    text = chapter.published.read_text().replace(
        'n": "Two."', 'n": "<A at 0x7f00aa11bb>"'
    )
    chapter.published.write_text(text)
    assert faults(chapter) == []


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


def test_published_with_another_profile(chapter):
    text = chapter.published.read_text().replace('"full"', '"quick"')
    chapter.published.write_text(text)
    write_status(chapter.root)
    assert any("published with profile quick" in line for line in faults(chapter))


def test_strays(chapter):
    for folder in (chapter.pair.parent, chapter.published.parent):
        (folder / "02_gone.ipynb").write_text(render(read_source(chapter).notebook))
    assert faults(chapter) == [
        "notebooks/02_gone.ipynb: no notebooks/02_gone.md; git rm it",
        "book/chapters/02_gone.ipynb: no notebooks/02_gone.md; git rm it",
    ]


@pytest.mark.parametrize(
    ("toc", "fault"),
    [
        ("root: intro\nchapters: []\n", "book/chapters/01_small is missing"),
        (
            "root: intro\nchapters:\n  - file: book/chapters/01_small\n"
            "  - file: book/chapters/01_small\n",
            "out of order or twice",
        ),
    ],
)
def test_table_of_contents(chapter, toc, fault):
    (chapter.root / "_toc.yml").write_text(toc)
    (problem,) = faults(chapter)
    assert problem.startswith(f"_toc.yml: {fault}") or fault in problem


def test_status_out_of_step(chapter):
    (chapter.root / "book" / "status.md").unlink()
    (problem,) = faults(chapter)
    assert "book/status.md" in problem
