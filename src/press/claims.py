"""The claims ledger: what the source documents say, and what the book found.

``data/claims.toml`` lists the claims. The site's page ``book/claims.md`` is made from
it, by the extension ``press/ext/claims_ledger.py``. A verdict points at a theorem, a
figure, an exercise or a section of a chapter, and behind each of these stands a tested
cell.
"""

from __future__ import annotations

import ast
import difflib
import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any, Final

from nbformat import NotebookNode

from press.layout import BookError, Chapter, list_chapters
from press.source import cell_tags, read_source

__all__ = [
    "BLOCK",
    "REFUTATIONS",
    "VERDICTS",
    "WEIGHTS",
    "WORDS",
    "Claim",
    "Document",
    "Evidence",
    "Ledger",
    "find_evidence",
    "insert_values",
    "ledger_faults",
    "ledger_file",
    "read_ledger",
]

#: What can be said of a claim; the last one without evidence.
VERDICTS: Final = (
    "holds",
    "holds in part",
    "refuted",
    "not reproduced here",
    "not tested",
)

#: What refutes a claim, as data and as the page writes it.
REFUTATIONS: Final = {
    "proof": "by proof",
    "source": "by the source itself",
    "run": "by a run in the source's regime",
}

#: What hangs on a claim: a result of its document, a detail of one, a slip of the pen.
WEIGHTS: Final = ("core", "detail", "slip")

#: How many words of a document may be quoted for a claim.
WORDS: Final = 25

_ID = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")

#: Where a label can stand in a chapter.
BLOCK = re.compile(
    r"^(?:`{3,}|:{3,})\{(?P<kind>prf:(?!proof)\w+|exercise(?:-start)?)\}[^\n]*\n"
    r"(?:(?!:label:):[^\n]*\n)*:label:\s*(?P<label>\S+)",
    re.MULTILINE,
)
_ANCHOR = re.compile(r"^\((?P<label>\S+)\)=\s*$", re.MULTILINE)

_GLUE = re.compile(
    r"\{glue:text\}`(?P<key>c(?P<chapter>\d\d)-[\w-]+)(?::(?P<spec>[^`]*))?`"
)
_GLUE_ATTEMPT = re.compile(r"\{glue[^`]*`[^`]*`")
_NUMBERED_PLACE = re.compile(
    r"(?:Section|Table|Figure|Theorem|Lemma|Equation|Example|Proposition|Part|Chapter)"
    r"s?\s+[\w.]+(?:(?:,| and| to) [\d.]*\d)*"
)
_MEASURED = re.compile(r"\d+\.\d+|\d+(?=\s*\\?%)")


@dataclass(frozen=True)
class Document:
    """A source: how claims and pages name it, its key in ``book/references.bib``."""

    id: str
    title: str
    cite: str


@dataclass(frozen=True)
class Claim:
    """One claim and what was found.

    Attributes
    ----------
    id : str
        Its name; the page's anchor is ``claim-`` and this.
    document, place : str
        The id of the document that makes it, and where.
    claim : str
        The claim in our words, as MyST text.
    verdict, weight : str
        One of :data:`VERDICTS`, one of :data:`WEIGHTS`.
    quote, at : str
        The document's own words, at most :data:`WORDS`, as MyST text, and where they
        stand. A formula is set as here, and ``…`` leaves words out.
    by : str
        What refutes the claim, a key of :data:`REFUTATIONS`, if it is refuted.
    differs : str
        What differs from the document's experiment, if it is not reproduced here.
    finding : str
        What we found, as MyST text; may be empty if not tested.
    also : tuple of (str, str)
        Other documents that say it, each with the place.
    evidence : tuple of str
        Labels in the chapters; may be empty if not tested.
    """

    id: str
    document: str
    place: str
    claim: str
    verdict: str
    weight: str
    quote: str
    at: str
    by: str = ""
    differs: str = ""
    finding: str = ""
    also: tuple[tuple[str, str], ...] = ()
    evidence: tuple[str, ...] = ()

    @property
    def anchor(self) -> str:
        """The page's anchor, which chapters link to."""
        return f"claim-{self.id}"

    @property
    def tested(self) -> bool:
        """Whether the book has an answer."""
        return self.verdict != VERDICTS[-1]


@dataclass(frozen=True)
class Ledger:
    """All documents and all claims, in the order of the file.

    ``first`` are the ids of the claims with the largest consequence.
    """

    documents: tuple[Document, ...]
    claims: tuple[Claim, ...]
    first: tuple[str, ...] = ()

    def of(self, document: Document) -> tuple[Claim, ...]:
        """Return the claims of one document."""
        return tuple(c for c in self.claims if c.document == document.id)


@dataclass(frozen=True)
class Evidence:
    """A labeled place of a chapter: the label, and the MyST role that links to it."""

    label: str
    role: str
    chapter: Chapter
    #: The line, from 1, of the first tested cell after it.
    test: int | None


def ledger_file(root: Path) -> Path:
    """Return where the ledger is."""
    return root / "data" / "claims.toml"


def read_ledger(root: Path) -> Ledger:
    """Read the ledger of the book in ``root``.

    Whether its evidence exists is for :func:`ledger_faults` to say.

    Raises
    ------
    BookError
        If there is no ledger, it is no TOML, or a key is missing, unknown or of the
        wrong kind.
    """
    path = ledger_file(root)
    file = path.relative_to(root).as_posix()
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise BookError(f"{file}: no such file") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BookError(f"{file}: not a TOML file: {error}") from error
    first = content.pop("first", [])
    if not isinstance(first, list) or not all(isinstance(name, str) for name in first):
        raise BookError(f'{file}: expected first = ["claim", ...], got {first!r}')
    for key, rows in content.items():
        if key not in ("document", "claim"):
            raise BookError(
                f"{file}: unknown table {key!r}; expected [[document]] and [[claim]]"
            )
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise BookError(f"{file}: expected tables [[{key}]], with two brackets")
    documents = [
        Document(**_checked(row, Document, f"{file}: [[document]] {n}"))
        for n, row in enumerate(content.get("document", []), start=1)
    ]
    claims = [
        Claim(**_checked(row, Claim, f"{file}: [[claim]] {row.get('id', n)}"))
        for n, row in enumerate(content.get("claim", []), start=1)
    ]
    return Ledger(tuple(documents), tuple(claims), tuple(first))


def _checked(row: Mapping[str, Any], kind: type, where: str) -> dict[str, Any]:
    """Return the values of a table; refuse keys and values that its kind has not."""
    known = {field.name: field.default is MISSING for field in fields(kind)}
    for key in row:
        if key not in known:
            raise BookError(f"{where}: unknown key {key!r}{_nearest(key, list(known))}")
    values: dict[str, Any] = {}
    for key, required in known.items():
        if key not in row:
            if required:
                raise BookError(f"{where}: {key} is missing")
            continue
        value = row[key]
        if key == "evidence":
            if not isinstance(value, list) or not all(
                isinstance(label, str) for label in value
            ):
                raise BookError(
                    f'{where}: expected evidence = ["label", ...], got {value!r}'
                )
            values[key] = tuple(value)
        elif key == "also":
            if not isinstance(value, list) or not all(
                isinstance(other, dict)
                and set(other) == {"document", "place"}
                and all(
                    isinstance(text, str) and text.strip() for text in other.values()
                )
                for other in value
            ):
                raise BookError(
                    f'{where}: expected also = [{{document = "...", place = "..."}}], '
                    f"got {value!r}"
                )
            values[key] = tuple((o["document"], o["place"].strip()) for o in value)
        elif not isinstance(value, str) or (required and not value.strip()):
            raise BookError(f"{where}: expected text for {key}, got {value!r}")
        else:
            values[key] = value.strip()
    return values


def _nearest(name: str, known: list[str]) -> str:
    """Return a hint at the known name that was probably meant."""
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    return f"; did you mean {near[0]}?" if near else ""


def find_evidence(root: Path) -> dict[str, Evidence]:
    """Return, by label, every labeled place of the chapters.

    These are theorem-like blocks, exercises, figures and anchors of sections.

    Raises
    ------
    BookError
        If a chapter is no MyST notebook.
    """
    places = {}
    for chapter in list_chapters(root):
        source = read_source(chapter)
        cells = list(zip(source.notebook.cells, source.lines, strict=True))
        for index, (cell, _) in enumerate(cells):
            test = next(
                (line for later, line in cells[index + 1 :] if _is_test(later)), None
            )
            for label, role in _labels(cell):
                places[label] = Evidence(label, role, chapter, test)
    return places


def _is_test(cell: NotebookNode) -> bool:
    return cell.cell_type == "code" and "test" in cell_tags(cell)


def _labels(cell: NotebookNode) -> Iterator[tuple[str, str]]:
    if cell.cell_type == "code":
        figure = cell.metadata.get("mystnb", {}).get("figure", {})
        if name := figure.get("name"):
            yield str(name), "numref"
        return
    for block in BLOCK.finditer(cell.source):
        role = "prf:ref" if block["kind"].startswith("prf:") else "ref"
        yield block["label"], role
    for anchor in _ANCHOR.finditer(cell.source):
        yield anchor["label"], "ref"


def insert_values(text: str, root: Path) -> str:
    """Put the numbers of the executed chapters into a finding.

    References such as ``{glue:text}`c05-runner-up:.3f``` start with the number of the
    chapter that glues the value; it is written as ``format(value, ".3f")`` does.

    Raises
    ------
    BookError
        If the executed chapter has no such value, or it does not take the format.
    """
    values: dict[str, dict[str, Any]] = {}

    def value_of(match: re.Match[str]) -> str:
        number = match["chapter"]
        if number not in values:
            values[number] = _glued(root, number)
        if match["key"] not in values[number]:
            raise BookError(
                f"no value {match['key']} in the executed chapter {number}"
                f"{_nearest(match['key'], list(values[number]))}"
            )
        value = values[number][match["key"]]
        try:
            written = format(value, match["spec"] or "")
        except (TypeError, ValueError) as error:
            raise BookError(f"{match['key']}: {error}, got {value!r}") from error
        if isinstance(value, int | float) and value < 0:
            return written.replace("-", "\N{MINUS SIGN}", 1)
        return written

    done = _GLUE.sub(value_of, text)
    if attempt := _GLUE_ATTEMPT.search(done):
        raise BookError(
            f"cannot read {attempt[0]}; expected {{glue:text}}`cNN-name:format`"
        )
    return done


def _glued(root: Path, number: str) -> dict[str, Any]:
    """Return what an executed chapter has glued."""
    values = {}
    for path in sorted((root / "book" / "chapters").glob(f"{number}_*.ipynb")):
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            for output in cell.get("outputs", []):
                glue = output.get("metadata", {}).get("scrapbook")
                if not glue:
                    continue
                text = output["data"].get(f"{glue['mime_prefix']}text/plain")
                if text is not None:
                    values[glue["name"]] = _literal("".join(text))
    return values


def _literal(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (SyntaxError, ValueError):
        return float(text) if text in ("inf", "-inf", "nan") else text


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
    lines = path.read_text(encoding="utf-8").splitlines()
    yield from _document_faults(root, ledger, name)
    ids = [claim.id for claim in ledger.claims]
    for n, first in enumerate(ledger.first):
        if first not in ids:
            yield name, f"first: no claim {first}{_nearest(first, ids)}", "mend first"
        elif first in ledger.first[:n]:
            yield name, f"first: {first} twice", "once is enough"
    for n, claim in enumerate(ledger.claims):
        place = f"{name}:{_line(lines, claim.id)}"
        if claim.id in (other.id for other in ledger.claims[:n]):
            yield place, f"a second claim {claim.id}", "give it another id"
            continue
        for fault, remedy in _claim_faults(claim, ledger, labels, root):
            yield place, f"claim {claim.id}: {fault}", remedy


def _line(lines: list[str], claim: str) -> int:
    """Return the line that names a claim, the last one if there are two."""
    pattern = re.compile(rf"""\s*id\s*=\s*["']{re.escape(claim)}["']""")
    return max((n for n, line in enumerate(lines, 1) if pattern.match(line)), default=1)


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
    if not _ID.fullmatch(claim.id):
        yield "not an id", "lower case, digits and single hyphens, such as paper-bounds"
    known = [document.id for document in ledger.documents]
    for document in (claim.document, *(other for other, _ in claim.also)):
        if document not in known:
            yield f"unknown document {document!r}", f"one of {', '.join(known)}"
    if claim.weight not in WEIGHTS:
        yield f"unknown weight {claim.weight!r}", f"one of {', '.join(WEIGHTS)}"
    if (words := _count_words(claim.quote)) > WORDS:
        yield f"a quotation of {words} words", f"at most {WORDS}; … leaves words out"
    if claim.verdict not in VERDICTS:
        yield f"unknown verdict {claim.verdict!r}", f"one of {', '.join(VERDICTS)}"
        return
    if claim.verdict == "refuted" and claim.by not in REFUTATIONS:
        yield f"refuted by {claim.by!r}", f"by one of {', '.join(REFUTATIONS)}"
    if claim.verdict == "not reproduced here" and not claim.differs:
        yield "not reproduced here, without differs", "say what differs here"
    for key, verdict in (("by", "refuted"), ("differs", "not reproduced here")):
        if getattr(claim, key) and claim.verdict != verdict:
            yield f"{claim.verdict}, with {key}", f"{key} goes with {verdict} only"
    if claim.tested and not claim.evidence:
        remedy = f"name labels of chapters, or say {VERDICTS[-1]}"
        yield f"{claim.verdict}, without evidence", remedy
    if claim.tested and not claim.finding:
        yield f"{claim.verdict}, without finding", "say in a sentence what was found"
    for label in claim.evidence:
        if label not in labels:
            near = _nearest(label, list(labels))
            yield f"no label {label} in notebooks/*.md{near}", "mend the evidence"
        elif labels[label].test is None:
            place = labels[label].chapter.show(labels[label].chapter.source)
            remedy = "assert the finding in a cell tagged remove-cell, test"
            yield f"no tested cell follows {label} in {place}", remedy
    if len(set(claim.evidence)) < len(claim.evidence):
        yield "a label twice in evidence", "once is enough"
    if typed := _typed_numbers(claim):
        remedy = "take them from a chapter: {glue:text}`cNN-name:.3f`"
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
