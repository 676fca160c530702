"""The claims ledger: what the source documents say, and what the book found.

``data/claims.toml`` lists the claims. The site's page ``book/claims.md`` is made from
it, by the extension ``press/ext/claims_ledger.py``. A verdict points at a theorem, a
figure, an exercise or a section of a chapter, and behind each of these stands a tested
cell.
"""

from __future__ import annotations

import ast
import difflib
import functools
import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from jsonschema import Draft202012Validator
from nbformat import NotebookNode

from press.layout import BookError, Chapter, list_chapters
from press.source import read_source

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

#: Where a label can stand in a chapter.
BLOCK = re.compile(
    r"^(?:`{3,}|:{3,})\{(?P<kind>prf:(?!proof)\w+|exercise(?:-start)?)\}[^\n]*\n"
    r"(?:(?!:label:):[^\n]*\n)*:label:\s*(?P<label>\S+)",
    re.MULTILINE,
)
_ANCHOR = re.compile(r"^\((?P<label>\S+)\)=\s*$", re.MULTILINE)

_GLUE = re.compile(r"\{glue:text\}`(?P<key>[\w-]+)(?::(?P<spec>[^`]*))?`")
_CLAIM = re.compile(r"^\s*claim\(", re.MULTILINE)
_GLUE_ATTEMPT = re.compile(r"\{glue[^`]*`[^`]*`")

_TEXT: Final = {"type": "string", "pattern": r"\S"}
_LABELS: Final = {"type": "array", "items": _TEXT, "uniqueItems": True}


def _tables(required: str, **properties: Any) -> dict[str, Any]:
    """Say in JSON Schema: tables with these keys, which are text, and no others."""
    names = required.split()
    keys = {**dict.fromkeys(names, _TEXT), **properties}
    row = {"type": "object", "properties": keys, "required": names}
    return {"type": "array", "items": {**row, "additionalProperties": False}}


#: What may stand in the file.
_SCHEMA: Final = {
    "properties": {
        "first": _LABELS,
        "document": _tables("id title cite"),
        "claim": _tables(
            "id document place claim verdict weight quote at",
            id={"type": "string", "pattern": "^[a-z0-9]+(-[a-z0-9]+)*$"},
            verdict={"enum": [*VERDICTS]},
            weight={"enum": [*WEIGHTS]},
            by={"enum": [*REFUTATIONS]},
            differs=_TEXT,
            finding=_TEXT,
            also=_tables("document place"),
            evidence=_LABELS,
        ),
    },
    "additionalProperties": False,
}


@dataclass(frozen=True)
class Document:
    """A source: how claims and pages name it, its key in ``book/references.bib``."""

    id: str
    title: str
    cite: str


@dataclass(frozen=True)
class Claim:
    """One claim and what was found; the head of ``data/claims.toml`` says more."""

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
    #: Other documents that say it, each with the place.
    also: tuple[tuple[str, str], ...] = ()
    evidence: tuple[str, ...] = ()

    @property
    def anchor(self) -> str:
        """The page's anchor, which chapters link to."""
        return f"claim-{self.id}"

    @property
    def answer(self) -> str:
        """The verdict, with what refutes the claim if something does."""
        return f"{self.verdict} {REFUTATIONS.get(self.by, '')}".strip()

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

    @property
    def used(self) -> list[Document]:
        """The documents that claims are of."""
        return [document for document in self.documents if self.of(document)]

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

    It must be as :data:`_SCHEMA` says. Whether its evidence exists is for
    :func:`press.claim_faults.ledger_faults` to say.
    """
    path = ledger_file(root)
    file = path.relative_to(root).as_posix()
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise BookError(f"{file}: no such file") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BookError(f"{file}: not a TOML file: {error}") from error
    for fault in Draft202012Validator(_SCHEMA).iter_errors(content):
        words = list(fault.path)
        row = content[words[0]][words[1]] if len(words) > 1 else None
        if isinstance(row, dict):
            words[1] = row.get("id", words[1])
        where = " ".join(map(str, words)) or "tables"
        raise BookError(f"{file}: {where}: {fault.message}")
    return Ledger(
        tuple(Document(**_stripped(row)) for row in content.get("document", [])),
        tuple(Claim(**_stripped(row)) for row in content.get("claim", [])),
        tuple(content.get("first", [])),
    )


def _stripped(row: Mapping[str, Any]) -> dict[str, Any]:
    values = {k: v.strip() if isinstance(v, str) else tuple(v) for k, v in row.items()}
    if "also" in row:
        values["also"] = tuple((o["document"], o["place"].strip()) for o in row["also"])
    return values


def nearest(name: str, known: list[str]) -> str:
    """Return a hint at the known name that was probably meant."""
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    return f"; did you mean {near[0]}?" if near else ""


def find_evidence(root: Path) -> dict[str, Evidence]:
    """Return, by label, every labeled place of the chapters.

    These are theorem-like blocks, exercises, figures and anchors of sections.
    """
    places = {}
    for chapter in list_chapters(root):
        source = read_source(chapter)
        cells, test = source.notebook.cells, None
        for cell, line in reversed([*zip(cells, source.lines, strict=True)]):
            for label, role in _labels(cell):
                places[label] = Evidence(label, role, chapter, test)
            test = line if is_test(cell) else test
    return places


def is_test(cell: NotebookNode) -> bool:
    """Whether a cell says a claim, which checks itself."""
    return cell.cell_type == "code" and _CLAIM.search(cell.source) is not None


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

    A reference such as ``{glue:text}`concave-runner-up:.3f``` names what some chapter
    glues; it is written as ``format(value, ".3f")`` does.
    """
    executed = sorted((root / "book" / "chapters").glob("*.ipynb"))

    def value_of(match: re.Match[str]) -> str:
        values = _glued(tuple((path, path.stat().st_mtime_ns) for path in executed))
        if match["key"] not in values:
            raise BookError(
                f"no value {match['key']} in the executed chapters"
                f"{nearest(match['key'], list(values))}"
            )
        value = values[match["key"]]
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
            f"cannot read {attempt[0]}; expected {{glue:text}}`name:format`"
        )
    return done


@functools.lru_cache(maxsize=1)
def _glued(executed: tuple[tuple[Path, int], ...]) -> dict[str, Any]:
    """Return what the executed chapters have glued."""
    values: dict[str, Any] = {}
    for path, _ in executed:
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            for output in cell.get("outputs", []):
                glue = output.get("metadata", {}).get("scrapbook", {})
                kind = f"{glue.get('mime_prefix')}text/plain"
                if (text := output.get("data", {}).get(kind)) is None:
                    continue
                if glue["name"] in values:
                    raise BookError(f"{glue['name']} is recorded twice: rename one")
                values[glue["name"]] = _literal("".join(text))
    return values


def _literal(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (SyntaxError, ValueError):
        return float(text) if text in ("inf", "-inf", "nan") else text
