"""Number each chapter as its file is numbered.

Sphinx counts chapters in the order of the table of contents. While a part of the book
is missing, the count runs behind the files' own numbers, which the anchors, the
package's docstrings and the claims ledger use. Sections and figures follow suit.
"""

from __future__ import annotations

import re
from functools import wraps

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx_external_toc.collectors import TocTreeCollectorWithStyles

CHAPTER = re.compile(r"book/chapters/(\d+)_")


def number_as_files(env: BuildEnvironment) -> None:
    """Replace the first part of all section numbers of the chapters."""
    for name, numbers in env.toc_secnumbers.items():
        found = CHAPTER.match(name)
        if found is None:
            continue
        chapter = int(found[1])
        for anchor, number in numbers.items():
            if number:
                numbers[anchor] = (chapter, *number[1:])
        numbered = [env.titles[name], *env.tocs[name].findall(nodes.reference)]
        for node in numbered:
            if node.get("secnumber"):
                node["secnumber"] = [chapter, *node["secnumber"][1:]]


def setup(app: Sphinx) -> dict[str, bool]:
    """Let the numbering of sections end with the numbers of files."""
    assign = TocTreeCollectorWithStyles.assign_section_numbers

    @wraps(assign)
    def assign_section_numbers(
        self: TocTreeCollectorWithStyles, env: BuildEnvironment
    ) -> list[str]:
        changed: list[str] = assign(self, env)
        number_as_files(env)
        return changed

    TocTreeCollectorWithStyles.assign_section_numbers = assign_section_numbers
    return {"parallel_read_safe": True, "parallel_write_safe": True}
