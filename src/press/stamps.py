"""Stamps: what an executed chapter was made from, and whether that still holds.

That is its text, the code that it imports, in turn, and the files of ``data`` that it
opened. When and how long it ran is in :mod:`press.status`.
"""

from __future__ import annotations

import hashlib
import json
import platform
import re
import subprocess
import sys
from collections.abc import Iterable
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from press.layout import BookError, Chapter

# The key of the stamp in a notebook's metadata.
STAMP = "robustbook"

_PACKAGES = ("matplotlib", "numpy", "scikit-learn", "scipy", "torch", "torchmetrics")

#: What a chapter takes from the package, wherever it says so.
_IMPORT: Final = re.compile(
    r"^[ \t]*((?:from robustbook[\w.]* import[ ]+(?:\([^)]*\)|[^\n(]+))"
    r"|(?:import robustbook[^\n]*))",
    re.MULTILINE,
)
#: Where it calls the command line of the package.
_COMMAND: Final = re.compile(r"^!.*\brobustbook\b", re.MULTILINE)


def source_sum(chapter: Chapter) -> str:
    """Return the sum of a chapter's text."""
    return hashlib.sha256(chapter.source.read_bytes()).hexdigest()


def input_hashes(chapter: Chapter) -> dict[str, str]:
    """Return the sums of what is known of a chapter before it runs."""
    return {
        "source_sha256": source_sum(chapter),
        "code_sha256": _code_sums(chapter.root)[chapter.name],
    }


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
    return dict(sorted(sums.items()))


def _data_sum(root: Path, name: str) -> str:
    """The sum of a file, or of a part of it; "" if it is gone."""
    file, _, place = name.partition("#/")
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


def program(text: str) -> str:
    """Return what a chapter imports from the package, as a program."""
    taken = _IMPORT.findall(text)
    if _COMMAND.search(text):
        taken.append("import robustbook.cli")
    return "\n".join(taken)


def _code_sums(root: Path) -> dict[str, str]:
    """By chapter, the sum of what it imports from the package."""
    files = [
        *sorted((root / "src" / "robustbook").rglob("*.py")),
        *sorted((root / "notebooks").glob("*.md")),
    ]
    state = tuple((str(f), s.st_mtime_ns, s.st_size) for f in files for s in [f.stat()])
    return _computed_sums(root, state)


@lru_cache(maxsize=4)
def _computed_sums(root: Path, state: tuple[Any, ...]) -> dict[str, str]:
    """Ask the package, which the press does not import, once for all chapters."""
    programs = {
        path.stem: program(path.read_text(encoding="utf-8"))
        for path in (root / "notebooks").glob("*.md")
    }
    reader = root / "src" / "robustbook" / "_store" / "provenance.py"
    if not reader.is_file():
        return dict.fromkeys(programs, "")
    answer = subprocess.run(
        [sys.executable, "-P", str(reader)],
        input=json.dumps(programs),
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    if answer.returncode:
        raise BookError(f"the code of the package cannot be read:\n{answer.stderr}")
    sums: dict[str, str] = json.loads(answer.stdout)
    return sums


def package_versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that numbers come from."""
    versions = {name: version(name) for name in _PACKAGES}
    return {"python": platform.python_version(), **versions}


def read_stamp(chapter: Chapter) -> dict[str, Any] | None:
    """Return the stamp of the published chapter, None if there is none."""
    try:
        notebook = json.loads(chapter.published.read_text(encoding="utf-8"))
        stamp = notebook["metadata"][STAMP]
    except (FileNotFoundError, json.JSONDecodeError, KeyError, TypeError):
        return None
    return stamp if isinstance(stamp, dict) else None


def staleness(chapter: Chapter) -> list[str]:
    """Return why the published chapter is stale; an empty list if it is fresh."""
    stamp = read_stamp(chapter)
    if stamp is None:
        return ["it was never executed"]
    now = input_hashes(chapter)
    reasons = []
    if stamp.get("source_sha256") != now["source_sha256"]:
        reasons.append("its text changed")
    if stamp.get("code_sha256") != now["code_sha256"]:
        reasons.append("code that it imports changed")
    data: dict[str, str] = stamp.get("data", {})
    reasons += [
        f"{name} changed"
        for name, known in data.items()
        if _data_sum(chapter.root, name) != known
    ]
    return reasons
