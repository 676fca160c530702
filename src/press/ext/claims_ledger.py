"""``{claims-ledger}``: the page of claims, made from ``data/claims.toml``.

Every claim becomes a block with a stable anchor, ``claim-ID``, that chapters link to
with ``{ref}``. Its quotation, finding and evidence unfold. Each piece of evidence links
to its place in the book and to the tested cell that follows it in the chapter's source,
which the site does not show. ``claims.js`` searches and filters; without a script the
page shows everything, and unfolds.
"""

from __future__ import annotations

from collections import Counter
from html import escape
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from press.claims import (
    REFUTATIONS,
    VERDICTS,
    WEIGHTS,
    Claim,
    Document,
    Evidence,
    Ledger,
    find_evidence,
    insert_values,
    ledger_file,
    read_ledger,
)
from press.layout import BookError

SLUGS = {verdict: f"claim-{verdict.replace(' ', '-')}" for verdict in VERDICTS}
PLURALS = dict(
    zip(
        VERDICTS,
        (
            "hold",
            "hold in part",
            "are refuted",
            "not reproduced here",
            "not tested",
        ),
        strict=True,
    )
)


class ClaimsLedger(SphinxDirective):
    """Show the ledger: counts, the first ten, a filter, the claims of each document.

    What stands in the directive explains the verdicts, between counts and claims.
    """

    has_content = True

    def run(self) -> list[nodes.Node]:
        """Read the ledger and lay it out."""
        self.root = Path(self.env.srcdir)
        try:
            ledger = read_ledger(self.root)
            self.places = find_evidence(self.root)
        except BookError as error:
            return [self._warn(str(error))]
        self.titles = {document.id: document.title for document in ledger.documents}
        self.env.note_dependency(str(ledger_file(self.root)))
        for chapter in {self.places[label].chapter for label in self._used(ledger)}:
            self.env.note_dependency(str(chapter.source))
            self.env.note_dependency(str(chapter.published))
        shown = [document for document in ledger.documents if ledger.of(document)]
        return [
            *self._parse(f"{_sentence(ledger, shown)}\n\n{_counts(ledger)}"),
            *self._parse("\n".join(self.content)),
            *self._first(ledger),
            nodes.raw("", self._filter(ledger, shown), format="html"),
            *(self._section(document, ledger) for document in shown),
        ]

    def _first(self, ledger: Ledger) -> list[nodes.Node]:
        """Return the claims with the largest consequence, as links to them."""
        claims = {claim.id: claim for claim in ledger.claims}
        found = [claims[name] for name in ledger.first if name in claims]
        if not found:
            return []
        items = [
            f"1. {_in_line(claim.claim)} {{ref}}`{_verdict(claim)} <{claim.anchor}>`"
            for claim in found
        ]
        heading = "**Those with the largest consequence**"
        box = nodes.container(classes=["claims-first"])
        box += self._parse("\n\n".join([heading, "\n".join(items)]))
        return [box]

    def _filter(self, ledger: Ledger, shown: list[Document]) -> str:
        """Return the form above the claims, hidden until a script can use it."""
        chapters = Counter(n for claim in ledger.claims for n in self._chapters(claim))
        weights = Counter(claim.weight for claim in ledger.claims)
        verdicts = Counter(claim.verdict for claim in ledger.claims)
        selects = [
            _select("Verdict", [(SLUGS[v], v, verdicts[v]) for v in VERDICTS]),
            _select("Weight", [(f"weight-{w}", w, weights[w]) for w in WEIGHTS]),
            _select(
                "Document",
                [
                    (f"of-{d.id}", d.title, sum(_said_in(d, c) for c in ledger.claims))
                    for d in shown
                ],
            ),
            _select(
                "Chapter",
                [(f"in-{n:02}", f"Chapter {n}", chapters[n]) for n in sorted(chapters)],
            ),
        ]
        return "\n".join(
            [
                '<form class="claims-filter" role="search" aria-label="Claims" hidden>',
                '<label>Search <input type="search" name="words" '
                'placeholder="words of a claim"></label>',
                *selects,
                '<button type="reset">Show all</button>',
                '<output aria-live="polite"></output>',
                "</form>",
            ]
        )

    def _chapters(self, claim: Claim) -> set[int]:
        """Return the numbers of the chapters with the claim's evidence."""
        places = (self.places.get(label) for label in claim.evidence)
        return {int(place.chapter.name[:2]) for place in places if place}

    def _used(self, ledger: Ledger) -> set[str]:
        used = {label for claim in ledger.claims for label in claim.evidence}
        return used & set(self.places)

    def _warn(self, message: str) -> nodes.system_message:
        return self.state.document.reporter.warning(message, line=self.lineno)

    def _parse(self, text: str) -> list[nodes.Node]:
        """Parse MyST text."""
        holder = nodes.Element()
        source = ledger_file(self.root).relative_to(self.root).as_posix()
        lines = StringList(text.splitlines(), source=source)
        self.state.nested_parse(lines, self.content_offset, holder)
        return holder.children

    def _section(self, document: Document, ledger: Ledger) -> nodes.section:
        anchor = f"claims-of-{document.id}"
        self._anchor(anchor, document.title)
        section = nodes.section(ids=[anchor], names=[anchor])
        section += nodes.title(document.title, document.title)
        section += self._parse(f"{{cite:t}}`{document.cite}`.")
        for claim in ledger.of(document):
            section += self._claim(claim)
        return section

    def _claim(self, claim: Claim) -> nodes.container:
        place = f"{self.titles.get(claim.document, claim.document)}, {claim.place}"
        self._anchor(claim.anchor, place)
        classes = ["claim", SLUGS.get(claim.verdict, "unknown")]
        classes += [f"weight-{claim.weight}", f"of-{claim.document}"]
        classes += [f"of-{document}" for document, _ in claim.also]
        classes += [f"in-{number:02}" for number in sorted(self._chapters(claim))]
        block = nodes.container(ids=[claim.anchor], classes=classes)
        block += self._head(claim)
        block += self._parse(claim.claim)
        try:
            finding = insert_values(claim.finding, self.root)
        except BookError as error:
            block += self._warn(f"claim {claim.id}: {error}")
            return block
        tested = ", ".join(map(self._link, claim.evidence))
        parts = {
            "quote": f"“{claim.quote}” ({claim.at})",
            "finding": finding,
            "differs": f"*What differs here:* {claim.differs}." * bool(claim.differs),
            "evidence": f"*Evidence:* {tested}." * bool(tested),
        }
        summary = "<summary>The words, and what we found</summary>"
        block += nodes.raw("", f"<details>{summary}", format="html")
        for name, text in parts.items():
            if text:
                block += nodes.container(
                    "", *self._parse(text), classes=[f"claim-{name}"]
                )
        block += nodes.raw("", "</details>", format="html")
        return block

    def _anchor(self, anchor: str, title: str) -> None:
        """Make an anchor of the page a target of ``{ref}``."""
        domain = self.env.get_domain("std")
        domain.anonlabels[anchor] = self.env.docname, anchor
        domain.labels[anchor] = self.env.docname, anchor, title

    def _head(self, claim: Claim) -> nodes.paragraph:
        """Return the first line: the verdict, and where the claim is made."""
        places = f"{self.titles.get(claim.document, claim.document)}, {claim.place}"
        for document, place in claim.also:
            places += f"; {_lower(self.titles.get(document, document))}, {place}"
        head = nodes.paragraph(classes=["claim-head"])
        head += nodes.inline(text=_verdict(claim), classes=["claim-verdict"])
        head += nodes.inline(text=f" {claim.weight} ", classes=["claim-weight"])
        head += nodes.inline(text=f" {places} ", classes=["claim-place"])
        head += nodes.reference(
            "",
            "#",
            refuri=f"#{claim.anchor}",
            internal=True,
            classes=["headerlink"],
            reftitle="Link to this claim",
        )
        return head

    def _link(self, label: str) -> str:
        place = self.places.get(label)
        if place is None:
            self._warn(f"no label {label}; `python -m press check` says more")
            return label
        link = f"{{{place.role}}}`{label}`"
        if label.startswith("sec-"):
            link = f"{{ref}}`Chapter {int(place.chapter.name[:2])} <{label}>`, {link}"
        return f"{link} ([test]({self._source(place)}))"

    def _source(self, place: Evidence) -> str:
        """Return the address of the tested cell in the repository."""
        theme = self.config.html_theme_options
        path = place.chapter.show(place.chapter.source)
        return (
            f"{theme['repository_url']}/blob/{theme['repository_branch']}/{path}"
            f"?plain=1#L{place.test}"
        )


def _lower(title: str) -> str:
    return title[:1].lower() + title[1:]


def _in_line(text: str) -> str:
    return " ".join(text.split())


def _verdict(claim: Claim) -> str:
    """Return the verdict, with what refutes the claim if something does."""
    return f"{claim.verdict} {REFUTATIONS.get(claim.by, '')}".strip()


def _said_in(document: Document, claim: Claim) -> bool:
    return document.id in (claim.document, *(other for other, _ in claim.also))


def _sentence(ledger: Ledger, shown: list[Document]) -> str:
    """Return the counts in words, of what matters first."""
    core = [claim for claim in ledger.claims if claim.weight == "core"]
    total = Counter(claim.verdict for claim in core)
    counts = [f"{total[verdict]} {plural}" for verdict, plural in PLURALS.items()]
    answered = sum(claim.tested for claim in ledger.claims)
    return (
        f"The ledger has {len(ledger.claims)} claims of {len(shown)} documents. "
        f"Of the {len(core)} at their core, {', '.join(counts[:-1])}, and "
        f"{counts[-1]}. Behind each of the {answered} with an answer stands at least "
        "one tested cell."
    )


def _counts(ledger: Ledger) -> str:
    """Return the table of counts by verdict and weight, as MyST text."""
    weights = Counter((_verdict(claim), claim.weight) for claim in ledger.claims)
    names = [
        name
        for verdict in VERDICTS
        for name in (
            [f"{verdict} {how}" for how in REFUTATIONS.values()]
            if verdict == "refuted"
            else [verdict]
        )
        if any(weights[name, weight] for weight in WEIGHTS)
    ]
    rows = [["", *WEIGHTS, "all"], ["---", *["--:"] * (len(WEIGHTS) + 1)]]
    for name in names:
        numbers = [weights[name, weight] for weight in WEIGHTS]
        rows.append([name, *map(str, numbers), str(sum(numbers))])
    total = Counter(claim.weight for claim in ledger.claims)
    numbers = [*(total[weight] for weight in WEIGHTS), len(ledger.claims)]
    rows.append(["**all**", *(f"**{number}**" for number in numbers)])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _select(name: str, choices: list[tuple[str, str, int]]) -> str:
    """Return a labeled list to choose from: the class to show, its name, how many."""
    options = "".join(
        f'<option value="{value}">{escape(text)} ({number})</option>'
        for value, text, number in choices
        if number
    )
    return (
        f'<label>{name} <select><option value="">all</option>{options}</select></label>'
    )


def add_script(
    app: Sphinx,
    pagename: str,
    templatename: str,
    context: dict[str, Any],
    doctree: nodes.document | None,
) -> None:
    """Load the search on the page of the ledger, and on no other."""
    blocks = doctree.findall(nodes.container) if doctree is not None else ()
    if any("claim" in block["classes"] for block in blocks):
        app.add_js_file("claims.js")


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("claims-ledger", ClaimsLedger)
    app.connect("html-page-context", add_script)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
