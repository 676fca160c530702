"""What a number depends on: the sum of code, through all that it imports.

A sum covers modules and the closure of what they import from the package. It reads
code as Python does: comments, docstrings and line breaks count for nothing, nor does
the place of a file, so that only what can change a number changes the sum.

Run as a program, this file reads a JSON object of programs from standard input and
writes their sums: so the press asks, which does not import the package.
"""

from __future__ import annotations

import ast
import hashlib
import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Final

#: Modules that carry numbers and compute none: no stored number depends on them.
PLUMBING: Final = (
    "robustbook._docs",
    "robustbook._engine",
    "robustbook._store",
    "robustbook.studies._study",
    "robustbook.studies.results",
)

_Strings = tuple[str, ...]


def package_source() -> Path:
    """Return the folder that holds the running package."""
    return Path(__file__).resolve().parents[2]


def fingerprint(*modules: str, source: Path | None = None) -> str:
    """Return the sha256 of modules and of all that they import from the package.

    "robustbook.attacks" is all of a package, "robustbook.scores" one file; what does
    not exist is a ValueError. `source` holds the package: by default the running one,
    whose sums are taken once.
    """
    if source is not None:
        return Code(source).fingerprint(*modules)
    return _running(modules)


@lru_cache
def _running(modules: _Strings) -> str:
    return running_code().fingerprint(*modules)


@cache
def running_code() -> Code:
    """Return the package's code as it is when it is first asked for."""
    return Code(package_source())


class Code:
    """The package below a folder `source`, as its files are now."""

    def __init__(self, source: Path) -> None:
        # Read at once: an edit during a long run is not the code that runs.
        self._files: dict[str, Path] = {}
        self._texts: dict[str, bytes] = {}
        for path in (Path(source) / "robustbook").rglob("*.py"):
            parts = path.relative_to(source).with_suffix("").parts
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            self._files[name], self._texts[name] = path, path.read_bytes()
        # Templates and the like: whatever is in their folder may read them.
        self._data: dict[Path, str] = {}
        for path in sorted((Path(source) / "robustbook").rglob("*.*")):
            kind = path.suffix
            if path.is_file() and kind not in ("", ".py", ".pyc", ".typed"):
                own = hashlib.sha256(path.read_bytes()).hexdigest()
                self._data[path.parent] = self._data.get(path.parent, "") + own
        self._own: dict[str, str] = {}
        self._linked: dict[str, str] = {}
        self._edges: dict[str, list[tuple[_Strings, str | None, str]]] = {}

    def fingerprint(self, *modules: str) -> str:
        """Return the sum of modules and of all that they import."""
        return self._sum_of(self.closure(*modules))

    def fingerprint_of_program(self, text: str) -> str:
        """Return the sum of all that a program imports; its text is not part of it."""
        _, imports = _read(text.encode())
        roots = {
            o for taken in imports for o in self._origins(taken.module, taken.name)
        }
        # A page depends on what carries its numbers, too.
        return self._sum_of(self._reached(roots, plumbing=True))

    def closure(self, *modules: str) -> set[str]:
        """Return modules, and all that they import.

        Of a package from which names are imported, only the files count that define
        them.
        """
        roots: set[str] = set()
        for module in modules:
            if module not in self._files or not module.startswith("robustbook."):
                raise ValueError(
                    "modules: expected modules of robustbook, such as "
                    f"'robustbook.agreement', got {module!r}"
                )
            roots.update(self._whole(module))
        return self._reached(roots)

    def _reached(self, roots: Iterable[str], *, plumbing: bool = False) -> set[str]:
        pending, reached = set(roots), set()
        while pending:
            module = pending.pop()
            if module in reached or (not plumbing and module.startswith(PLUMBING)):
                continue
            reached.add(module)
            pending.update(o for origins, _, _ in self._taken(module) for o in origins)
        return reached

    def _sum_of(self, modules: Iterable[str]) -> str:
        """The sum of what is written in modules, wherever their files are."""
        digests = sorted(self._linked_sum(module) for module in modules)
        return hashlib.sha256("\n".join(digests).encode()).hexdigest()

    def _taken(self, module: str) -> list[tuple[_Strings, str | None, str]]:
        """What a module imports: defining modules, the name there, the name here."""
        if module not in self._edges:
            self._edges[module] = [
                (self._origins(base, taken.name), taken.name, taken.bound)
                for base, taken in self._imports(module)
                if not taken.for_checker
            ]
        return self._edges[module]

    def _imports(self, module: str) -> Iterator[tuple[str, _Import]]:
        path = self._files[module]
        package = module if path.stem == "__init__" else module.rpartition(".")[0]
        for taken in _read(self._texts[module])[1]:
            yield taken.base(package), taken

    def _origins(self, base: str, name: str | None) -> _Strings:
        """The modules of the package that define a name, or are what it names."""
        if base.partition(".")[0] != "robustbook":
            return ()
        if name is None:
            return self._whole(base)
        if f"{base}.{name}" in self._files:
            return self._whole(f"{base}.{name}")
        if base not in self._files or base == "robustbook":
            return ()
        for origin, taken in self._imports(base):
            if taken.bound == name and origin.partition(".")[0] == "robustbook":
                return self._origins(origin, taken.name)  # it only passes it on
        return (base,)

    def _whole(self, module: str) -> _Strings:
        """A module; of a package, all of it."""
        if module not in self._files or module == "robustbook":
            return ()
        if self._files[module].stem != "__init__":
            return (module,)
        inside = (name for name in self._files if name.startswith(f"{module}."))
        return (module, *inside)

    def _own_sum(self, module: str) -> str:
        if module not in self._own:
            data = self._data.get(self._files[module].parent, "")
            words = _read(self._texts[module])[0] + data
            self._own[module] = (
                hashlib.sha256(words.encode()).hexdigest() if data else words
            )
        return self._own[module]

    def _linked_sum(self, module: str) -> str:
        """What a module holds, and to what its imported names are bound."""
        if module in self._linked:
            return self._linked[module]
        links = sorted(
            f"{bound} {name} {' '.join(sorted(self._own_sum(o) for o in origins))}"
            for origins, name, bound in self._taken(module)
            if origins and not all(o.startswith(PLUMBING) for o in origins)
        )
        words = "\n".join([self._own_sum(module), *links])
        self._linked[module] = hashlib.sha256(words.encode()).hexdigest()
        return self._linked[module]


@dataclass(frozen=True)
class _Import:
    level: int
    module: str
    name: str | None
    bound: str
    for_checker: bool

    def base(self, package: str) -> str:
        """The module it is taken from, without leading dots."""
        if not self.level:
            return self.module
        parts = package.split(".")
        parents = parts[: len(parts) - self.level + 1]
        return ".".join([*parents, self.module] if self.module else parents)


@lru_cache(maxsize=1024)
def _read(content: bytes) -> tuple[str, tuple[_Import, ...]]:
    """The sum of what a file says, and what it imports."""
    tree = ast.parse(content)
    words = "\0".join(_canonical(tree)).encode("utf-8", "surrogatepass")
    return hashlib.sha256(words).hexdigest(), tuple(_imports(tree))


def _canonical(node: Any) -> Iterator[str]:
    """A tree as Python runs it, in the same words under every version of Python."""
    if isinstance(node, ast.AST):
        yield type(node).__name__
        for field, value in ast.iter_fields(node):
            if isinstance(node, ast.JoinedStr):
                # Python 3.12 puts empty pieces into nested formats.
                value = [v for v in value if getattr(v, "value", None) != ""]
            if value is None or value == [] or field in ("kind", "type_comment"):
                continue
            yield field
            yield from _canonical(value)
    elif isinstance(node, list):
        for item in node:
            if not _is_text(item) and not _is_own_import(item):
                yield from _canonical(item)
        yield "]"
    else:
        yield repr(node)


def _is_text(node: Any) -> bool:
    """Whether a statement is nothing but text: a docstring, or like one."""
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def _is_own_import(node: Any) -> bool:
    """Whether a statement imports from the package: counted by what it binds."""
    if isinstance(node, ast.ImportFrom):
        return node.level > 0 or (node.module or "").partition(".")[0] == "robustbook"
    return isinstance(node, ast.Import) and all(
        alias.name.partition(".")[0] == "robustbook" for alias in node.names
    )


def _imports(tree: ast.Module) -> Iterator[_Import]:
    """What is imported at any depth of the code."""
    pending: list[tuple[ast.AST, bool]] = [(tree, False)]
    while pending:
        node, checker = pending.pop()
        if isinstance(node, ast.Import):
            for alias in node.names:
                bound = alias.asname or alias.name
                yield _Import(0, alias.name, None, bound, checker)
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                name = None if alias.name == "*" else alias.name
                bound = alias.asname or alias.name
                yield _Import(node.level, node.module or "", name, bound, checker)
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            # For the type checker alone, or for a name that is imported when asked for.
            pending.extend((child, True) for child in node.body)
            pending.extend((child, checker) for child in node.orelse)
        else:
            pending.extend((child, checker) for child in ast.iter_child_nodes(node))


if __name__ == "__main__":
    code = Code(package_source())
    texts = json.load(sys.stdin)
    sums = {name: code.fingerprint_of_program(text) for name, text in texts.items()}
    json.dump(sums, sys.stdout)
