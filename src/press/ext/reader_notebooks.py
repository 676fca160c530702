"""Writes the notebook of each chapter that a build writes, beside its page.

Once without outputs, as it is opened to be run, and once with those of the page.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import nbformat
from docutils import nodes
from sphinx.application import Sphinx

from press.ext.plain_markdown import PlainMarkdown
from press.layout import find_chapter
from press.pairs import DOWNLOADS, pair_text, with_outputs
from press.source import read_source, render, write_whole
from press.stamps import in_step

PUBLISHED_FOLDER = "book/chapters/"

#: Where, beside the pages' sources, the notebooks with outputs are.
WITH_OUTPUTS_FOLDER = "notebooks/executed"


def write_notebook(
    app: Sphinx, pagename: str, _: str, context: dict[str, Any], doctree: nodes.Node
) -> None:
    """Write the notebook of one page, if it is a chapter's."""
    if doctree is None or not pagename.startswith(PUBLISHED_FOLDER):
        return
    chapter = find_chapter(Path(app.srcdir), pagename.removeprefix(PUBLISHED_FOLDER))
    if not in_step(chapter):
        return  # the page is not of this text
    page = PlainMarkdown(
        urljoin(app.config.html_baseurl, f"{pagename}.html"),
        app.env.toc_fignumbers.get(pagename, {}),
        app.config.mathjax3_config["tex"]["macros"],
    )
    text = pair_text(read_source(chapter), page.cells(doctree))
    folder = Path(app.outdir) / DOWNLOADS
    write_whole(folder / chapter.show(chapter.pair), text)
    executed = with_outputs(
        nbformat.reads(text, as_version=4), nbformat.read(chapter.published, 4)
    )
    write_whole(
        folder / WITH_OUTPUTS_FOLDER / f"{chapter.name}.ipynb", render(executed)
    )


def setup(app: Sphinx) -> None:
    """Register the writer, before what offers the notebook for download."""
    app.connect("html-page-context", write_notebook, priority=600)
