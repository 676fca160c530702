"""A changed line of a module makes its dependents stale, and nothing else.

The expected dependents do not come from the sums but from Python itself, which
knows the object that each imported name is bound to.
"""

import ast
import importlib
import shutil
import sys
from functools import cache
from importlib.util import resolve_name
from pathlib import Path

import jupytext
import pytest

from press.stamps import package_imports
from robustbook._store.provenance import PLUMBING, Code, package_source
from robustbook.studies import STUDIES

ROOT = Path(__file__).resolve().parents[2]
SOURCE = package_source()
MODULES = sorted(
    ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")
    for path in (SOURCE / "robustbook").rglob("*.py")
)


def file_of(module, source=SOURCE):
    base = source.joinpath(*module.split("."))
    return base / "__init__.py" if base.is_dir() else base.with_suffix(".py")


@cache
def tree_of(module):
    return ast.parse(file_of(module).read_text(encoding="utf-8"))


def whole(name):
    """A module, or all that is in a package."""
    inside = {m for m in MODULES if m == name or m.startswith(f"{name}.")}
    return inside if name != "robustbook" else set()


def made_in(base, name):
    """The modules that bind a name, other than by importing it, to this very object."""
    if f"{base}.{name}" in MODULES:
        return whole(f"{base}.{name}")
    if not base.startswith("robustbook."):
        return set()
    thing = getattr(importlib.import_module(base), name)
    return {
        m
        for m in MODULES
        if name in bound_in(m) and vars(importlib.import_module(m)).get(name) is thing
    }


@cache
def bound_in(module):
    names = set()
    for node in tree_of(module).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        targets = getattr(node, "targets", [getattr(node, "target", None)])
        names |= {target.id for target in targets if isinstance(target, ast.Name)}
    return names


def origins(tree, package=""):
    """The modules of the package whose code a program uses."""
    for_checker = {
        id(node)
        for test in ast.walk(tree)
        if isinstance(test, ast.If) and "TYPE_CHECKING" in ast.unparse(test.test)
        for statement in test.body
        for node in ast.walk(statement)
    }
    used = set()
    for node in ast.walk(tree):
        if id(node) in for_checker:
            continue
        if isinstance(node, ast.Import):
            used |= {module for alias in node.names for module in whole(alias.name)}
        elif isinstance(node, ast.ImportFrom):
            base = resolve_name("." * node.level + (node.module or ""), package)
            for alias in node.names:
                used |= made_in(base, alias.name)
    return used


@cache
def imported(module):
    package = module
    if file_of(module).stem != "__init__":
        package = module.rpartition(".")[0]
    return origins(tree_of(module), package)


def reached(roots, *, plumbing=False):
    pending, closed = set(roots), set()
    while pending:
        module = pending.pop()
        if module in closed or (not plumbing and module.startswith(PLUMBING)):
            continue
        closed.add(module)
        pending |= imported(module)
    return closed


@pytest.fixture(scope="module")
def programs():
    return {
        path.stem: package_imports(jupytext.read(path))
        for path in sorted((ROOT / "notebooks").glob("*.md"))
    }


def sums(source, programs):
    """By result and by chapter, the sum of the code that it depends on."""
    code = Code(source)
    results = {name: code.fingerprint(study.code) for name, study in STUDIES.items()}
    return results | {
        name: code.fingerprint_of_program(text) for name, text in programs.items()
    }


@pytest.fixture(scope="module")
def depends(programs):
    """By result and by chapter, the modules that its numbers can depend on."""
    rows = {name: reached(whole(study.code)) for name, study in STUDIES.items()}
    for name, text in programs.items():
        rows[name] = reached(origins(ast.parse(text)), plumbing=True)
    assert rows.keys() == {*STUDIES, *programs}
    assert all(len(code) > 2 for code in rows.values())
    return rows


@pytest.fixture
def house(tmp_path):
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(SOURCE / "robustbook", tmp_path / "robustbook", ignore=ignored)
    return tmp_path


def changed(file, house, programs, before):
    """What is stale after a change of a file."""
    content = file.read_bytes()
    file.write_bytes(content + (b"\n_CHANGED = 1\n" if file.suffix == ".py" else b"\n"))
    after = sums(house, programs)
    file.write_bytes(content)
    return {name for name in before if after[name] != before[name]}


def test_code_covers_what_python_imports():
    code = Code(SOURCE)
    for module in MODULES[1:]:
        assert code.closure(module) == reached(whole(module)), module
    assert len(MODULES) > 100


def test_a_changed_line_makes_exactly_its_dependents_stale(house, programs, depends):
    before = sums(house, programs)
    for module in MODULES[::9]:
        stale = changed(file_of(module, house), house, programs, before)
        assert stale == {name for name in before if module in depends[name]}, module


def test_a_changed_template_makes_stale_the_users_of_its_package(
    house, programs, depends
):
    before = sums(house, programs)
    files = [*house.rglob("*.jinja"), *house.rglob("*.vega.json")]
    assert len(files) > 2
    for file in files:
        beside = {m for m in MODULES if file_of(m, house).parent == file.parent}
        stale = changed(file, house, programs, before)
        assert stale == {name for name in before if beside & depends[name]}
        assert stale


def test_what_python_compiles_is_never_read(house, programs, monkeypatch):
    before = sums(house, programs)
    # A process that imports the module writes it, and gives it another name at once.
    folder = file_of("robustbook.agreement", house).parent / "__pycache__"
    folder.mkdir()
    (folder / "__init__.cpython-311.pyc.139870").write_bytes(b"compiled")
    read = Path.read_bytes

    def vanished(path):
        if path.parent == folder:
            raise FileNotFoundError(path)
        return read(path)

    monkeypatch.setattr(Path, "read_bytes", vanished)
    assert sums(house, programs) == before


def test_comments_docstrings_and_line_breaks_make_nothing_stale(house, programs):
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
