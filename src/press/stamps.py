"""Stamps: what an executed chapter was made from, and whether that still holds.

A stamp holds hashes of all that an execution reads, so that the same inputs give
the same bytes. When and how long a chapter ran is not in it: see
:mod:`press.status`.
"""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from .layout import Chapter

__all__ = [
    "data_sha256",
    "input_hashes",
    "package_versions",
    "read_stamp",
    "staleness",
]

# The key of the stamp in a notebook's metadata.
STAMP = "robustbook"

_REASONS = {
    "source_sha256": "its text changed",
    "package_sha256": "the package changed",
    "data_sha256": "a file in data/ changed",
}

_PACKAGES = (
    "matplotlib",
    "numpy",
    "scikit-learn",
    "scipy",
    "torch",
    "torchmetrics",
)


def _hash_files(root: Path, paths: Iterable[Path]) -> str:
    """Hash names and contents; a renamed file is a change."""
    total = hashlib.sha256()
    for path in sorted(paths):
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        total.update(f"{path.relative_to(root).as_posix()} {content}\n".encode())
    return total.hexdigest()


def _package_files(root: Path) -> Iterable[Path]:
    """All of the package but the runner: no chapter's numbers depend on that."""
    package = root / "src" / "robustbook"
    runner = package / "chapters"
    return (path for path in package.rglob("*.py") if runner not in path.parents)


def _data_files(root: Path) -> Iterable[Path]:
    """The committed data that chapters load: any of it, by any chapter."""
    return (
        path
        for folder in ("checkpoints", "reported", "results")
        for path in (root / "data" / folder).rglob("*")
        if path.is_file() and not path.name.startswith(".")
    )


def data_sha256(root: Path) -> str:
    """Return the hash of the committed data, all files and their names."""
    return _hash_files(root, _data_files(root))


def input_hashes(chapter: Chapter) -> dict[str, str]:
    """Return the hashes of what an execution of the chapter reads."""
    root = chapter.root
    return {
        "source_sha256": hashlib.sha256(chapter.source.read_bytes()).hexdigest(),
        "package_sha256": _hash_files(root, _package_files(root)),
        "data_sha256": data_sha256(root),
    }


def package_versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that numbers come from."""
    versions = {"python": platform.python_version()}
    for name in _PACKAGES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    return versions


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
    return [reason for key, reason in _REASONS.items() if stamp.get(key) != now[key]]
