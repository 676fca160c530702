"""The sha256 of code: of modules with all that they import from robustbook."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Final

__all__ = ["code_sha256", "imported_modules", "package_source"]

#: Modules that only present results: a change to them makes nothing stale.
_PRESENTATION: Final = frozenset(
    f"robustbook.{name}" for name in ("cli", "studies.results", "style")
)


def _module_files(module: str, source: Path) -> list[Path]:
    """The files of a module, all of them if it is a package."""
    base = source.joinpath(*module.split("."))
    if base.with_suffix(".py").is_file():
        return [base.with_suffix(".py")]
    if (base / "__init__.py").is_file():
        return sorted(base.rglob("*.py"))
    return []


def _imports(path: Path, module: str, source: Path) -> set[str]:
    """Modules of robustbook that a file imports, at any depth of its code."""
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_bytes(), filename=str(path))):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = _absolute(node, package)
            for alias in node.names:
                found.add(_origin(base, alias.name, source))
    return {name for name in found if name.startswith("robustbook.")}


def _absolute(node: ast.ImportFrom, package: str) -> str:
    """The module that names are imported from, without leading dots."""
    base = node.module or ""
    if node.level:
        parts = package.split(".")
        parents = parts[: len(parts) - node.level + 1]
        base = ".".join([*parents, base] if base else parents)
    return base


def _origin(base: str, name: str, source: Path) -> str:
    """The module that a name comes from, if a package only passes it on.

    So that whoever imports one attack from ``robustbook.attacks`` does not depend on
    all others.
    """
    if _module_files(f"{base}.{name}", source):
        return f"{base}.{name}"
    gate = source.joinpath(*base.split("."), "__init__.py")
    if base.startswith("robustbook.") and gate.is_file():
        for node in ast.parse(gate.read_bytes(), filename=str(gate)).body:
            if isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    if (alias.asname or alias.name) == name:
                        return _origin(_absolute(node, base), alias.name, source)
    return base


def _top(module: str) -> str:
    """The public module that another belongs to."""
    return ".".join(module.split(".")[:2])


def imported_modules(modules: Sequence[str], *, source: Path) -> list[str]:
    """Return modules of robustbook with all that they import, presentation aside.

    Parameters
    ----------
    modules : sequence of str
        Where to begin: full names, "robustbook.agreement" for a package and all of
        it, "robustbook.attacks._pgd" for one file.
    source : Path
        The folder that holds the package ``robustbook``.

    Returns
    -------
    list of str
        Full names, sorted. Of a package from which names are imported, only the
        files count that hold them; else all of it.

    Raises
    ------
    ValueError
        If one of `modules` does not exist.
    """
    for module in modules:
        if not module.startswith("robustbook.") or not _module_files(module, source):
            raise ValueError(
                "modules: expected modules of robustbook, such as "
                f"'robustbook.agreement'; got {module!r}"
            )
    pending = set(modules)
    closed: set[str] = set()
    while pending:
        module = pending.pop()
        closed.add(module)
        for path in _module_files(module, source):
            relative = path.relative_to(source).with_suffix("")
            parts = relative.parts[:-1] if path.stem == "__init__" else relative.parts
            for name in _imports(path, ".".join(parts), source):
                if (
                    name not in closed
                    and _top(name) not in _PRESENTATION
                    and _module_files(name, source)
                ):
                    pending.add(name)
    return sorted(closed)


def code_sha256(
    modules: Sequence[str],
    *,
    source: Path | str | None = None,
    follow_imports: bool = True,
) -> str:
    """Return the sha256 of modules and of all that they import from robustbook.

    Parameters
    ----------
    modules : sequence of str
        Full names of modules: "robustbook.agreement" for a package and all of it,
        "robustbook.attacks._pgd" for one file.
    source : Path or str, optional
        The folder that holds the package ``robustbook``; that of the running
        package by default.
    follow_imports : bool, default True
        Count what the modules import, too: of a package from which names are
        imported, the files that hold them.

    Returns
    -------
    str
        64 hexadecimal digits. Line endings do not matter; modules that only
        present results (figures, chapters, cli, results) do not count.

    Raises
    ------
    ValueError
        If one of `modules` does not exist.

    Examples
    --------
    >>> from robustbook.studies.results import code_sha256
    >>> len(code_sha256(["robustbook.scores"]))
    64
    """
    source = package_source() if source is None else Path(source)
    digest = hashlib.sha256()
    counted = imported_modules(modules, source=source) if follow_imports else modules
    paths = [path for module in counted for path in _module_files(module, source)]
    for path in dict.fromkeys(paths):  # a file and its package may both be named
        content = path.read_bytes().replace(b"\r\n", b"\n")
        name = path.relative_to(source).as_posix()
        digest.update(f"{name}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()


def package_source() -> Path:
    """Return the folder that holds the running package."""
    return Path(__file__).resolve().parents[2]
