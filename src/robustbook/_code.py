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
    f"robustbook.{name}" for name in ("chapters", "cli", "figures", "results")
)


def _module_files(module: str, source: Path) -> list[Path]:
    """The files of a module, all of them if it is a package."""
    base = source.joinpath(*module.split("."))
    if base.with_suffix(".py").is_file():
        return [base.with_suffix(".py")]
    if (base / "__init__.py").is_file():
        return sorted(base.rglob("*.py"))
    return []


def _imports(path: Path, module: str) -> set[str]:
    """Modules of robustbook that a file imports, at any depth of its code."""
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_bytes(), filename=str(path))):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = package.split(".")
                parents = parts[: len(parts) - node.level + 1]
                base = ".".join([*parents, base] if base else parents)
            found.add(base)
            found.update(f"{base}.{alias.name}" for alias in node.names)
    return {name for name in found if name.startswith("robustbook.")}


def _top(module: str) -> str:
    """Modules are counted whole: robustbook.agreement._search is agreement."""
    return ".".join(module.split(".")[:2])


def imported_modules(modules: Sequence[str], *, source: Path) -> list[str]:
    """Return modules of robustbook with all that they import, presentation aside.

    Parameters
    ----------
    modules : sequence of str
        Where to begin: full names, "robustbook.agreement".
    source : Path
        The folder that holds the package ``robustbook``.

    Returns
    -------
    list of str
        Full names, sorted. A package is counted whole.

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
    pending = {_top(module) for module in modules}
    closed: set[str] = set()
    while pending:
        module = pending.pop()
        closed.add(module)
        for path in _module_files(module, source):
            relative = path.relative_to(source).with_suffix("")
            parts = relative.parts[:-1] if path.stem == "__init__" else relative.parts
            for name in _imports(path, ".".join(parts)):
                top = _top(name)
                if (
                    top not in closed
                    and top not in _PRESENTATION
                    and _module_files(top, source)
                ):
                    pending.add(top)
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
        Full names of modules, "robustbook.agreement".
    source : Path or str, optional
        The folder that holds the package ``robustbook``; that of the running
        package by default.
    follow_imports : bool, default True
        Count what the modules import, too.

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
    >>> from robustbook.results import code_sha256
    >>> len(code_sha256(["robustbook.scores"]))
    64
    """
    source = package_source() if source is None else Path(source)
    digest = hashlib.sha256()
    counted = imported_modules(modules, source=source) if follow_imports else modules
    for module in counted:
        for path in _module_files(module, source):
            content = path.read_bytes().replace(b"\r\n", b"\n")
            name = path.relative_to(source).as_posix()
            digest.update(f"{name}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()


def package_source() -> Path:
    """Return the folder that holds the running package."""
    return Path(__file__).resolve().parents[1]
