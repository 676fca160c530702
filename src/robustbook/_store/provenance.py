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
from functools import cache, lru_cache
from importlib.util import resolve_name
from pathlib import Path
from typing import Any, Final, NamedTuple

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


@cache
def fingerprint(*modules: str) -> str:
    """Return the sha256 of modules and of all that they import from the package.

    "robustbook.attacks" is a package with all its files, "robustbook.scores" one file;
    an unknown name is a ValueError. The running package is read once, when a sum is
    first asked for.
    """
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
        # Templates and the like count for all modules in their folder.
        self._data: dict[Path, str] = {}
        for path in sorted((Path(source) / "robustbook").rglob("*.*")):
            if path.suffix == ".py":
                parts = path.relative_to(source).with_suffix("").parts
                name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
                self._files[name], self._texts[name] = path, path.read_bytes()
                continue
            # What Python compiles may be gone a moment later.
            if path.parent.name == "__pycache__" or path.suffix == ".typed":
                continue
            if path.is_file():
                digest = hashlib.sha256(path.read_bytes()).hexdigest()
                self._data[path.parent] = self._data.get(path.parent, "") + digest
        self._links_of = cache(self._read_links)
        self._linked_sum = cache(self._sum_with_links)

    def fingerprint(self, *modules: str) -> str:
        """Return the sum of modules and of all that they import."""
        return self._sum_of(self.closure(*modules))

    def fingerprint_of_program(self, text: str) -> str:
        """Return the sum of all that a program imports, without its text."""
        _, imports = _read(text.encode(), "")
        roots = {o for each in imports for o in self._origins(each.base, each.name)}
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
            pending.update(o for origins, _ in self._links_of(module) for o in origins)
        return reached

    def _sum_of(self, modules: Iterable[str]) -> str:
        """Return the sum of the contents of modules, whatever their file names."""
        digests = sorted(self._linked_sum(module) for module in modules)
        return hashlib.sha256("\n".join(digests).encode()).hexdigest()

    def _read_links(self, module: str) -> list[tuple[_Strings, _Import]]:
        """Return the imports, each with the modules that define what it imports."""
        return [
            (self._origins(each.base, each.name), each)
            for each in self._content_of(module)[1]
            if not each.for_checker
        ]

    def _content_of(self, module: str) -> tuple[str, tuple[_Import, ...]]:
        """Return the sum of the syntax tree of a module, and its imports."""
        is_package = self._files[module].stem == "__init__"
        package = module if is_package else module.rpartition(".")[0]
        return _read(self._texts[module], package)

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
        for each in self._content_of(base)[1]:
            if each.bound == name and each.base.partition(".")[0] == "robustbook":
                return self._origins(each.base, each.name)  # a re-export
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
        content, _ = self._content_of(module)
        data = self._data.get(self._files[module].parent)
        return (
            hashlib.sha256((content + data).encode()).hexdigest() if data else content
        )

    def _sum_with_links(self, module: str) -> str:
        """Return the sum of a module and of the files that define its imports."""
        links = sorted(
            f"{each.bound} {each.name} {' '.join(sorted(map(self._file_sum, origins)))}"
            for origins, each in self._links_of(module)
            if origins and not all(o.startswith(PLUMBING) for o in origins)
        )
        content = "\n".join([self._file_sum(module), *links])
        return hashlib.sha256(content.encode()).hexdigest()


class _Import(NamedTuple):
    """A name that is imported from a module, and the name that it is bound to."""

    base: str
    name: str | None
    bound: str
    for_checker: bool


@lru_cache(maxsize=1024)
def _read(content: bytes, package: str) -> tuple[str, tuple[_Import, ...]]:
    """Return the sum of the syntax tree of a file in a package, and its imports."""
    tree = ast.parse(content)
    content = "\0".join(_canonical(tree)).encode("utf-8", "surrogatepass")
    return hashlib.sha256(content).hexdigest(), tuple(_imports(tree, package))


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
            if _counts(item):
                yield from _canonical(item)
        yield "]"
    else:
        yield repr(node)


def _counts(node: Any) -> bool:
    """Return whether a part counts: no docstring, and no import from the package.

    The links count these imports.
    """
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return not isinstance(node.value.value, str)
    if isinstance(node, ast.ImportFrom):
        ours = (node.module or "").partition(".")[0] == "robustbook"
        return not (ours or node.level)
    if isinstance(node, ast.Import):
        return any(a.name.partition(".")[0] != "robustbook" for a in node.names)
    return True


def _imports(tree: ast.Module, package: str) -> Iterator[_Import]:
    """Yield the imports at any depth of the code."""
    pending: list[tuple[ast.AST, bool]] = [(tree, False)]
    while pending:
        node, checker = pending.pop()
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield _Import(alias.name, None, alias.asname or alias.name, checker)
        elif isinstance(node, ast.ImportFrom):
            base = resolve_name("." * node.level + (node.module or ""), package)
            for alias in node.names:
                name = None if alias.name == "*" else alias.name
                yield _Import(base, name, alias.asname or alias.name, checker)
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            # For the type checker, or for a name that is imported lazily.
            pending.extend((child, True) for child in node.body)
            pending.extend((child, checker) for child in node.orelse)
        else:
            pending.extend((child, checker) for child in ast.iter_child_nodes(node))
