"""Stamps: what an executed chapter was made from, and whether that still holds.

That is its code, which the executed chapter shows, the code that this imports, in turn,
and the files of ``data`` that it opened. Its text is no part of it: new words get the
outputs that are there. When and how long it ran is in :mod:`press.status`.
"""

from __future__ import annotations

import ast
import hashlib
import json
import platform
import re
import sys
from collections.abc import Iterable
from functools import lru_cache
from importlib.metadata import version
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any, Final

import nbformat
from IPython.core.inputtransformer2 import TransformerManager
from nbformat import NotebookNode

from press.layout import BookError, Chapter
from press.source import code_cells, code_of, read_source, render, weave, write_whole

# The key of the stamp in a notebook's metadata.
STAMP = "robustbook"

_PACKAGES = ("matplotlib", "numpy", "scikit-learn", "scipy", "torch", "torchmetrics")

#: In place of the sum of a file that does not exist.
_ABSENT: Final = "absent"
#: The package, or a module of it, named in a string.
_MODULE: Final = re.compile(r"\brobustbook(?:\.\w+)*\b")


def data_sums(root: Path, reads: Iterable[Iterable[str]]) -> dict[str, str]:
    """Return the sums of the files of ``data`` among those that a chapter read.

    Each of these is a path and the place in the file, as the package notes them. The
    names of the sums are paths from ``root``, with that place after ``#/``.
    """
    sums = {}
    for path, *keys in reads:
        if Path(path).is_relative_to(root / "data"):
            name = Path(path).relative_to(root).as_posix()
            name += "#/" * bool(keys) + "/".join(keys)
            sums[name] = _data_sum(root, name)
            if not sums[name]:
                raise BookError(
                    f"{name}: the chapter read it, and it cannot be found again, so a "
                    "change would go unnoticed; expected keys without / into objects "
                    "of a JSON file"
                )
    return dict(sorted(sums.items()))


def _data_sum(root: Path, name: str) -> str:
    """The sum of a file, or of a part of it; "" if there is no such part.

    A chapter may look for a file that is not there: it depends on its absence.
    """
    file, _, place = name.partition("#/")
    if not (root / file).exists():
        return _ABSENT
    try:
        content = (root / file).read_bytes()
        if place:
            part = _decoded(content)
            for key in place.split("/"):
                part = part[key]
            content = json.dumps(part, sort_keys=True).encode()
    except (OSError, ValueError, LookupError, TypeError):
        return ""
    return hashlib.sha256(content.replace(b"\r\n", b"\n")).hexdigest()


@lru_cache(maxsize=4)
def _decoded(content: bytes) -> Any:
    return json.loads(content)


def package_imports(notebook: NotebookNode) -> str:
    """Return a chapter's code as a program that imports whatever it names.

    A module that is named in a string is one, since importlib may be given it; and so
    is the package in a command of the shell or of IPython.
    """
    lines: list[str] = []
    for cell in code_cells(notebook):
        code = TransformerManager().transform_cell(cell.source)
        try:
            named = sorted(_named_modules(ast.parse(code)))
        except SyntaxError:
            continue  # as its execution will say
        lines += [code, *(f"import {name}" for name in named)]
    return "\n".join(lines)


def _named_modules(tree: ast.AST) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=str(text)) if _MODULE.fullmatch(text):
                names.add(text)
            case ast.Call() if ast.unparse(node.func).startswith("get_ipython()."):
                names.update(_MODULE.findall(ast.unparse(node)))
    return {"robustbook.cli" if name == "robustbook" else name for name in names}


def code_sum(chapter: Chapter) -> str:
    """Return the sum of what a chapter imports from the package; "" without one."""
    source = chapter.root / "src"
    files = sorted((source / "robustbook").rglob("*.py"))
    state = tuple((str(f), s.st_mtime_ns, s.st_size) for f in files for s in [f.stat()])
    if (package := _package(source, state)) is None:
        return ""
    program = package_imports(read_source(chapter).notebook)
    try:
        return str(package.fingerprint_of_program(program))
    except SyntaxError as error:
        fault = "the code of the package cannot be read"
        raise BookError(f"{fault}: {error}; `make lint` names the file") from error


@lru_cache(maxsize=4)
def _package(source: Path, state: tuple[Any, ...]) -> Any:
    """Load the reader of the package's code, a file that imports nothing of it."""
    reader = source / "robustbook" / "_store" / "provenance.py"
    spec = spec_from_file_location("provenance_of_package", reader)
    if not reader.is_file() or spec is None or spec.loader is None:
        return None
    module = sys.modules[spec.name] = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.Code(source)


def package_versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that numbers come from."""
    versions = {name: version(name) for name in _PACKAGES}
    return {"python": platform.python_version(), **versions}


def read_published(chapter: Chapter) -> NotebookNode | None:
    """Return the published chapter, None if there is none with a stamp."""
    try:
        notebook = nbformat.v4.reads(chapter.published.read_text(encoding="utf-8"))
        stamped = isinstance(notebook.metadata[STAMP], dict)
    except (FileNotFoundError, ValueError, LookupError, AttributeError):
        return None
    return notebook if stamped else None


def read_stamp(chapter: Chapter) -> dict[str, Any] | None:
    """Return the stamp of the published chapter, None if there is none."""
    published = read_published(chapter)
    return None if published is None else dict(published.metadata[STAMP])


def staleness(chapter: Chapter) -> list[str]:
    """Return why a chapter has to be executed; an empty list if its outputs hold."""
    published = read_published(chapter)
    if published is None:
        return ["it was never executed"]
    stamp, reasons = published.metadata[STAMP], []
    if code_of(published) != code_of(read_source(chapter).notebook):
        reasons.append("its code changed")
    if stamp.get("code_sha256") != code_sum(chapter):
        reasons.append("code that it imports changed")
    data: dict[str, str] = stamp.get("data", {})
    reasons += [
        f"{name} changed"
        for name, known in data.items()
        if _data_sum(chapter.root, name) != known
    ]
    return reasons


def _with_new_words(chapter: Chapter) -> NotebookNode | None:
    """Return the published chapter with its text as it is now; None if code differs."""
    published, source = read_published(chapter), read_source(chapter)
    if published is None or code_of(published) != code_of(source.notebook):
        return None
    return weave(source, code_cells(published), published.metadata)


def in_step(chapter: Chapter) -> bool:
    """Whether the published chapter has the text and the code of its source."""
    woven = _with_new_words(chapter)
    return woven is not None and woven == read_published(chapter)


def publish_new_words(chapter: Chapter) -> bool:
    """Give a published chapter its present text, if its outputs hold and it changed."""
    woven = _with_new_words(chapter)
    if woven is None or woven == read_published(chapter) or staleness(chapter):
        return False
    return write_whole(chapter.published, render(woven))
