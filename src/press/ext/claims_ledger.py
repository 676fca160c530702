"""``{claims-ledger}``: the page of claims, made from ``data/claims.toml``.

Every claim becomes a block with a stable anchor, ``claim-ID``, that chapters link to
with ``{ref}``. Its quotation, finding and evidence unfold. Each piece of evidence links
to its place in the book and to the tested cell that follows it in the chapter's source,
which the site does not show. The template says how that looks; ``claims.js`` searches
and filters; without a script the page shows everything, and unfolds.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.statemachine import StringList
from jinja2 import Environment, StrictUndefined
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from press.claims import (
    REFUTATIONS,
    VERDICTS,
    WEIGHTS,
    Claim,
    Evidence,
    Ledger,
    find_evidence,
    insert_values,
    ledger_file,
    read_ledger,
)
from press.layout import BookError

_JINJA = Environment(trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined)
_TEMPLATE = _JINJA.from_string(Path(__file__).with_suffix(".jinja").read_text("utf-8"))


class ClaimsLedger(SphinxDirective):
    """Show the ledger: counts, the first ten, a filter, the claims of each document.

    What stands in the directive explains the verdicts, between counts and claims.
    """

    has_content = True

    def run(self) -> list[nodes.Node]:
        """Read the ledger and lay it out."""
        root = Path(self.env.srcdir)
        try:
            ledger, places = read_ledger(root), find_evidence(root)
            page = self._page(ledger, places)
        except BookError as error:
            return [self.state.document.reporter.warning(str(error), line=self.lineno)]
        self.env.note_dependency(str(ledger_file(root)))
        for chapter in {places[x].chapter for c in ledger.claims for x in c.evidence}:
            self.env.note_dependency(str(chapter.source))
            self.env.note_dependency(str(chapter.published))
        shown = self._parse(page.head("\n".join(self.content)))
        for document in ledger.cited_documents:
            anchor = f"claims-of-{document.id}"
            self._name(anchor, document.title)
            for claim in ledger.of(document):
                self._name(claim.anchor, f"{document.title}, {claim.place}")
            title = nodes.title(document.title, document.title)
            claims = self._parse(page.claims_of(document))
            shown.append(
                nodes.section("", title, *claims, ids=[anchor], names=[anchor])
            )
        return shown

    def _page(self, ledger: Ledger, places: dict[str, Evidence]) -> Any:
        """Return the template with what it shows."""
        claims = {claim.id: claim for claim in ledger.claims}
        used = {label for claim in ledger.claims for label in claim.evidence}
        if unknown := used - places.keys():
            raise BookError(f"no label {', '.join(unknown)}: `make check` says more")
        classes = {name: _classes(claim, places) for name, claim in claims.items()}
        sizes = Counter(name for names in classes.values() for name in names)
        chapters = sorted(name for name in sizes if name.startswith("in-"))
        root, theme = Path(self.env.srcdir), self.config.html_theme_options
        return _TEMPLATE.make_module(
            {
                "ledger": ledger,
                "first": [claims[name] for name in ledger.first],
                "titles": {d.id: d.title for d in ledger.documents},
                "core": [c.verdict for c in ledger.claims if c.weight == "core"],
                "weights": [*WEIGHTS],
                "answers": [
                    f"{verdict} {how}".strip()
                    for verdict in VERDICTS
                    for how in (REFUTATIONS.values() if verdict == "refuted" else [""])
                ],
                "counts": Counter(
                    (answer, weight)
                    for claim in ledger.claims
                    for answer in (claim.answer, "all")
                    for weight in (claim.weight, "all")
                ),
                "findings": {
                    name: insert_values(claim.finding, root)
                    for name, claim in claims.items()
                },
                "classes": classes,
                "sizes": sizes,
                "filters": {
                    "Verdict": {_class_of(verdict): verdict for verdict in VERDICTS},
                    "Weight": {f"weight-{weight}": weight for weight in WEIGHTS},
                    "Document": {f"of-{d.id}": d.title for d in ledger.cited_documents},
                    "Chapter": {name: f"Chapter {int(name[3:])}" for name in chapters},
                },
                "places": places,
                "repository": "{repository_url}/blob/{repository_branch}".format(
                    **theme
                ),
            }
        )

    def _name(self, anchor: str, title: str) -> None:
        """Make an anchor of the page a target of ``{ref}``."""
        domain = self.env.get_domain("std")
        domain.anonlabels[anchor] = self.env.docname, anchor
        domain.labels[anchor] = self.env.docname, anchor, title

    def _parse(self, text: str) -> list[nodes.Node]:
        """Parse MyST text."""
        holder = nodes.Element()
        lines = StringList(text.splitlines(), source="data/claims.toml")
        self.state.nested_parse(lines, self.content_offset, holder)
        return holder.children


def _class_of(verdict: str) -> str:
    return f"claim-{verdict.replace(',', '').replace(' ', '-')}"


def _classes(claim: Claim, places: dict[str, Evidence]) -> list[str]:
    """Name what a claim is filtered by."""
    documents = [claim.document, *(other.document for other in claim.also)]
    chapters = {places[label].chapter.number for label in claim.evidence}
    return [
        *(_class_of(claim.verdict), f"weight-{claim.weight}"),
        *(f"of-{document}" for document in dict.fromkeys(documents)),
        *(f"in-{number:02}" for number in sorted(chapters)),
    ]


def add_script(app: Sphinx, pagename: str, *_: Any) -> None:
    """Load the search on the page of the ledger, and on no other."""
    if pagename == "book/claims":
        app.add_js_file("claims.js")


def setup(app: Sphinx) -> None:
    """Register the directive."""
    app.add_directive("claims-ledger", ClaimsLedger)
    app.connect("html-page-context", add_script)
