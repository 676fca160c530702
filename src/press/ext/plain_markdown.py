"""A resolved page as plain Markdown: what a notebook shows without any extension.

Sphinx has resolved the page: numbers, references, citations. What is left is to write
it in the Markdown that JupyterLab, VS Code and Colab share, with links to the site, or
to an anchor where the page refers to itself.
Code cells are left open, as their numbers, for whoever puts the notebook together.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from urllib.parse import urljoin

from docutils import nodes
from sphinx.addnodes import number_reference
from sphinx_exercise.nodes import exercise_enumerable_node, solution_node
from sphinx_proof.nodes import proof_node

#: A macro of MathJax: its text, or its text and how many arguments it takes.
Macro = str | Sequence[str | int]

# A proof of more characters is folded.
_LONG = 900
# The sign of a link from a work to the bibliography, on the site only.
_HOOK = "\N{LEFTWARDS ARROW WITH HOOK}"


def expand_macros(formula: str, macros: Mapping[str, Macro]) -> str:
    """Write a formula without the book's own macros."""
    names = "|".join(sorted(macros, key=len, reverse=True))
    pattern = re.compile(rf"\\({names})(?![A-Za-z])")
    while names and (match := pattern.search(formula)):
        macro = macros[match[1]]
        text, count = (macro, 0) if isinstance(macro, str) else macro
        rest = formula[match.end() :]
        for number in range(1, int(count) + 1):
            argument, rest = _argument(rest.lstrip())
            text = str(text).replace(f"#{number}", argument)
        formula = f"{formula[: match.start()]}{text}{rest}"
    return formula


def _argument(text: str) -> tuple[str, str]:
    """Return the argument of a macro, a group in braces or one sign, and the rest."""
    if not text.startswith("{"):
        return text[:1], text[1:]
    depth = end = 0
    while not end or depth:
        depth += (text[end] == "{") - (text[end] == "}")
        end += 1
    return text[1 : end - 1], text[end:]


@dataclass(frozen=True)
class PlainMarkdown:
    """Writes one page."""

    #: Of the page on the site; links are relative to it.
    address: str
    #: Of figures, theorems, exercises and equations, as Sphinx counts them.
    numbers: Mapping[str, Mapping[str, Sequence[int]]]
    #: Of MathJax.
    macros: Mapping[str, Macro]
    #: Where the page refers to itself; :meth:`cells` finds them.
    places: Set[str] = frozenset()

    def cells(self, page: nodes.Element) -> list[str | int]:
        """Return the texts of a page, one a heading, and numbers of code cells."""
        parts: list[str | int] = []
        links = {
            _place(link)[1:]
            for link in page.findall(nodes.reference)
            if not isinstance(link.parent, nodes.title)  # of a solution: left out
        }
        names = {name for node in page.findall(nodes.Element) for name in node["ids"]}
        writer = replace(self, places=links & names)
        for block in writer._blocks(page, level=0):
            fits = parts and isinstance(parts[-1], str) and isinstance(block, str)
            if fits and not re.match("#+ ", str(block)):
                parts[-1] = f"{parts[-1]}\n\n{block}"
            else:
                parts.append(block)
        return parts

    # --- blocks ---------------------------------------------------------------

    def _blocks(self, parent: nodes.Element, level: int) -> Iterator[str | int]:
        for node in parent.children:
            yield from self._block(node, level)

    def _block(self, node: nodes.Node, level: int) -> Iterator[str | int]:
        """Write a block, and before it an anchor for what leads to it."""
        anchor = self._anchor(node)
        for block in self._written(node, level):
            if isinstance(block, str) and anchor:
                block = _anchored(block, anchor)
                anchor = ""
            yield block

    def _anchor(self, *blocks: nodes.Node) -> str:
        names = [n for b in blocks if isinstance(b, nodes.Element) for n in b["ids"]]
        return "".join(f'<a id="{n}"></a>' for n in names if n in self.places)

    def _written(self, node: nodes.Node, level: int) -> Iterator[str | int]:
        match node:
            case nodes.section():
                inner = level + isinstance(node.parent, (nodes.document, nodes.section))
                yield from self._blocks(node, inner)
            case nodes.title():
                yield f"{'#' * level} {self._line(node)}"
            case nodes.container() if _is_cell(node):
                figures = list(node.findall(nodes.figure))
                texts = [text for figure in figures for text in self._caption(figure)]
                if anchor := self._anchor(*figures):
                    texts.insert(0, anchor)
                    if not _is_cell(node.previous_sibling()):
                        # It leads to the figure, and not to its end.
                        yield texts.pop(0)
                yield int(node["cell_index"])
                yield from texts
            case proof_node():
                yield self._proof(node)
            case exercise_enumerable_node():
                yield f"**{self._named(node, 'exercise', 'Exercise')}**"
                yield from self._content(node, level)
            case solution_node():
                yield from self._solution(node, level)
            case nodes.Element() if "realtype" in node:
                name = self._named(node, node["countertype"], node["realtype"].title())
                yield _quoted([f"**{name}**", *self._content(node, level)])
            case nodes.Admonition():
                title, *rest = node.children
                yield _quoted([f"**{self._line(title)}**", *self._texts(rest, level)])
            case nodes.target() | nodes.comment() | nodes.raw() | nodes.meta():
                return
            case nodes.container() | nodes.compound():
                yield from self._blocks(node, level)
            case _:
                yield self._text(node, level)

    def _texts(self, children: Sequence[nodes.Node], level: int) -> list[str]:
        return [str(b) for child in children for b in self._block(child, level)]

    def _text(self, node: nodes.Node, level: int) -> str:
        match node:
            case nodes.paragraph():
                # A number that a line begins with begins no list.
                text = self._inline(node).rstrip()
                return re.sub(r"(?m)^(\d+)([.)])(?=\s)", r"\1\\\2", text)
            case nodes.bullet_list() if "chapter-references" in node["classes"]:
                # The line keeps it apart from a list before it.
                return f"*Works cited*\n\n{self._list(node, level, '- ')}"
            case nodes.bullet_list():
                return self._list(node, level, "- ")
            case nodes.enumerated_list():
                return self._list(node, level, "{}. ", node.get("start", 1))
            case nodes.block_quote():
                return _quoted(self._texts(node.children, level))
            case nodes.literal_block():
                return f"```{_language(node)}\n{node.astext().rstrip()}\n```"
            case nodes.math_block():
                return self._display(node)
            case nodes.table():
                return self._table(node)
            case nodes.figure():
                return "\n\n".join([self._inline(node[0]), *self._caption(node)])
            case nodes.image():
                return self._inline(node)
        raise NotImplementedError(f"{self.address}: no Markdown for {node!r:.80}")

    def _content(self, node: nodes.Element, level: int) -> Iterator[str | int]:
        for child in node.children:
            if not isinstance(child, nodes.title):
                yield from self._blocks(child, level)

    def _named(self, node: nodes.Element, kind: str, name: str) -> str:
        """``Theorem 4.2 (Title).``"""
        number = self._number(kind, node)
        title = next((self._line(t) for t in node.findall(nodes.title)), "")
        return " ".join(filter(None, (name, number, title))) + "."

    def _number(self, kind: str, node: nodes.Element) -> str:
        numbers = self.numbers.get(kind, {})
        known = [numbers[name] for name in node["ids"] if name in numbers]
        return ".".join(map(str, known[0])) if known else ""

    def _caption(self, figure: nodes.figure) -> Iterator[str]:
        for caption in figure.findall(nodes.caption):
            number = self._number("figure", figure)
            yield f"**Figure {number}.** {self._line(caption)}"

    def _proof(self, node: nodes.Element) -> str:
        (box,) = node.children
        text = "\n\n".join(self._texts(box.children, 0)) + " ∎"
        if len(text) < _LONG:
            return text
        return _folded("Proof", text.replace("*Proof.* ", "", 1))

    def _solution(self, node: nodes.Element, level: int) -> Iterator[str | int]:
        title = self._line(node[0])
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title).replace("*", "")
        texts: list[str] = []
        opened = False
        for block in [*self._content(node, level), None]:
            if isinstance(block, str):
                texts.append(block)
                continue
            if texts:  # no fold reaches over a code cell
                yield _folded(plain, "\n\n".join(texts))
                texts = []
            elif not opened and block is not None:
                yield f"*{plain}, in code:*"
            opened = True
            if block is not None:
                yield block

    def _list(self, node: nodes.Element, level: int, mark: str, start: int = 1) -> str:
        items = []
        for number, item in enumerate(node.children, start=start):
            marked = mark.format(number)
            text = "\n\n".join(self._texts(item.children, level))
            items.append(marked + _indented(text, " " * len(marked)))
        loose = any("\n\n" in item for item in items)
        return ("\n\n" if loose else "\n").join(items)

    def _display(self, node: nodes.math_block) -> str:
        formula = self._formula(node)
        number = self._number("displaymath", node)
        if node.get("nowrap"):
            return formula
        if r"\\" in formula and not formula.startswith(r"\begin"):
            formula = rf"\begin{{aligned}} {formula} \end{{aligned}}"
        tag = rf" \tag{{{number}}}" if number else ""
        return f"$${formula}{tag}$$"

    def _table(self, node: nodes.table) -> str:
        rows = [
            [self._cell(entry) for entry in row.findall(nodes.entry)]
            for row in node.findall(nodes.row)
        ]
        rule = [
            "---" if "text-right" not in e.get("classes", ()) else "---:"
            for e in next(iter(node.findall(nodes.row))).findall(nodes.entry)
        ]
        lines = [rows[0], rule, *rows[1:]]
        return "\n".join(f"| {' | '.join(line)} |" for line in lines)

    def _cell(self, entry: nodes.entry) -> str:
        text = " ".join(self._line(child) for child in entry.children)

        def unbarred(part: re.Match[str]) -> str:
            # A bar would end the cell; a formula has other names for it.
            if part[0] == "|":
                return r"\|"
            return part[0].replace(r"\|", r"\Vert ").replace("|", r"\vert ")

        return re.sub(r"\$[^$]*\$|\|", unbarred, text)

    # --- inline ---------------------------------------------------------------

    def _line(self, node: nodes.Node) -> str:
        return " ".join(self._inline(node).split())

    def _inline(self, node: nodes.Node) -> str:
        match node:
            case nodes.Text():
                return _escaped(node.astext())
            case nodes.image():
                address = urljoin(self.address, node.get("uri", ""))
                return f"![{_escaped(node.get('alt', ''))}]({address})"
            case nodes.raw() | nodes.target():
                return ""
            case nodes.math():
                return f"${self._formula(node)}$"
            case nodes.reference() if node.astext() == _HOOK:
                return ""
            case nodes.literal():
                ticks = "``" if "`" in node.astext() else "`"
                return f"{ticks}{node.astext()}{ticks}"
        assert isinstance(node, nodes.Element)
        text = "".join(self._inline(child) for child in node.children)
        match node:
            case nodes.emphasis():
                return _wrapped(text, "*")
            case nodes.strong():
                return _wrapped(text, "**")
            case nodes.reference() | number_reference():
                return f"[{text}]({self._link(node)})"
        return text

    def _link(self, node: nodes.Element) -> str:
        place = _place(node)
        if place[1:] in self.places:
            return place
        return urljoin(self.address, place).replace(" ", "%20")

    def _formula(self, node: nodes.Node) -> str:
        # On one line: in a quotation, the next would begin with its mark.
        return " ".join(expand_macros(node.astext(), self.macros).split())


def _is_cell(node: nodes.Node | None) -> bool:
    return isinstance(node, nodes.container) and node.get("nb_element") == "cell_code"


def _anchored(text: str, anchor: str) -> str:
    return (
        re.sub("^(#+ )", rf"\1{anchor}", text)
        if text[0] == "#"
        else f"{anchor}\n\n{text}"
    )


def _place(link: nodes.Element) -> str:
    return str(link.get("refuri") or f"#{link.get('refid', '')}")


def _escaped(text: str) -> str:
    return re.sub(r"([\\`*$\[\]])", r"\\\1", text).replace("<", "&lt;")


def _wrapped(text: str, mark: str) -> str:
    """Emphasize text; spaces at its ends stay outside."""
    inside = text.strip()
    if not inside:
        return text
    before, _, after = text.partition(inside)
    return f"{before}{mark}{inside}{mark}{after}"


def _indented(text: str, space: str) -> str:
    return text.replace("\n", f"\n{space}").replace(f"\n{space}\n", "\n\n")


def _quoted(blocks: Sequence[str]) -> str:
    lines = "\n\n".join(map(str, blocks)).splitlines()
    return "\n".join(f"> {line}".rstrip() for line in lines)


def _folded(title: str, text: str) -> str:
    return f"<details>\n<summary>{title}</summary>\n\n{text}\n\n</details>"


def _language(node: nodes.literal_block) -> str:
    language = node.get("language", "")
    return "" if language in {"default", "none"} else language
