"""Change a line of any module: what can change is stale, and nothing else is.

The table is computed for every module of the package. What *can* change is told by
another witness than the sums: by Python itself, which says where each imported name
was made.
"""

import ast
import importlib
import shutil
import sys
from functools import cache
from pathlib import Path

import pytest

from press.stamps import program
from robustbook._store.provenance import PLUMBING, Code, package_source
from robustbook.studies import STUDIES

ROOT = Path(__file__).resolve().parents[2]
SOURCE = package_source()
MODULES = sorted(
    ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")
    for path in (SOURCE / "robustbook").rglob("*.py")
)
#: What runs as a program, and nothing imports.
IMPORTABLE = [name for name in MODULES if not name.endswith("__main__")]


def file_of(module, source=SOURCE):
    base = source.joinpath(*module.split("."))
    return base / "__init__.py" if base.is_dir() else base.with_suffix(".py")


# ------------------------------------------------------------------ the witness


@cache
def imported(module):
    """The modules of the package whose code a module uses, as Python finds them."""
    living = importlib.import_module(module)
    tree = ast.parse(file_of(module).read_text(encoding="utf-8"))
    return frozenset(
        origin
        for base, name in _statements(tree, living)
        if base.split(".")[0] == "robustbook"
        for origin in _made_in(base, name)
    )


def _statements(tree, living):
    for node in ast.walk(_without_checker(tree)):
        if isinstance(node, ast.Import):
            yield from ((alias.name, None) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = importlib.util.resolve_name(
                "." * node.level + (node.module or ""), living.__package__ or ""
            )
            yield from ((base, alias.name) for alias in node.names)


def _without_checker(tree):
    class Removed(ast.NodeTransformer):
        def visit_If(self, node):
            if "TYPE_CHECKING" in ast.unparse(node.test):
                node.body = [ast.Pass()]
            self.generic_visit(node)
            return node

    return Removed().visit(tree)


def _made_in(base, name):
    """Where a name was made; for a package as a whole, everything in it."""
    if name is None or f"{base}.{name}" in MODULES:
        whole = base if name is None else f"{base}.{name}"
        if whole != "robustbook":
            yield from (m for m in MODULES if m == whole or m.startswith(f"{whole}."))
        return
    if base == "robustbook":
        return
    thing = getattr(importlib.import_module(base), name)
    home = getattr(thing, "__module__", None)
    if isinstance(home, str) and home in MODULES and _holds(home, name):
        yield home
        return
    # A constant does not know where it was made: look who assigns this very one.
    yield from (
        m
        for m in IMPORTABLE
        if _assigns(m, name) and vars(importlib.import_module(m)).get(name) is thing
    )


def _holds(module, name):
    return _assigns(module, name) or name in _names(module)[1]


def _assigns(module, name):
    return name in _names(module)[0]


@cache
def _names(module):
    """What a module assigns, and the functions and classes that it defines."""
    body = ast.parse(file_of(module).read_text(encoding="utf-8")).body
    targets = []
    for node in body:
        if isinstance(node, ast.Assign):
            targets += node.targets
        elif isinstance(node, ast.AnnAssign):
            targets.append(node.target)
    kinds = (ast.FunctionDef, ast.ClassDef)
    return (
        frozenset(target.id for target in targets if isinstance(target, ast.Name)),
        frozenset(node.name for node in body if isinstance(node, kinds)),
    )


def reached(roots, *, plumbing):
    pending, closed = set(roots), set()
    while pending:
        module = pending.pop()
        if module in closed or (not plumbing and module.startswith(PLUMBING)):
            continue
        closed.add(module)
        pending |= imported(module)
    return closed


# -------------------------------------------------------------------- the table


#: Where the code of a cache comes from a caller: who calls.
CALLERS = {
    "robustbook.studies.domains._training": ("_epochs", "_pairs", "_watched"),
    "robustbook.studies.domains.photographs": ("photographs", "photographs_pixels"),
    "robustbook.studies.lenses._models": ("_survival",),
    "robustbook.studies.pairing": ("pairing", "pairing_heads"),
}

#: The calls that keep arrays.
KEEPING = ("cached_arrays", "cached_rows")


@cache
def caches():
    """By call that keeps arrays, the modules whose sum is in its key."""
    kept = {}
    for module in IMPORTABLE:
        # What keeps arrays for others, with their code.
        if module in ("robustbook._store.cache", "robustbook.studies._run"):
            continue
        for node in ast.walk(ast.parse(file_of(module).read_text(encoding="utf-8"))):
            if (
                not isinstance(node, ast.Call)
                or getattr(node.func, "id", "") not in KEEPING
            ):
                continue
            (code,) = (key.value for key in node.keywords if key.arg == "code")
            call = f"{module}:{node.lineno}"
            if module in CALLERS:
                package = module.rpartition(".")[0]
                for caller in CALLERS[module]:
                    kept[f"{call} {caller}"] = (f"{package}.{caller}",)
                continue
            value = eval(
                compile(ast.Expression(code), module, "eval"),
                {**vars(importlib.import_module(module)), "__name__": module},
            )
            kept[call] = (value,) if isinstance(value, str) else tuple(value)
    return kept


@pytest.fixture(scope="module")
def programs():
    return {
        path.stem: program(path.read_text(encoding="utf-8"))
        for path in sorted((ROOT / "notebooks").glob("*.md"))
    }


def table(programs, of_code, of_program):
    """By result, cache and chapter: something of its modules, or of its program."""
    rows = {("result", name): of_code(study.code) for name, study in STUDIES.items()}
    rows |= {("cache", name): of_code(*code) for name, code in caches().items()}
    return rows | {
        ("chapter", name): of_program(text) for name, text in programs.items()
    }


def sums(source, programs):
    code = Code(source)
    return table(programs, code.fingerprint, code.fingerprint_of_program)


def can_change(programs):
    """The modules that the numbers of each can depend on."""

    def of_program(text):
        statements = _statements(ast.parse(text), sys.modules[__name__])
        roots = {
            origin
            for base, alias in statements
            if base.split(".")[0] == "robustbook"
            for origin in _made_in(base, alias)
        }
        return reached(roots, plumbing=True)

    return table(programs, lambda *code: reached(set(code), plumbing=False), of_program)


@pytest.fixture
def house(tmp_path):
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(SOURCE / "robustbook", tmp_path / "robustbook", ignore=ignored)
    return tmp_path


def test_a_changed_line_makes_stale_what_it_can_change_in_every_module(house, programs):
    before, depends = sums(house, programs), can_change(programs)
    assert before.keys() == depends.keys()
    wrong = []
    for module in MODULES:
        path = file_of(module, house)
        text = path.read_bytes()
        path.write_bytes(text + b"\n_CHANGED = 1\n")
        after = sums(house, programs)
        path.write_bytes(text)
        for entry, code in depends.items():
            if (after[entry] != before[entry]) != (module in code):
                wrong.append((module, *entry, "missed" if module in code else "vain"))
    assert wrong == []


def test_a_changed_template_makes_stale_what_imports_its_room(house, programs):
    before, depends = sums(house, programs), can_change(programs)
    files = [*house.rglob("*.jinja"), *house.rglob("*.vega.json")]
    assert len(files) > 2
    for file in files:
        text = file.read_bytes()
        file.write_bytes(text + b"\n")
        after = sums(house, programs)
        file.write_bytes(text)
        beside = {m for m in MODULES if file_of(m, house).parent == file.parent}
        stale = {entry for entry in before if after[entry] != before[entry]}
        assert stale == {entry for entry in before if beside & depends[entry]}
        assert stale


def test_words_about_the_code_and_its_place_make_nothing_stale(house, programs):
    before = sums(house, programs)
    for module in MODULES:
        path = file_of(module, house)
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            body = getattr(node, "body", None)
            kinds = (ast.Module, ast.ClassDef, ast.FunctionDef)
            if isinstance(node, kinds) and isinstance(body, list):
                if ast.get_docstring(node, clean=False) is not None:
                    body.pop(0)
                body.insert(0, ast.Expr(ast.Constant("Other words.")))
        # unparse() also changes every line break, quote and comment. A future import
        # comes behind the words.
        path.write_text("# A comment.\n" + ast.unparse(tree), encoding="utf-8")
    assert sums(house, programs) == before


def test_the_table_has_no_empty_row(programs):
    depends = can_change(programs)
    assert {kind for kind, _ in depends} == {"result", "cache", "chapter"}
    assert all(len(code) > 2 for code in depends.values())
    assert len(MODULES) > 100


@pytest.mark.parametrize("name", ["norm_quantiles", "average_case_speed"])
def test_no_code_runs_in_a_study_that_its_sum_does_not_cover(
    name, tmp_path, monkeypatch
):
    monkeypatch.setenv("ROBUSTBOOK_CACHE", str(tmp_path))
    folder = str(SOURCE / "robustbook")
    files = set()

    def listen(frame, event, _):
        if event == "call" and frame.f_code.co_name != "<module>":
            files.add(frame.f_code.co_filename)

    # What merely runs when a package is imported is no row's.
    importlib.import_module("robustbook.studies._compute")
    importlib.import_module(STUDIES[name].code)
    sys.setprofile(listen)
    try:
        STUDIES[name].compute(profile="quick", device="cpu")
    finally:
        sys.setprofile(None)
    ran = {
        ".".join(Path(file).relative_to(SOURCE).with_suffix("").parts)
        for file in files
        if file.startswith(folder)
    }
    covered = Code(SOURCE).closure(STUDIES[name].code)
    # The runner of studies and what looks up modules by name compute no row.
    runner = ("_compute", "_stored", "__init__")
    carriers = (*PLUMBING, *(f"robustbook.studies.{name}" for name in runner))
    assert {m for m in ran - covered if not m.startswith(carriers)} == set()
    assert len(ran & covered) > 5
