"""Chapters as notebooks: read from MyST text, written with stable bytes."""

from __future__ import annotations

import ast
import os
import tempfile
from collections.abc import Iterable
from copy import deepcopy
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import jupytext.myst
import nbformat
from nbformat import NotebookNode

from press.layout import BookError, Chapter

# Jupyter, Colab and the site's highlighter need this, and no version.
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python", "pygments_lexer": "ipython3"},
}
# In an executed chapter, what it was executed with stands behind its parameters.
EXECUTED_WITH = "\n\n# Executed with:\n"
#: The tag of a cell whose output a page shows, and its code at a click.
FOLDED = "hide-input"
# The tags that change what runs; the others say how a page shows it.
_TAGS_OF_RUNS = {"parameters", "raises-exception", "skip-execution"}


@dataclass(frozen=True)
class Source:
    """A chapter as it was written."""

    chapter: Chapter
    #: Its cells, without outputs, with stable ids.
    notebook: NotebookNode
    #: For each cell, the line of the text where it starts, from 1.
    lines: tuple[int, ...]

    def place(self, index: int) -> str:
        """Return where a cell is, such as ``notebooks/08_first.md:57``."""
        return f"{self.chapter.show(self.chapter.source)}:{self.lines[index]}"


def read_source(chapter: Chapter) -> Source:
    """Read a chapter's MyST text; cell ids are ``<chapter>-<index>``."""
    return deepcopy(_parsed(chapter, chapter.source.read_text(encoding="utf-8")))


@lru_cache(maxsize=128)
def _parsed(chapter: Chapter, text: str) -> Source:
    try:
        notebook = jupytext.myst.myst_to_notebook(text, add_source_map=True)
    except Exception as error:  # jupytext and YAML raise many kinds
        raise BookError(f"{chapter.show(chapter.source)}: {error}") from error
    lines = tuple(line + 1 for line in notebook.metadata.pop("source_map"))
    notebook.metadata = nbformat.from_dict(METADATA)
    for index, cell in enumerate(notebook.cells):
        cell.id = f"{chapter.name}-{index:03d}"
    for cell in _folded(notebook, all_of_it=chapter.is_audit):
        cell.metadata["tags"] = [*cell_tags(cell), FOLDED]
    return Source(chapter, notebook, lines)


def _folded(notebook: NotebookNode, *, all_of_it: bool) -> list[NotebookNode]:
    """Return the cells whose code a click opens: what draws figures, and imports.

    In an audit, which is looked up and not read for its code, it is every cell.
    """
    code = [c for c in code_cells(notebook) if "parameters" not in cell_tags(c)]
    if all_of_it:
        return [c for c in code if "remove-cell" not in cell_tags(c)]
    imports = [c for c in code[:1] if c.source.startswith(("import ", "from "))]
    return [*imports, *(c for c in code if draws_figure(c) and c not in imports)]


def draws_figure(cell: NotebookNode) -> bool:
    """Whether a code cell has a figure with a caption."""
    return "figure" in cell.metadata.get("mystnb", {})


def cell_tags(cell: NotebookNode) -> list[str]:
    """Return the tags of a cell."""
    return list(cell.metadata.get("tags", []))


def code_cells(notebook: NotebookNode) -> list[NotebookNode]:
    """Return the cells of a notebook that are code."""
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def code_of(notebook: NotebookNode) -> list[tuple[str, set[str]]]:
    """Return what runs: the code of each cell, and its tags that matter for a run."""
    return [
        (cell.source.partition(EXECUTED_WITH)[0], _TAGS_OF_RUNS & set(cell_tags(cell)))
        for cell in code_cells(notebook)
    ]


def weave(
    source: Source, executed: Iterable[NotebookNode], metadata: Any = METADATA
) -> NotebookNode:
    """Return a chapter as it is written, with the outputs of its executed code."""
    woven = deepcopy(source.notebook)
    for cell, ran in zip(code_cells(woven), executed, strict=True):
        cell.update({**ran, "id": cell.id, "metadata": cell.metadata})
    woven.metadata = nbformat.from_dict(metadata)
    return woven


def parameter_values(notebook: NotebookNode) -> dict[str, Any]:
    """Return what the cell tagged ``parameters`` assigns: literals, or their source."""
    values: dict[str, Any] = {}
    for cell in notebook.cells:
        if "parameters" not in cell_tags(cell):
            continue
        for statement in ast.parse(cell.source).body:
            if isinstance(statement, ast.Assign):
                targets, value = statement.targets, statement.value
            elif isinstance(statement, ast.AnnAssign) and statement.value:
                targets, value = [statement.target], statement.value
            else:
                continue
            for target in targets:
                if isinstance(target, ast.Name):
                    values[target.id] = _literal(value)
    return values


def _literal(node: ast.expr) -> Any:
    try:
        return ast.literal_eval(node)
    except ValueError:
        return ast.unparse(node)


def render(notebook: NotebookNode) -> str:
    """Return a notebook as text: sorted keys, final newline, checked."""
    nbformat.validate(notebook)
    return str(nbformat.writes(notebook)).rstrip("\n") + "\n"


def write_whole(path: Path, text: str | bytes) -> bool:
    """Write all at once or, on an error, not at all; return whether the file changed.

    One that did not keeps its time, so that the site builder does not read it again.
    """
    content = text.encode("utf-8") if isinstance(text, str) else text
    if path.is_file() and path.read_bytes() == content:
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        temporary.chmod(0o644)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return True


def check_writable(path: Path) -> None:
    """Refuse a path that :func:`write_whole` could not write, before work is done."""
    if path.is_dir():
        raise BookError(f"{path}: a folder; name a file, such as {path / 'run.ipynb'}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise BookError(f"{path}: cannot be written: {error.strerror}") from error
