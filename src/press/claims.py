"""The claims ledger: what the source documents say, and what the book found.

``data/claims.toml`` lists the claims. The site's page ``book/claims.md`` is made from
it, by the extension ``press/ext/claims_ledger.py``. What is said there to hold, or to
fail, points at a theorem, a figure, an exercise or a section of a chapter, and behind
each of these stands a tested cell.
"""

from __future__ import annotations

import ast
import difflib
import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from nbformat import NotebookNode

from press.layout import BookError, Chapter, list_chapters
from press.source import cell_tags, read_source

__all__ = [
    "VERDICTS",
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
VERDICTS: Final = ("holds", "holds in part", "fails", "not tested here")

_ID = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_DOCUMENT_KEYS: Final = ("id", "title", "cite")
_REQUIRED: Final = ("id", "document", "place", "claim", "verdict")
_OPTIONAL: Final = ("also", "finding", "evidence")

# Where a label can stand in a chapter.
_BLOCK = re.compile(
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
    """One of the source documents.

    Attributes
    ----------
    id : str
        How claims name it.
    title : str
        How the page names it.
    cite : str
        Its key in ``book/references.bib``.
    """

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
    document : str
        The id of the document that makes it.
    place : str
        Where in the document.
    claim : str
        The claim in our words, as MyST text.
    verdict : str
        One of :data:`VERDICTS`.
    also : tuple of (str, str)
        Other documents that say it, each with the place.
    finding : str
        What we found, as MyST text; may be empty if not tested.
    evidence : tuple of str
        Labels in the chapters; may be empty if not tested.
    """

    id: str
    document: str
    place: str
    claim: str
    verdict: str
    also: tuple[tuple[str, str], ...] = ()
    finding: str = ""
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
    """All documents and all claims, in the order of the file."""

    documents: tuple[Document, ...]
    claims: tuple[Claim, ...]

    def of(self, document: Document) -> tuple[Claim, ...]:
        """Return the claims of one document."""
        return tuple(c for c in self.claims if c.document == document.id)


@dataclass(frozen=True)
class Evidence:
    """A labeled place of a chapter.

    Attributes
    ----------
    label : str
        The label.
    role : str
        The MyST role that links to it.
    chapter : Chapter
        Where it stands.
    test : int or None
        The line, from 1, of the first tested cell after it.
    """

    label: str
    role: str
    chapter: Chapter
    test: int | None


def ledger_file(root: Path) -> Path:
    """Return where the ledger is."""
    return root / "data" / "claims.toml"


def read_ledger(root: Path) -> Ledger:
    """Read the ledger.

    Parameters
    ----------
    root : Path
        The folder of the book.

    Returns
    -------
    Ledger
        As it stands in the file; whether its evidence exists is for
        :func:`ledger_faults` to say.

    Raises
    ------
    BookError
        If there is no ledger, it is no TOML, or a key is missing, unknown or of the
        wrong kind.
    """
    path = ledger_file(root)
    place = path.relative_to(root).as_posix()
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise BookError(f"{place}: no such file") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BookError(f"{place}: not a TOML file: {error}") from error
    for key in content:
        if key not in ("document", "claim"):
            raise BookError(
                f"{place}: unknown table {key!r}; expected [[document]] and [[claim]]"
            )
    documents = tuple(
        _document(row, where=f"{place}: [[document]] {n}")
        for n, row in enumerate(_tables(content, "document", place), start=1)
    )
    claims = tuple(
        _claim(row, n, place)
        for n, row in enumerate(_tables(content, "claim", place), start=1)
    )
    return Ledger(documents, claims)


def _tables(content: Mapping[str, Any], name: str, place: str) -> list[dict[str, Any]]:
    rows = content.get(name, [])
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise BookError(f"{place}: expected tables [[{name}]], with two brackets")
    return rows


def _strings(
    row: Mapping[str, Any], keys: tuple[str, ...], *, where: str
) -> dict[str, str]:
    """Return the values of ``keys``, all of them text that is not empty."""
    values = {}
    for key in keys:
        if key not in row:
            raise BookError(f"{where}: {key} is missing")
        if not isinstance(row[key], str) or not row[key].strip():
            raise BookError(f"{where}: expected text for {key}, got {row[key]!r}")
        values[key] = row[key].strip()
    return values


def _document(row: Mapping[str, Any], *, where: str) -> Document:
    for key in row:
        if key not in _DOCUMENT_KEYS:
            raise BookError(
                f"{where}: unknown key {key!r}{_nearest(key, _DOCUMENT_KEYS)}"
            )
    return Document(**_strings(row, _DOCUMENT_KEYS, where=where))


def _claim(row: Mapping[str, Any], number: int, place: str) -> Claim:
    where = f"{place}: [[claim]] {row.get('id', number)}"
    for key in row:
        if key not in _REQUIRED + _OPTIONAL:
            raise BookError(
                f"{where}: unknown key {key!r}{_nearest(key, _REQUIRED + _OPTIONAL)}"
            )
    values = _strings(row, _REQUIRED, where=where)
    finding = row.get("finding", "")
    if not isinstance(finding, str):
        raise BookError(f"{where}: expected text for finding, got {finding!r}")
    evidence = row.get("evidence", [])
    if not isinstance(evidence, list) or not all(isinstance(e, str) for e in evidence):
        raise BookError(
            f'{where}: expected evidence = ["label", ...], got {evidence!r}'
        )
    also = row.get("also", [])
    if not isinstance(also, list) or not all(
        isinstance(other, dict) and set(other) == {"document", "place"}
        for other in also
    ):
        raise BookError(
            f'{where}: expected also = [{{document = "...", place = "..."}}], '
            f"got {also!r}"
        )
    others = [_strings(other, ("document", "place"), where=where) for other in also]
    return Claim(
        **values,
        also=tuple((other["document"], other["place"]) for other in others),
        finding=finding.strip(),
        evidence=tuple(evidence),
    )


def _nearest(name: str, known: tuple[str, ...] | list[str]) -> str:
    """Return a hint at the known name that was probably meant."""
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    return f"; did you mean {near[0]}?" if near else ""


def find_evidence(root: Path) -> dict[str, Evidence]:
    """Return every labeled place of the chapters.

    Parameters
    ----------
    root : Path
        The folder of the book.

    Returns
    -------
    dict
        From label to :class:`Evidence`: theorem-like blocks, exercises, figures and
        anchors of sections.

    Raises
    ------
    BookError
        If a chapter is no MyST notebook.
    """
    found = {}
    for chapter in list_chapters(root):
        source = read_source(chapter)
        cells = list(zip(source.notebook.cells, source.lines, strict=True))
        for index, (cell, _) in enumerate(cells):
            test = next(
                (line for later, line in cells[index + 1 :] if _is_test(later)), None
            )
            for label, role in _labels(cell):
                found[label] = Evidence(label, role, chapter, test)
    return found


def _is_test(cell: NotebookNode) -> bool:
    return cell.cell_type == "code" and "test" in cell_tags(cell)


def _labels(cell: NotebookNode) -> Iterator[tuple[str, str]]:
    if cell.cell_type == "code":
        figure = cell.metadata.get("mystnb", {}).get("figure", {})
        if name := figure.get("name"):
            yield str(name), "numref"
        return
    for block in _BLOCK.finditer(cell.source):
        role = "prf:ref" if block["kind"].startswith("prf:") else "ref"
        yield block["label"], role
    for anchor in _ANCHOR.finditer(cell.source):
        yield anchor["label"], "ref"


def insert_values(text: str, root: Path) -> str:
    """Put the numbers of the executed chapters into a finding.

    Parameters
    ----------
    text : str
        MyST text with references such as ``{glue:text}`c05-runner-up:.3f```. The key
        starts with the number of the chapter that glues it.
    root : Path
        The folder of the book.

    Returns
    -------
    str
        The text with the numbers, as ``format(value, spec)`` writes them.

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
        return (
            written.replace("-", "\N{MINUS SIGN}", 1) if _negative(value) else written
        )

    done = _GLUE.sub(value_of, text)
    if attempt := _GLUE_ATTEMPT.search(done):
        raise BookError(
            f"cannot read {attempt[0]}; expected {{glue:text}}`cNN-name:format`"
        )
    return done


def _negative(value: Any) -> bool:
    return isinstance(value, int | float) and value < 0


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
    """Say what is wrong with the ledger.

    Parameters
    ----------
    root : Path
        The folder of the book.

    Yields
    ------
    tuple of str
        Where, what, and what to do. Nothing if all is well, or there is no ledger.
    """
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
    seen: set[str] = set()
    for claim in ledger.claims:
        place = f"{name}:{_line(lines, claim.id)}"
        if claim.id in seen:
            yield place, f"a second claim {claim.id}", "give it another id"
            continue
        seen.add(claim.id)
        for fault, remedy in _claim_faults(claim, ledger, labels, root):
            yield place, f"claim {claim.id}: {fault}", remedy


def _line(lines: list[str], claim: str) -> int:
    """Return the line that names a claim, the last one if there are two."""
    pattern = re.compile(rf"""\s*id\s*=\s*["']{re.escape(claim)}["']""")
    found = [n for n, line in enumerate(lines, start=1) if pattern.match(line)]
    return found[-1] if found else 1


def _document_faults(
    root: Path, ledger: Ledger, name: str
) -> Iterator[tuple[str, str, str]]:
    bibliography = root / "book" / "references.bib"
    entries = (
        bibliography.read_text(encoding="utf-8") if bibliography.is_file() else None
    )
    seen: set[str] = set()
    for document in ledger.documents:
        if document.id in seen:
            yield name, f"a second document {document.id}", "give it another id"
        seen.add(document.id)
        if entries is not None and not re.search(
            rf"^@\w+\{{{re.escape(document.cite)},", entries, re.MULTILINE
        ):
            yield (
                name,
                f"document {document.id}: no work {document.cite} in "
                "book/references.bib",
                "mend cite, or add the work",
            )


def _claim_faults(
    claim: Claim, ledger: Ledger, labels: Mapping[str, Evidence], root: Path
) -> Iterator[tuple[str, str]]:
    if not _ID.fullmatch(claim.id):
        yield "not an id", "lower case, digits and single hyphens, such as paper-bounds"
    known = [document.id for document in ledger.documents]
    for document in (claim.document, *(other for other, _ in claim.also)):
        if document not in known:
            yield f"unknown document {document!r}", f"one of {', '.join(known)}"
    if claim.verdict not in VERDICTS:
        yield f"unknown verdict {claim.verdict!r}", f"one of {', '.join(VERDICTS)}"
        return
    if claim.tested and not claim.evidence:
        yield (
            f"{claim.verdict}, without evidence",
            f"name labels of chapters, or say {VERDICTS[-1]}",
        )
    if claim.tested and not claim.finding:
        yield f"{claim.verdict}, without finding", "say in a sentence what was found"
    for label in claim.evidence:
        if label not in labels:
            yield (
                f"no label {label} in notebooks/*.md{_nearest(label, list(labels))}",
                "mend the evidence",
            )
        elif labels[label].test is None:
            chapter = labels[label].chapter
            yield (
                f"no tested cell follows {label} in {chapter.show(chapter.source)}",
                "assert the finding in a cell tagged remove-cell, test",
            )
    if len(set(claim.evidence)) < len(claim.evidence):
        yield "a label twice in evidence", "once is enough"
    typed = _typed_numbers(claim)
    if typed:
        yield (
            f"the finding has typed numbers: {', '.join(typed)}",
            "take them from a chapter: {glue:text}`cNN-name:.3f`",
        )
    try:
        insert_values(claim.finding, root)
    except BookError as error:
        yield str(error), "mend the key, or execute the chapter: make book"


def _typed_numbers(claim: Claim) -> list[str]:
    """Return decimals and percentages of the finding that the claim does not quote."""
    quoted = set(_MEASURED.findall(claim.claim))
    text = _NUMBERED_PLACE.sub("", re.sub(r"\{[\w:]+\}`[^`]*`", "", claim.finding))
    return [number for number in _MEASURED.findall(text) if number not in quoted]
