"""The code that a number depends on: a sum over modules and all that they import.

A sum covers modules and the closure of their imports from the package. It is taken over
syntax trees, so that comments, docstrings, line breaks and the names of files do not
count, and only a change that can change a number changes the sum.

This file imports nothing of the package, so that the press can load it alone.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Final

#: Modules that store, run or document, but compute nothing: no number depends on them.
PLUMBING: Final = (
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

    "robustbook.attacks" is a package with all its files, "robustbook.scores" one file;
    an unknown name is a ValueError. `source` is the folder with the package, by default
    that of the running one, which is read once, when a sum is first asked for.
    """
    if source is not None:
        return Code(source).fingerprint(*modules)
    return _running(modules)


@lru_cache
def _running(modules: _Strings) -> str:
    return running_code().fingerprint(*modules)


@cache
def running_code() -> Code:
    """Return the code of the running package, read at the first call."""
    return Code(package_source())


class Code:
    """The package below a folder `source`, as its files are now."""

    def __init__(self, source: Path) -> None:
        # All files are read now: an edit during a long run is not the code that runs.
        self._files: dict[str, Path] = {}
        self._texts: dict[str, bytes] = {}
        for path in (Path(source) / "robustbook").rglob("*.py"):
            parts = path.relative_to(source).with_suffix("").parts
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            self._files[name], self._texts[name] = path, path.read_bytes()
        # Templates and the like count for all modules in their folder. What Python
        # compiles may be there under another name, and gone a moment later.
        self._data: dict[Path, str] = {}
        for path in sorted((Path(source) / "robustbook").rglob("*.*")):
            if path.suffix in (".py", ".typed") or path.parent.name == "__pycache__":
                continue
            if path.is_file():
                digest = hashlib.sha256(path.read_bytes()).hexdigest()
                self._data[path.parent] = self._data.get(path.parent, "") + digest
        self._file_sums: dict[str, str] = {}
        self._linked: dict[str, str] = {}
        self._edges: dict[str, list[tuple[_Strings, str | None, str]]] = {}

    def fingerprint(self, *modules: str) -> str:
        """Return the sum of modules and of all that they import."""
        return self._sum_of(self.closure(*modules))

    def fingerprint_of_program(self, text: str) -> str:
        """Return the sum of all that a program imports, without its text."""
        _, imports = _read(text.encode())
        roots = {
            o for taken in imports for o in self._origins(taken.module, taken.name)
        }
        # A page also depends on the modules that read its numbers.
        return self._sum_of(self._reached(roots, plumbing=True))

    def closure(self, *modules: str) -> set[str]:
        """Return modules and all that they import.

        If names are imported from a package, only the files that define them count.
        """
        roots: set[str] = set()
        for module in modules:
            if module not in self._files or not module.startswith("robustbook."):
                raise ValueError(
                    "modules: expected modules of robustbook, such as "
                    f"'robustbook.agreement', got {module!r}"
                )
            roots.update(self._modules_of(module))
        return self._reached(roots)

    def _reached(self, roots: Iterable[str], *, plumbing: bool = False) -> set[str]:
        pending, reached = set(roots), set()
        while pending:
            module = pending.pop()
            if module in reached or (not plumbing and module.startswith(PLUMBING)):
                continue
            reached.add(module)
            pending.update(
                o for origins, _, _ in self._links_of(module) for o in origins
            )
        return reached

    def _sum_of(self, modules: Iterable[str]) -> str:
        """Return the sum of the contents of modules, whatever their file names."""
        digests = sorted(self._linked_sum(module) for module in modules)
        return hashlib.sha256("\n".join(digests).encode()).hexdigest()

    def _links_of(self, module: str) -> list[tuple[_Strings, str | None, str]]:
        """Return the imports: defining modules, the name there, the name here."""
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
        """Return the modules of the package that define a name, or that it names."""
        if base.partition(".")[0] != "robustbook":
            return ()
        if name is None:
            return self._modules_of(base)
        if f"{base}.{name}" in self._files:
            return self._modules_of(f"{base}.{name}")
        if base not in self._files or base == "robustbook":
            return ()
        for origin, taken in self._imports(base):
            if taken.bound == name and origin.partition(".")[0] == "robustbook":
                return self._origins(origin, taken.name)  # a re-export
        return (base,)

    def _modules_of(self, module: str) -> _Strings:
        """Return a module, or all modules of a package."""
        if module not in self._files or module == "robustbook":
            return ()
        if self._files[module].stem != "__init__":
            return (module,)
        inside = (name for name in self._files if name.startswith(f"{module}."))
        return (module, *inside)

    def _file_sum(self, module: str) -> str:
        if module not in self._file_sums:
            data = self._data.get(self._files[module].parent, "")
            content = _read(self._texts[module])[0] + data
            self._file_sums[module] = (
                hashlib.sha256(content.encode()).hexdigest() if data else content
            )
        return self._file_sums[module]

    def _linked_sum(self, module: str) -> str:
        """Return the sum of a module and of the files that define its imports."""
        if module in self._linked:
            return self._linked[module]
        links = sorted(
            f"{bound} {name} {' '.join(sorted(self._file_sum(o) for o in origins))}"
            for origins, name, bound in self._links_of(module)
            if origins and not all(o.startswith(PLUMBING) for o in origins)
        )
        content = "\n".join([self._file_sum(module), *links])
        self._linked[module] = hashlib.sha256(content.encode()).hexdigest()
        return self._linked[module]


@dataclass(frozen=True)
class _Import:
    level: int
    module: str
    name: str | None
    bound: str
    for_checker: bool

    def base(self, package: str) -> str:
        """Return the absolute name of the module that is imported from."""
        if not self.level:
            return self.module
        parts = package.split(".")
        parents = parts[: len(parts) - self.level + 1]
        return ".".join([*parents, self.module] if self.module else parents)


@lru_cache(maxsize=1024)
def _read(content: bytes) -> tuple[str, tuple[_Import, ...]]:
    """Return the sum of a file's syntax tree, and its imports."""
    tree = ast.parse(content)
    content = "\0".join(_canonical(tree)).encode("utf-8", "surrogatepass")
    return hashlib.sha256(content).hexdigest(), tuple(_imports(tree))


def _canonical(node: Any) -> Iterator[str]:
    """Yield the parts of a tree that count, the same under every version of Python."""
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
            if not _is_string(item) and not _is_package_import(item):
                yield from _canonical(item)
        yield "]"
    else:
        yield repr(node)


def _is_string(node: Any) -> bool:
    """Return whether a statement is only a string, such as a docstring."""
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def _is_package_import(node: Any) -> bool:
    """Return whether a statement imports from the package; links count these."""
    if isinstance(node, ast.ImportFrom):
        return node.level > 0 or (node.module or "").partition(".")[0] == "robustbook"
    return isinstance(node, ast.Import) and all(
        alias.name.partition(".")[0] == "robustbook" for alias in node.names
    )


def _imports(tree: ast.Module) -> Iterator[_Import]:
    """Yield the imports at any depth of the code."""
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
            # For the type checker, or for a name that is imported lazily.
            pending.extend((child, True) for child in node.body)
            pending.extend((child, checker) for child in node.orelse)
        else:
            pending.extend((child, checker) for child in ast.iter_child_nodes(node))
