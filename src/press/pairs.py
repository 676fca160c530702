"""Chapters as readers open them: ``notebooks/NN_name.ipynb``.

The code is that of ``notebooks/NN_name.md``, cell by cell. The text is that of the
page, in plain Markdown with everything resolved, so that it reads as a page in
JupyterLab, VS Code and Colab. The site makes it, as only Sphinx knows what references
stand for.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import nbformat
import yaml
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell

from press.layout import Chapter, list_chapters, package_version
from press.source import FOLDED, Source, cell_tags, read_source, render, write_whole
from press.stamps import STAMP

#: Where the site offers what chapters are made from.
DOWNLOADS: Final = "_sources"

# The note behind a chapter's first text, in its notebook only.
NOTE = """\
*The text describes the [published page]({page}), where `profile = "full"`. Here it is
`"quick"`, smaller, mostly on digits: numbers are those of your run, and a claim says
whether it holds in it. Where `robustbook` is missing, as on Colab, run the next cell,
which is folded, first: it installs {version}, and torch if that is missing too. Colab
does not follow links from one part of a notebook to another.*"""
INSTALL = """\
from importlib.util import find_spec

try:
    from robustbook import __version__ as installed
except ImportError:
    installed = None
needed = {modules}
if installed != "{version}" or not all(map(find_spec, needed)):
    %pip install -q "robustbook[chapters] @ {archive}" \
"robustbook-data @ {archive}#subdirectory=data"\
"""

# Modules of the extra ``chapters`` that chapters import.
MODULES: Final = ("foolbox", "pyautoattack", "seaborn")


def revision(branch: str) -> str:
    """Return where the repository has this version: what readers launch and install.

    It is the tag of a release, and while one is being made the branch that it is made
    from.
    """
    version = package_version()
    return branch if ".dev" in version else f"v{version}"


def pair_text(source: Source, page: Sequence[str | int]) -> str:
    """Return the Jupyter notebook of a chapter, as text.

    ``page`` is what its page says, and between it the numbers of the cells whose code
    it shows. Cells that the page does not show stand before the next one.
    """
    code = {
        index: cell
        for index, cell in enumerate(source.notebook.cells)
        if cell.cell_type == "code"
    }
    solutions = _solutions(source)
    cells: list[NotebookNode] = []
    rest = list(code)
    for part in page:
        if isinstance(part, str):
            name = f"{source.chapter.name}-text-{len(cells):03d}"
            cells.append(new_markdown_cell(part, id=name))
            continue
        while rest and rest[0] <= part:
            index = rest.pop(0)
            cells.append(_folded(code[index], solution=index in solutions))
    cells += [_folded(code[index]) for index in rest]
    cells[1:1] = _install_cells(source.chapter)
    metadata = {**source.notebook.metadata, STAMP: _stamp(source)}
    return render(
        nbformat.from_dict({**source.notebook, "metadata": metadata, "cells": cells})
    )


def _solutions(source: Source) -> set[int]:
    """Return the positions of the code cells of solutions."""
    inside, solutions = False, set()
    for index, cell in enumerate(source.notebook.cells):
        if cell.cell_type == "code" and inside:
            solutions.add(index)
        for mark in re.findall(r"\{solution-(start|end)\}", cell.source):
            inside = mark == "start"
    return solutions


def _folded(cell: NotebookNode, *, solution: bool = False) -> NotebookNode:
    """A code cell; JupyterLab folds what the page folds or leaves out.

    What only the site reads, such as a caption, is text here.
    """
    metadata = {key: value for key, value in cell.metadata.items() if key != "mystnb"}
    if {"remove-cell", FOLDED} & set(cell_tags(cell)):
        metadata["jupyter"] = {"source_hidden": True}
    if solution:
        metadata["jupyter"] = {"source_hidden": True, "outputs_hidden": True}
    return nbformat.from_dict({**cell, "metadata": metadata})


def _install_cells(chapter: Chapter) -> list[NotebookNode]:
    """Return cells that install the package, if ``_config.yml`` has its address."""
    path = chapter.root / "_config.yml"
    config: dict[str, Any] = {}
    if path.is_file():
        config = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    repository = config.get("repository", {})
    if "url" not in repository:
        return []
    base = config.get("html", {}).get("baseurl", "").rstrip("/")
    name = revision(repository.get("branch", "main"))
    archive = f"{repository['url'].rstrip('/')}/archive/{name}.tar.gz"
    version = package_version()
    page = f"{base}/{chapter.show(chapter.published.with_suffix('.html'))}"
    modules = ", ".join(f'"{module}"' for module in MODULES)
    note = new_markdown_cell(NOTE.format(version=version, page=page))
    install = new_code_cell(
        INSTALL.format(version=version, modules=modules, archive=archive)
    )
    for part, cell in (("note", note), ("install", install)):
        cell.id = f"{chapter.name}-{part}"
        cell.metadata["tags"] = ["remove-cell", part]
    return [note, _folded(install)]


def pair_faults(source: Source) -> Iterator[str]:
    """Yield what is wrong with a chapter's notebook, if anything."""
    pair = source.chapter.pair
    if not pair.is_file():
        yield "missing"
        return
    notebook = nbformat.read(pair, as_version=4)
    if notebook.metadata.get(STAMP) != _stamp(source):
        yield "made from another text"
    elif _code(notebook) != _code(source.notebook):
        yield "its code is not that of its text"


def _stamp(source: Source) -> dict[str, str]:
    content = source.chapter.source.read_bytes()
    return {"source_sha256": hashlib.sha256(content).hexdigest()}


def _code(notebook: NotebookNode) -> list[tuple[str, str]]:
    return [
        (cell.id, cell.source)
        for cell in notebook.cells
        if cell.cell_type == "code" and "install" not in cell_tags(cell)
    ]


def as_page(source: Source, executed: NotebookNode) -> NotebookNode:
    """Return an executed chapter with the text of its notebook, if that is in step."""
    if any(pair_faults(source)):
        return executed
    return with_outputs(nbformat.read(source.chapter.pair, as_version=4), executed)


def with_outputs(page: NotebookNode, executed: NotebookNode) -> NotebookNode:
    """Return a chapter's notebook with what its cells said in an execution."""
    ran = {cell.id: cell for cell in executed.cells if cell.cell_type == "code"}
    for cell in page.cells:
        if cell.id in ran:
            cell.update({**ran[cell.id], "metadata": cell.metadata})
    return page


def sync(root: Path) -> list[Path]:
    """Take the notebooks from the site; return those that changed.

    One that the site made from another text is left where it is.
    """
    html = root / "_build" / "html" / DOWNLOADS
    written = []
    for chapter in list_chapters(root):
        made = html / chapter.show(chapter.pair)
        if not made.is_file():
            continue
        text = made.read_text(encoding="utf-8")
        stamp = json.loads(text)["metadata"].get(STAMP)
        if stamp == _stamp(read_source(chapter)) and write_whole(chapter.pair, text):
            written.append(chapter.pair)
    return written
