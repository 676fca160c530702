"""Faults of the claims ledger, each with its remedy."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from press.claims import find_evidence, insert_values, ledger_file, nearest, read_ledger
from press.layout import BookError, Problem


def ledger_faults(root: Path) -> Iterator[Problem]:
    """Yield the faults that show beside the bibliography and the chapters.

    :func:`press.claims.read_ledger` finds those that the rows alone show.
    """
    path = ledger_file(root)
    if not path.is_file():
        return
    name = path.relative_to(root).as_posix()
    try:
        ledger = read_ledger(root)
    except BookError as error:
        place, _, fault = str(error).partition(": ")
        yield Problem(place, fault, "mend the file; its head says what stands in it")
        return
    try:
        labels = find_evidence(root)
    except BookError:
        return  # reported where the chapters are checked
    bibliography = root / "book" / "references.bib"
    entries = bibliography.read_text(encoding="utf-8") if bibliography.is_file() else ""
    for document in ledger.documents:
        entry = rf"^@\w+\{{{re.escape(document.cite)},"
        if entries and not re.search(entry, entries, re.MULTILINE):
            fault = f"no work {document.cite} in book/references.bib"
            remedy = "mend cite, or add the work"
            yield Problem(name, f"document {document.id}: {fault}", remedy)
    for claim in ledger.claims:
        place = f"{name}: claim {claim.id}"
        for label in claim.evidence:
            if label not in labels:
                near = nearest(label, list(labels))
                fault = f"no label {label} in notebooks/*.md{near}"
                yield Problem(place, fault, "mend the evidence")
            elif labels[label].test is None:
                chapter = labels[label].chapter
                fault = f"no tested cell follows {label} in {chapter.name}"
                yield Problem(place, fault, "say the finding with claim() below it")
        try:
            insert_values(claim.finding, root)
        except BookError as error:
            yield Problem(place, str(error), "mend the key, or execute the chapter")
