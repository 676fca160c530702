"""What is wrong with the claims ledger, and what to do."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from press.claims import (
    VERDICTS,
    Claim,
    Evidence,
    Ledger,
    find_evidence,
    insert_values,
    ledger_file,
    nearest,
    read_ledger,
)
from press.layout import BookError

#: How many words of a document may be quoted for a claim.
WORDS: Final = 25

_NUMBERED_PLACE = re.compile(
    r"(?:Section|Table|Figure|Theorem|Lemma|Equation|Example|Proposition|Part|Chapter)"
    r"s?\s+[\w.]+(?:(?:,| and| to) [\d.]*\d)*"
)
_MEASURED = re.compile(r"\d+\.\d+|\d+(?=\s*\\?%)")


def ledger_faults(root: Path) -> Iterator[tuple[str, str, str]]:
    """Yield what is wrong with the ledger: where, what, and what to do."""
    path = ledger_file(root)
    if not path.is_file():
        return
    name = path.relative_to(root).as_posix()
    try:
        ledger = read_ledger(root)
    except BookError as error:
        place, _, fault = str(error).partition(": ")
        yield place, fault, "mend the file; its head says what stands in it"
        return
    try:
        labels = find_evidence(root)
    except BookError:
        return  # reported where the chapters are checked
    lines = dict(_ids(path.read_text(encoding="utf-8")))
    yield from _document_faults(root, ledger, name)
    ids = [claim.id for claim in ledger.claims]
    for first in set(ledger.first) - set(ids):
        yield name, f"first: no claim {first}{nearest(first, ids)}", "mend first"
    for n, claim in enumerate(ledger.claims):
        place = f"{name}:{lines.get(claim.id, 1)}"
        if claim.id in (other.id for other in ledger.claims[:n]):
            yield place, f"a second claim {claim.id}", "give it another id"
            continue
        for fault, remedy in _claim_faults(claim, ledger, labels, root):
            yield place, f"claim {claim.id}: {fault}", remedy


def _ids(text: str) -> Iterator[tuple[str, int]]:
    """Yield what names a claim, and its line."""
    for number, line in enumerate(text.splitlines(), 1):
        if found := re.match(r"""\s*id\s*=\s*["']([^"']*)["']""", line):
            yield found[1], number


def _document_faults(
    root: Path, ledger: Ledger, name: str
) -> Iterator[tuple[str, str, str]]:
    bibliography = root / "book" / "references.bib"
    known = bibliography.is_file()
    entries = bibliography.read_text(encoding="utf-8") if known else ""
    for n, document in enumerate(ledger.documents):
        if document.id in (other.id for other in ledger.documents[:n]):
            yield name, f"a second document {document.id}", "give it another id"
        entry = rf"^@\w+\{{{re.escape(document.cite)},"
        if known and not re.search(entry, entries, re.MULTILINE):
            fault = f"no work {document.cite} in book/references.bib"
            remedy = "mend cite, or add the work"
            yield name, f"document {document.id}: {fault}", remedy


def _claim_faults(
    claim: Claim, ledger: Ledger, labels: Mapping[str, Evidence], root: Path
) -> Iterator[tuple[str, str]]:
    known = [document.id for document in ledger.documents]
    for document in (claim.document, *(other.document for other in claim.also)):
        if document not in known:
            yield f"unknown document {document!r}", f"one of {', '.join(known)}"
    if (words := _count_words(claim.quote)) > WORDS:
        yield f"a quotation of {words} words", f"at most {WORDS}; … leaves words out"
    for key, verdict in (("by", "refuted"), ("differs", "not reproduced here")):
        if bool(getattr(claim, key)) != (claim.verdict == verdict):
            how = "with" if getattr(claim, key) else "without"
            yield f"{claim.verdict}, {how} {key}", f"{key} goes with {verdict} only"
    for key in ("evidence", "finding") if claim.tested else ():
        if not getattr(claim, key):
            yield f"{claim.verdict}, without {key}", f"add it, or say {VERDICTS[-1]}"
    for label in claim.evidence:
        if label not in labels:
            near = nearest(label, list(labels))
            yield f"no label {label} in notebooks/*.md{near}", "mend the evidence"
        elif labels[label].test is None:
            place = labels[label].chapter.show(labels[label].chapter.source)
            remedy = "say the finding with claim() in a cell below it"
            yield f"no tested cell follows {label} in {place}", remedy
    if typed := _typed_numbers(claim):
        remedy = "take them from a chapter: {glue:text}`name:.3f`"
        yield f"the finding has typed numbers: {', '.join(typed)}", remedy
    try:
        insert_values(claim.finding, root)
    except BookError as error:
        yield str(error), "mend the key, or execute the chapter: make book"


def _count_words(quote: str) -> int:
    """Count the words of a quotation; a formula is one."""
    return len(re.sub(r"\$[^$]*\$", "x", quote).replace("…", " ").split())


def _typed_numbers(claim: Claim) -> list[str]:
    """Return decimals and percentages of the finding that the claim does not quote."""
    quoted = set(_MEASURED.findall(f"{claim.claim} {claim.quote}"))
    text = _NUMBERED_PLACE.sub("", re.sub(r"\{[\w:]+\}`[^`]*`", "", claim.finding))
    return [number for number in _MEASURED.findall(text) if number not in quoted]
