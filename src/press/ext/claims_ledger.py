"""``{claims-ledger}``: the page of claims, made from ``data/claims.toml``.

Every claim becomes a block with a stable anchor, ``claim-ID``, that chapters link to
with ``{ref}``. A row of buttons above them shows one verdict only; it needs no script.
Each piece of evidence links to its place in the book and to the tested cell that
follows it in the chapter's source, which the site does not show.
"""

from __future__ import annotations

from collections import Counter
from html import escape
from pathlib import Path

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from press.claims import (
    VERDICTS,
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

SLUGS = {verdict: verdict.replace(" ", "-") for verdict in VERDICTS}
PLURALS = dict(
    zip(VERDICTS, ("hold", "hold in part", "fail", "are not tested here"), strict=True)
)


class ClaimsLedger(SphinxDirective):
    """Show the ledger: counts, a filter, and the claims of each document.

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
            *self._parse(f"{_sentence(ledger, shown)}\n\n{_counts(ledger, shown)}"),
            *self._parse("\n".join(self.content)),
            nodes.raw("", _filter(ledger), format="html"),
            *(self._section(document, ledger) for document in shown),
        ]

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
        block = nodes.container(
            ids=[claim.anchor],
            classes=["claim", f"claim-{SLUGS.get(claim.verdict, 'unknown')}"],
        )
        block += self._head(claim)
        block += self._parse(claim.claim)
        try:
            finding = insert_values(claim.finding, self.root)
        except BookError as error:
            block += self._warn(f"claim {claim.id}: {error}")
            return block
        if finding:
            block += nodes.container(
                "", *self._parse(finding), classes=["claim-finding"]
            )
        if claim.evidence:
            block += nodes.container(
                "",
                *self._parse(", ".join(map(self._link, claim.evidence)) + "."),
                classes=["claim-evidence"],
            )
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
        head += nodes.inline(text=claim.verdict, classes=["claim-verdict"])
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


def _sentence(ledger: Ledger, shown: list[Document]) -> str:
    """Return the counts in words."""
    total = Counter(claim.verdict for claim in ledger.claims)
    told = [f"{total[verdict]} {plural}" for verdict, plural in PLURALS.items()]
    tested = sum(claim.tested for claim in ledger.claims)
    return (
        f"The ledger has {len(ledger.claims)} claims of {len(shown)} documents: "
        f"{', '.join(told[:-1])}, and {told[-1]}. Behind each of the {tested} with an "
        "answer stands at least one tested cell."
    )


def _counts(ledger: Ledger, shown: list[Document]) -> str:
    """Return the table of counts, as MyST text."""
    rows = [["", *VERDICTS, "all"]]
    rows.append(["---", *["--:"] * (len(VERDICTS) + 1)])
    for document in shown:
        claims = ledger.of(document)
        counts = Counter(claim.verdict for claim in claims)
        link = f"{{ref}}`claims-of-{document.id}`"
        rows.append([link, *(str(counts[v]) for v in VERDICTS), str(len(claims))])
    total = Counter(claim.verdict for claim in ledger.claims)
    numbers = [*(total[v] for v in VERDICTS), len(ledger.claims)]
    rows.append(["**all**", *(f"**{number}**" for number in numbers)])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _filter(ledger: Ledger) -> str:
    """Return buttons that show the claims of one verdict; the style does the rest."""
    total = Counter(claim.verdict for claim in ledger.claims)
    choices = [("all", "all", len(ledger.claims))]
    choices += [(SLUGS[v], v, total[v]) for v in VERDICTS if total[v]]
    buttons = "\n".join(
        f'<label><input type="radio" name="claims-shown" value="{slug}"'
        f"{' checked' if slug == 'all' else ''}> {escape(name)} ({number})</label>"
        for slug, name, number in choices
    )
    return (
        f'<fieldset class="claims-filter">\n<legend>Show</legend>\n{buttons}\n'
        "</fieldset>"
    )


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("claims-ledger", ClaimsLedger)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
