"""Put the links that sphinx-codeautolink finds into code, quickly and on every page.

sphinx-codeautolink stops at theorems, which are wrapped in sections without identifier;
for each block of code it reads all code of the page above it again; it parses every
page once more to put its links in, which takes a minute; and it forgets what it read in
pages that Sphinx writes again without reading them again. All four are mended here.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from html import unescape
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx_codeautolink.extension import SphinxCodeAutoLink
from sphinx_codeautolink.extension import block as blocks
from sphinx_codeautolink.extension.block import (
    CodeBlockAnalyser,
    SourceTransform,
    construct_name_pattern,
)
from sphinx_codeautolink.parse import ImportTrackerVisitor, Name

BLOCK = re.compile(r'(<div class="highlight"><pre>)(.*?)(</pre>)', re.DOTALL)
TAG = re.compile(r"<[^>]*>")
LINK = '<a href="{}"{} class="sphinx-codeautolink-a">{}</a>'


def guard_sections() -> None:
    """Leave out sections without identifier, and titles that they never had."""
    visit, depart = CodeBlockAnalyser.visit_section, CodeBlockAnalyser.depart_section

    def visit_section(self: CodeBlockAnalyser, node: nodes.section) -> None:
        if node["ids"]:
            visit(self, node)

    def depart_section(self: CodeBlockAnalyser, node: nodes.section) -> None:
        if node["ids"] and self.title_stack:
            depart(self, node)

    CodeBlockAnalyser.visit_section = visit_section
    CodeBlockAnalyser.depart_section = depart_section


class NamesOfPage:
    """The library's ``parse_names``, which knows the code that it has visited."""

    def __init__(self) -> None:
        self.document: nodes.document | None = None
        self.source = ""

    def __call__(self, source: str, node: nodes.Element) -> list[Name]:
        """Return the names of what is new in the code so far of a page."""
        known = f"{self.source}\n"
        if node.document is self.document and source.startswith(known):
            tree = ast.parse(source[len(known) :])
            ast.increment_lineno(tree, known.count("\n"))
            visitor = self.visitor
            visitor.doctree_node, visitor.accessed = node, []
        else:
            tree, visitor = ast.parse(source), ImportTrackerVisitor(node)
        self.document = None  # if it fails, it begins anew
        visitor.visit(tree)
        self.document, self.source, self.visitor = node.document, source, visitor
        return visitor.accessed


def link_blocks(
    body: str, transforms: list[SourceTransform], targets: dict[str, str]
) -> str:
    """Return the HTML of a page with links in its blocks of code."""
    pending: dict[str, list[SourceTransform]] = defaultdict(list)
    for transform in transforms:
        pending[transform.source.rstrip()].append(transform)

    def link_block(block: re.Match[str]) -> str:
        same = pending.get(unescape(TAG.sub("", block[2])).rstrip())
        if not same:
            return block[0]
        lines = block[2].split("\n")
        for name in same.pop(0).names:
            first, last = name.lineno - 1, name.end_lineno
            code = "\n".join(lines[first:last])
            # The last one: in `a.b = a.b`, what stands right is found first.
            *_, match = (None, *re.finditer(construct_name_pattern(name), code))
            if match is None:
                continue
            start, end = match.start() + len(match[1]), match.end()
            text = code[start:end]
            plain = re.sub(r"\s+", "", unescape(TAG.sub("", text)))
            place = name.resolved_location
            title = "" if plain == place else f' title="{place}"'
            link = LINK.format(targets[place], title, text)
            lines[first:last] = (code[:start] + link + code[end:]).split("\n")
        return block[1] + "\n".join(lines) + block[3]

    return BLOCK.sub(link_block, body)


def connect_links(app: Sphinx, state: SphinxCodeAutoLink) -> None:
    """Take over from sphinx-codeautolink where links are put in."""
    for listener in app.events.listeners["build-finished"]:
        if listener.handler == state.apply_links:
            app.disconnect(listener.id)
            break

    read: dict[str, list[SourceTransform]] = {}

    def remember(app: Sphinx) -> None:
        read.update(getattr(app.env, "sphinx_codeautolink_transforms", {}))

    def recall(app: Sphinx) -> None:
        if state.cache is not None:
            state.cache.transforms.update(read)

    def link_page(
        app: Sphinx, pagename: str, _: str, context: dict[str, Any], doctree: nodes.Node
    ) -> None:
        transforms = state.cache and state.cache.transforms.get(str(Path(pagename)))
        if doctree is None or not transforms:
            return
        up = "../" * pagename.count("/")
        targets = {
            name.resolved_location: up + state.inventory[name.resolved_location]
            for transform in transforms
            for name in transform.names
        }
        context["body"] = link_blocks(context["body"], transforms, targets)

    app.connect("builder-inited", remember, priority=400)
    app.connect("builder-inited", recall, priority=600)
    app.connect("html-page-context", link_page)


def setup(app: Sphinx) -> None:
    """Set sphinx-codeautolink up, guarded."""
    app.setup_extension("sphinx_codeautolink")
    guard_sections()
    blocks.parse_names = NamesOfPage()
    (state,) = (
        listener.handler.__self__
        for listener in app.events.listeners["build-finished"]
        if isinstance(getattr(listener.handler, "__self__", None), SphinxCodeAutoLink)
    )
    connect_links(app, state)
