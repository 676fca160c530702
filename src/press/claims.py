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
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self, get_args

from nbformat import NotebookNode
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    model_validator,
)

from press.layout import BookError, Chapter, list_chapters
from press.source import read_source

Verdict = Literal[
    "holds",
    "holds, under conditions",
    "seen, but does not show it",
    "refuted",
    "not reproduced here",
    "proposed, and tried",
    "not tested",
]
Weight = Literal["core", "detail", "slip"]

#: The verdicts on a claim; only the last one needs no evidence.
VERDICTS: Final = get_args(Verdict)

#: What refutes a claim, as data and as the page writes it.
REFUTATIONS: Final = {
    "proof": "by proof",
    "source": "by the source itself",
    "run": "by a run in the source's regime",
}

#: How much of the document depends on the claim.
WEIGHTS: Final = get_args(Weight)

#: Where a label can stand in a chapter.
BLOCK = re.compile(
    r"^(?:`{3,}|:{3,})\{(?P<kind>prf:(?!proof)\w+|exercise(?:-start)?)\}[^\n]*\n"
    r"(?:(?!:label:):[^\n]*\n)*:label:\s*(?P<label>\S+)",
    re.MULTILINE,
)
_ANCHOR = re.compile(r"^\((?P<label>\S+)\)=\s*$", re.MULTILINE)

#: How many words of a document may be quoted for a claim.
WORDS: Final = 25

_NUMBERED_PLACE = re.compile(
    r"(?:Section|Table|Figure|Theorem|Lemma|Equation|Example|Proposition|Part|Chapter)"
    r"s?\s+[\w.]+(?:(?:,| and| to) [\d.]*\d)*"
)
_MEASURED = re.compile(r"\d+\.\d+|\d+(?=\s*\\?%)")

_GLUE = re.compile(r"\{glue:text\}`(?P<key>[\w-]+)(?::(?P<spec>[^`]*))?`")
_CLAIM = re.compile(r"^\s*claim\(", re.MULTILINE)
_GLUE_ATTEMPT = re.compile(r"\{glue[^`]*`[^`]*`")


def _no_duplicates(labels: tuple[str, ...]) -> tuple[str, ...]:
    if len(set(labels)) < len(labels):
        raise ValueError(f"expected each label once, got {', '.join(labels)}")
    return labels


Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
Labels = Annotated[tuple[Text, ...], AfterValidator(_no_duplicates)]


class _Row(BaseModel):
    """A table of the file, without any other key."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Document(_Row):
    """A source: its name for claims and pages, its key in ``book/references.bib``."""

    id: Text
    title: Text
    cite: Text


class Place(_Row):
    """Another document that makes a claim, and the place in it."""

    document: Text
    place: Text


class Claim(_Row):
    """One claim and what was found; the head of ``data/claims.toml`` says more."""

    id: Annotated[str, StringConstraints(pattern="^[a-z0-9]+(-[a-z0-9]+)*$")]
    document: Text
    place: Text
    claim: Text
    verdict: Verdict
    weight: Weight
    quote: Text
    at: Text
    by: Literal["", "proof", "source", "run"] = ""
    differs: Text = ""
    finding: Text = ""
    also: tuple[Place, ...] = ()
    evidence: Labels = ()

    @model_validator(mode="after")
    def _check_answer(self) -> Self:
        """A verdict comes with its evidence, and a finding with measured numbers."""
        for key, verdict in (("by", "refuted"), ("differs", "not reproduced here")):
            if bool(getattr(self, key)) != (self.verdict == verdict):
                how = "with" if getattr(self, key) else "without"
                raise ValueError(
                    f"{self.verdict}, {how} {key}; {key} goes with {verdict} only"
                )
        for key in ("evidence", "finding") if self.tested else ():
            if not getattr(self, key):
                raise ValueError(
                    f"{self.verdict}, without {key}; add it, or say {VERDICTS[-1]}"
                )
        # A formula is one word.
        quoted = re.sub(r"\$[^$]*\$", "x", self.quote).replace("…", " ").split()
        if len(quoted) > WORDS:
            raise ValueError(f"a quotation of {len(quoted)} words; at most {WORDS}")
        known = set(_MEASURED.findall(f"{self.claim} {self.quote}"))
        text = _NUMBERED_PLACE.sub("", re.sub(r"\{[\w:]+\}`[^`]*`", "", self.finding))
        if typed := [n for n in _MEASURED.findall(text) if n not in known]:
            raise ValueError(
                f"the finding has typed numbers: {', '.join(typed)}; take them from a "
                "chapter: {glue:text}`name:.3f`"
            )
        return self

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


class Ledger(_Row):
    """All documents and all claims, in the order of the file."""

    documents: tuple[Document, ...] = Field((), alias="document")
    claims: tuple[Claim, ...] = Field((), alias="claim")
    #: The ids of the claims with the largest consequence.
    first: Labels = ()

    @model_validator(mode="after")
    def _check_names(self) -> Self:
        """Names are given once, and name what is there."""
        documents = [document.id for document in self.documents]
        claims = [claim.id for claim in self.claims]
        for kind, names in (("document", documents), ("claim", claims)):
            for name in names:
                if names.count(name) > 1:
                    raise ValueError(f"a second {kind} {name}; give it another id")
        for claim in self.claims:
            for document in (claim.document, *(other.document for other in claim.also)):
                if document not in documents:
                    raise ValueError(
                        f"claim {claim.id}: unknown document {document!r}; expected "
                        f"one of {', '.join(documents)}"
                    )
        for name in self.first:
            if name not in claims:
                raise ValueError(f"first: no claim {name}{nearest(name, claims)}")
        return self

    @property
    def cited_documents(self) -> list[Document]:
        """The documents that have claims in the ledger."""
        return [document for document in self.documents if self.of(document)]

    def of(self, document: Document) -> tuple[Claim, ...]:
        """Return the claims of one document."""
        return tuple(c for c in self.claims if c.document == document.id)


@dataclass(frozen=True)
class Evidence:
    """A labeled place of a chapter, and the MyST role that links to it."""

    role: str
    chapter: Chapter
    #: The line, from 1, of the first tested cell after it.
    test: int | None


def ledger_file(root: Path) -> Path:
    """Return where the ledger is."""
    return root / "data" / "claims.toml"


def read_ledger(root: Path) -> Ledger:
    """Read the ledger of the book in ``root``.

    Whether its evidence exists is for :func:`press.claim_faults.ledger_faults` to say.
    """
    path = ledger_file(root)
    file = path.relative_to(root).as_posix()
    content: dict[Any, Any] = {}
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
        return Ledger.model_validate(content)
    except FileNotFoundError as error:
        raise BookError(f"{file}: no such file") from error
    except ValidationError as error:
        fault = error.errors()[0]
        words = list(fault["loc"])
        if len(words) > 1 and isinstance(row := content[words[0]][words[1]], dict):
            words[1] = row.get("id", words[1])
        place = " ".join(map(str, words))
        got = "" if fault["type"] == "value_error" else f", got {fault['input']!r:.60}"
        reason = fault["msg"].removeprefix("Value error, ") + got
        raise BookError(": ".join(filter(None, (file, place, reason)))) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BookError(f"{file}: not a TOML file: {error}") from error


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
                places[label] = Evidence(role, chapter, test)
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
