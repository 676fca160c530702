"""The claims ledger: what is read, what is wrong with it, and the book's own."""

import json
import os
import re
import unicodedata
from pathlib import Path

import pytest

from press.checks import check
from press.claim_faults import ledger_faults
from press.claims import (
    find_evidence,
    insert_values,
    ledger_file,
    read_ledger,
)
from press.layout import BookError, list_chapters

from .conftest import complete

ROOT = Path(__file__).resolve().parents[2]

LEDGER = """\
first = ["paper-always"]

[[document]]
id = "paper"
title = "The paper"
cite = "adder1999"

[[claim]]
id = "paper-adds"
document = "paper"
place = "Theorem 1"
claim = "One and one make $2$."
quote = "the sum … of $1$ and $1$"
at = "Theorem 1"
verdict = "holds"
weight = "core"
finding = "We counted."
evidence = ["thm-sum", "fig-sum", "sec-add"]

[[claim]]
id = "paper-always"
document = "paper"
place = "Section 2"
claim = "It always adds."
quote = "always adds"
at = "Section 2"
verdict = "not tested"
weight = "detail"
"""

BLOCKS = """\
(sec-add)=
## How to add

:::{prf:theorem} Sums
:class: dropdown
:label: thm-sum
It adds.
:::

:::{prf:proof}
Count.
:::

```{code-cell} python
---
mystnb:
  image:
    alt: a line
  figure:
    name: fig-sum
    caption: A sum.
---
print(profile, seed)
```
"""


@pytest.fixture
def book(make_book):
    """Return a book of one chapter with labels, and with a ledger that is right."""
    text = complete().replace("We add.\n", f"We add.\n\n{BLOCKS}")
    chapter = make_book(text=text)
    write(chapter, LEDGER)
    (chapter.root / "book").mkdir()
    (chapter.root / "book" / "references.bib").write_text("@book{adder1999,\n}\n")
    return chapter


def write(chapter, text):
    ledger_file(chapter.root).parent.mkdir(exist_ok=True)
    ledger_file(chapter.root).write_text(text, encoding="utf-8")


def glue(chapter, **values):
    """Pretend that the executed chapter has glued some values."""
    outputs = [
        {
            "output_type": "display_data",
            "data": {"application/papermill.record/text/plain": repr(value)},
            "metadata": {
                "scrapbook": {
                    "mime_prefix": "application/papermill.record/",
                    "name": name.replace("_", "-"),
                }
            },
        }
        for name, value in values.items()
    ]
    chapter.published.parent.mkdir(parents=True, exist_ok=True)
    cells = [{"cell_type": "code", "outputs": outputs}, {"cell_type": "markdown"}]
    chapter.published.write_text(json.dumps({"cells": cells}), encoding="utf-8")


def test_a_good_ledger_or_none_has_no_fault(book):
    assert [claim.tested for claim in read_ledger(book.root).claims] == [True, False]
    assert list(ledger_faults(book.root)) == []
    ledger_file(book.root).unlink()
    assert list(ledger_faults(book.root)) == []


def test_evidence_has_a_role_and_the_tested_cell_that_follows(book):
    places = find_evidence(book.root)
    roles = {"sec-add": "ref", "thm-sum": "prf:ref", "fig-sum": "numref"}
    assert {label: places[label].role for label in roles} == roles
    lines = book.source.read_text(encoding="utf-8").splitlines()
    line = places["fig-sum"].test
    assert any("claim(" in text for text in lines[line - 2 : line + 3])
    assert places["thm-sum"].test == line
    assert places["ex-accuracy-one"].test is None


PLACE = 'document = "paper"\nplace = "Section'


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("[[document]]", "[[document", "not a TOML file"),
        ("[[document]]", "[[documents]]", "documents: Extra inputs"),
        ('title = "The paper"', "", "document paper title: Field required"),
        ('"Theorem 1"', '"  "', "claim paper-adds place: "),
        ("finding =", "findings =", "claim paper-adds findings: Extra inputs"),
        ('["thm-sum", ', '[1, "fig-sum", ', "claim paper-adds evidence 0: "),
        ("adder1999", "adder2000", "no work adder2000"),
        ("paper-always", "paper-adds", "a second claim paper-adds"),
        ("paper-adds", "Paper_adds", "claim Paper_adds id: "),
        (PLACE, 'document = "x"\nplace = "', "claim paper-always: unknown document"),
        ("finding", 'also = [{document = "y", place = "1"}]\nfinding', "document 'y'"),
        ('"holds"', '"true"', "verdict: Input should be 'holds', "),
        ("always adds", "so " * 26, "a quotation of 26 words; at most 25"),
        ('"holds"', '"refuted"', "refuted, without by; by goes with refuted only"),
        ('"holds"', '"not reproduced here"', "not reproduced here, without differs"),
        ('weight = "core"', 'weight = "core"\nby = "proof"', "holds, with by; by goes"),
        ('["paper-always"]', '["paper-alway"]', "paper-alway; did you mean paper-alw"),
        ('"paper-always"]', '"paper-always", "paper-always"]', "each label once"),
        ('evidence = ["thm-sum", "fig-sum", "sec-add"]', "", "without evidence"),
        ('finding = "We counted."', "", "claim paper-adds: holds, without finding"),
        ("thm-sum", "thm-som", "no label thm-som in notebooks/*.md; did you mean thm"),
        ("thm-sum", "ex-accuracy-one", "no tested cell follows ex-accuracy-one"),
        ("We counted", "By 3.5 or 12 %", "typed numbers: 3.5, 12"),
        ("We counted", "{glue:text}`accuracy-count:d`", "no value accuracy-count in"),
    ],
)
def test_each_fault_is_said(book, old, new, fault):
    assert old in LEDGER
    write(book, LEDGER.replace(old, new))
    lines = [*map(str, ledger_faults(book.root))]
    assert all(line.startswith("data/claims.toml") for line in lines)
    assert any(fault in line for line in lines), lines


def test_faults_are_among_those_of_the_book(book):
    write(book, LEDGER.replace('"holds"', '"true"'))
    problems = [str(problem) for problem in check(book.root)]
    assert any("verdict: Input should be" in problem for problem in problems)


@pytest.mark.parametrize(
    "text",
    [
        "As Section 3.6.2 and Tables 4.1, 4.2 and 4.5 say.",
        "At {glue:text}`sum-share:.1%` and in {ref}`3.5 <sec-add>`.",
        "For $K = 3$ and batches of 16.",
        "Not 2.5, as it says.",
    ],
)
def test_numbers_that_are_not_measured_may_stand(book, text):
    glue(book, sum_share=0.25)
    write(book, LEDGER.replace("make $2$", "make 2.5").replace("We counted.", text))
    assert list(ledger_faults(book.root)) == []


def test_values_come_from_the_executed_chapter(book):
    values = {"share": 0.1234, "low": -1.5, "name": "Adam", "many": 12}
    glue(book, **{f"sum_{name}": value for name, value in values.items()})
    text = "{glue:text}`sum-share:.1%`, {glue:text}`sum-low:.2f`, {glue:text}`sum-name`"
    assert insert_values(text, book.root) == "12.3%, \N{MINUS SIGN}1.50, Adam"
    assert insert_values("{glue:text}`sum-many:d` runs", book.root) == "12 runs"
    with pytest.raises(BookError, match="did you mean sum-share"):
        insert_values("{glue:text}`sum-shore`", book.root)
    with pytest.raises(BookError, match=r"sum-name: .*got 'Adam'"):
        insert_values("{glue:text}`sum-name:.2f`", book.root)
    with pytest.raises(BookError, match="cannot read"):
        insert_values("{glue}`sum-share`", book.root)
    executed = book.published.read_text()
    book.published.write_text(executed.replace("0.1234", "0.5"))
    assert insert_values("{glue:text}`sum-share:.1%`", book.root) == "50.0%"
    copy = book.published.with_name("02_copy.ipynb")
    copy.write_text(book.published.read_text())
    with pytest.raises(BookError, match="sum-share is recorded twice"):
        insert_values("{glue:text}`sum-share`", book.root)


def test_the_book_has_a_ledger_without_fault():
    assert list(ledger_faults(ROOT)) == []


def test_every_quotation_stands_in_its_document():
    """The documents are not ours to hand on: name a folder ``paper.txt``, … is in."""
    folder = os.environ.get("ROBUSTBOOK_SOURCES")
    if not folder:
        pytest.skip("ROBUSTBOOK_SOURCES names no folder with the documents as text")
    ledger = read_ledger(ROOT)
    texts = {
        document.id: _plain((Path(folder) / f"{document.id}.txt").read_text("utf-8"))
        for document in ledger.documents
    }
    missing = [
        claim.id
        for claim in ledger.claims
        if not re.search(_pattern(claim.quote), texts[claim.document])
    ]
    assert missing == []


def _plain(text):
    """Leave out what a text loses or gains in print: spaces, hyphens, quotes, marks.

    Lines of single letters are what is left of indices.
    """
    index = r"(out|in|\S)( (out|in|\S))*"
    lines = [
        line for line in text.splitlines() if not re.fullmatch(index, line.strip())
    ]
    text = unicodedata.normalize("NFKC", "\n".join(lines)).replace("](#)", "")
    marks = r"[\s\-\u00ad\u2010-\u2015\"'\u2018\u2019\u201c\u201d`*_\[\]\\$^{}]"
    return re.sub(marks, "", text).casefold()


def _pattern(quote):
    """Return what to look for: the words, with anything for formulas and gaps."""
    words = (_plain(part).strip(".,:;") for part in re.split(r"\$[^$]*\$|…", quote))
    return ".{0,700}?".join(map(re.escape, words))


def test_lessons_link_to_an_audit_and_audits_to_the_ledger():
    for chapter in list_chapters(ROOT):
        link = "claim" if chapter.is_audit else "-audit-"
        assert link in chapter.source.read_text(encoding="utf-8"), chapter.name
