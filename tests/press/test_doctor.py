"""The set-up check finds each thing that is broken on purpose, and its remedy."""

from __future__ import annotations

import ast
import hashlib
import importlib.metadata
import io
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from press import doctor
from press.doctor import Finding, Setting

from .conftest import MakeBook, complete

ROOT = Path(__file__).resolve().parents[2]

PYPROJECT = """
[project]
dependencies = ["numpy>=1.26", "torch>=2.4", "torchmetrics>=1.4"]
[project.optional-dependencies]
book = ["papermill>=2"]
attacks = ["foolbox>=3"]
test = ["pytest>=8"]
"""


@pytest.fixture
def clone(make_book: MakeBook, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a clone in which every check but that of the package is met."""
    chapter = make_book()
    root = chapter.root
    (root / "pyproject.toml").write_text(PYPROJECT)
    (root / "constraints.txt").write_text("torch==2.13.0\n")
    data = root / "data"
    for folder in ("checkpoints", "results", "reported"):
        (data / folder).mkdir(parents=True)
    (data / "checkpoints" / "net.safetensors").write_bytes(b"weights")
    entry = {
        "file": "net.safetensors",
        "sha256": hashlib.sha256(b"weights").hexdigest(),
    }
    registry = {"schema": 1, "checkpoints": {"net": entry}}
    (data / "checkpoints" / "registry.json").write_text(json.dumps(registry))
    (data / "results" / "sweep.json").write_text('{"schema": 1, "rows": []}')
    stamp_chapters(root)
    for name in ("ROBUSTBOOK_DATA", "ROBUSTBOOK_CACHE", "ROBUSTBOOK_CHROMIUM"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(root / "cache"))
    return root


def stamp_chapters(root: Path) -> None:
    """Publish the chapter as if it had been executed with the data of now."""
    folder = root / "book" / "chapters"
    folder.mkdir(parents=True, exist_ok=True)
    stamp = {"data_sha256": doctor._data_sum(root)}
    notebook = {"metadata": {"robustbook": stamp}}
    (folder / "01_small.ipynb").write_text(json.dumps(notebook))


def said(finding: Finding, state: str, name: str, detail: str, remedy: str) -> None:
    assert (finding.state, finding.name) == (state, name), finding
    assert detail in finding.detail
    assert remedy in finding.remedy
    assert "\n" not in finding.remedy


def shadow(
    monkeypatch: pytest.MonkeyPatch, folder: Path, module: str, text: str
) -> None:
    """Put a module in front of the installed one, for the processes started."""
    folder.mkdir(exist_ok=True)
    (folder / f"{module}.py").write_text(text)
    monkeypatch.setenv("PYTHONPATH", str(folder))


@pytest.fixture
def bare(tmp_path: Path) -> str:
    """Return a Python that has its standard library only."""
    program = tmp_path / "bare-python"
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -I -S "$@"\n')
    program.chmod(0o755)
    return str(program)


# ------------------------------------------------------------------ Python, packages


def test_python(clone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert doctor.check_python(Setting(clone)).state == "ok"
    monkeypatch.setattr(doctor.sys, "version_info", (3, 10, 2))
    monkeypatch.setattr(doctor.platform, "python_version", lambda: "3.10.2")
    said(
        doctor.check_python(Setting(clone)),
        *("wrong", "Python", "3.10.2; the book needs 3.11", "PYTHON=python3.12"),
    )
    said(
        doctor.check_python(Setting(None)),
        *("wrong", "Python", "3.10.2", "https://www.python.org/downloads/"),
    )


def test_the_package(clone: Path, bare: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name = "robustbook"
    said(
        doctor.check_package(Setting(clone, bare)),
        *("missing", name, "not installed", f"make -C {clone} env"),
    )
    said(
        doctor.check_package(Setting(None, bare)),
        *("missing", name, "not installed", 'pip install "robustbook @ git+https://'),
    )
    own = clone / ".venv" / "bin" / "robustbook"
    own.parent.mkdir(parents=True)
    own.touch()
    said(
        doctor.check_package(Setting(clone, bare)),
        *("missing", name, "not in this Python; the clone's own", f"{own} doctor"),
    )
    said(
        doctor.check_package(Setting(clone)),
        *("wrong", name, "not of this clone", f"cd {clone} && "),
    )
    shadow(monkeypatch, clone / "src", name, "1 / 0")
    said(
        doctor.check_package(Setting(clone)),
        *("wrong", name, "ZeroDivisionError", "--editable '.'"),
    )
    assert doctor.check_package(Setting(None)).state == "wrong"
    monkeypatch.delenv("PYTHONPATH")
    assert doctor.check_package(Setting(None)).state == "ok"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "detail"),
    [
        ("raise ImportError('no library')", "torch: ImportError: no library"),
        ("import os; os._exit(139)", "torch: Python ended with status 139"),
        ("raise SystemExit(0)", "torch: SystemExit"),
    ],
)
def test_a_torch_that_does_not_import(
    clone: Path, monkeypatch: pytest.MonkeyPatch, text: str, detail: str
) -> None:
    shadow(monkeypatch, clone / "shadow", "torch", text)
    said(
        doctor.check_torch(Setting(clone)),
        *("wrong", "torch", detail, "pip install torch==2.13.0 torchmetrics"),
    )


@pytest.mark.slow
def test_without_torch_the_others_are_looked_at(
    clone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shadow(monkeypatch, clone / "shadow", "torch", "raise ImportError('no library')")
    found = {f.name: f for f in doctor.diagnose(Setting(clone), "full")}
    assert found["extra book"].state == found["checkpoints"].state == "ok"
    assert found["GPU"].detail == "not looked for, without torch; none is needed"
    assert found["data sets"].state == found["torch"].state == "wrong"


def pretend(monkeypatch: pytest.MonkeyPatch, versions: dict[str, str | None]) -> None:
    """Let packages be installed in other versions, or not."""
    real = importlib.metadata.version

    def version(name: str) -> str:
        found = versions.get(name, "")
        if found is None:
            raise importlib.metadata.PackageNotFoundError(name)
        return found or real(name)

    monkeypatch.setattr(importlib.metadata, "version", version)


def test_torch_itself(clone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    setting = Setting(clone, imports={"torch": "", "torchmetrics": ""})
    pretend(monkeypatch, {"torch": "2.13.0+cpu"})
    assert doctor.check_torch(setting).detail == "2.13.0+cpu"
    pretend(monkeypatch, {"torch": "2.9.1"})
    newer = doctor.check_torch(setting)
    assert newer.state == "ok"
    assert newer.detail == "2.9.1; the book's numbers were made with 2.13.0"
    pretend(monkeypatch, {"torch": "2.3.0"})
    said(
        doctor.check_torch(setting),
        *("wrong", "torch", "torch 2.3.0, not torch>=2.4", "torch==2.13.0"),
    )
    pretend(monkeypatch, {"torch": None})
    said(
        doctor.check_torch(setting),
        *("missing", "torch", "torch", "--extra-index-url")
        if sys.platform == "linux"
        else ("missing", "torch", "torch", "torch==2.13.0"),
    )


@pytest.mark.parametrize(
    ("check", "name", "package", "module"),
    [
        (doctor.check_core, "packages", "numpy", "numpy"),
        (doctor.check_book, "extra book", "papermill", "papermill"),
        (doctor.check_attacks, "extra attacks", "foolbox", "foolbox"),
        (doctor.check_test, "extra test", "pytest", "pytest"),
    ],
)
def test_the_extras(
    clone: Path,
    monkeypatch: pytest.MonkeyPatch,
    check: Callable[[Setting], Finding],
    name: str,
    package: str,
    module: str,
) -> None:
    extra = name.removeprefix("extra ")
    remedy = "--editable '.'" if extra == name else f"--editable '.[{extra}]'"
    assert check(Setting(clone, imports={module: ""})).state == "ok"
    said(
        check(Setting(clone, imports={module: "ImportError: half of it"})),
        *("wrong", name, f"{module}: ImportError: half of it", remedy),
    )
    pretend(monkeypatch, {package: None})
    said(check(Setting(clone)), "missing", name, package, remedy)
    pretend(monkeypatch, {package: "0.1"})
    said(check(Setting(clone)), "wrong", name, f"{package} 0.1, not ", remedy)


def test_the_extras_of_an_installation_without_a_clone() -> None:
    requirements = doctor._requirements(Setting(None), "book")
    assert any(line.startswith("papermill") for line in requirements)
    assert not any(line.startswith("torch") for line in requirements)
    assert any(
        line.startswith("torch") for line in doctor._requirements(Setting(None), "")
    )


def test_the_names_under_which_distributions_are_imported() -> None:
    for line, module in {
        "scikit-learn>=1.4": "sklearn",
        "pyyaml>=6.0": "yaml",
        "Sphinx==7.4.7": "sphinx",
        "sphinx-notfound-page==1.1.0": "notfound",
        "sphinxcontrib-bibtex==2.7.0": "sphinxcontrib.bibtex",
        "jupyter-book==1.0.4.post1": "jupyter_book",
        "not-installed>=1": "not_installed",
    }.items():
        assert doctor._module(line) == module


def test_the_kernel(clone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = "kernel python3"
    assert doctor.check_kernel(Setting(clone)).state == "ok"
    folder = clone / "jupyter" / "kernels" / "python3"
    folder.mkdir(parents=True)
    spec = {"argv": ["/usr/bin/other", "-m", "x"], "display_name": "Python 3"}
    (folder / "kernel.json").write_text(json.dumps(spec))
    monkeypatch.setenv("JUPYTER_PATH", str(clone / "jupyter"))
    said(
        doctor.check_kernel(Setting(clone)),
        *("wrong", name, "starts /usr/bin/other, not this one", "unset JUPYTER_PATH"),
    )
    no_kernel = Setting(clone, imports={"ipykernel": "gone", "jupyter_client": ""})
    said(doctor.check_kernel(no_kernel), "missing", name, "ipykernel", ".[book]")


@pytest.mark.parametrize(
    ("text", "state", "detail"),
    [
        (PYPROJECT + "\n[", "wrong", "not TOML: "),
        (PYPROJECT.replace("attacks", "others"), "wrong", "without 'attacks'"),
        ("project = 1", "wrong", "not TOML"),
        (b"\xff", "wrong", "not UTF-8"),
        (None, "missing", ""),
    ],
)
def test_a_damaged_pyproject_is_one_finding(
    clone: Path,
    monkeypatch: pytest.MonkeyPatch,
    text: str | bytes | None,
    state: str,
    detail: str,
) -> None:
    (clone / ".git").mkdir()
    file = clone / "pyproject.toml"
    file.unlink()
    if isinstance(text, str):
        file.write_text(text)
    elif text is not None:
        file.write_bytes(text)

    def never(setting: Setting) -> Finding:
        raise AssertionError("asked what cannot be known")

    own = (*doctor._STATED,)
    checks = [
        (check, levels)
        for check, levels in doctor._CHECKS
        if check in (doctor.check_python, doctor.check_pyproject)
    ]
    monkeypatch.setattr(doctor, "_STATED", (never,))
    checks += [(never, tuple(doctor.LEVELS))]
    monkeypatch.setattr(doctor, "_CHECKS", tuple(checks))
    python, found = doctor.diagnose(Setting(clone), "developing")
    assert python.state == "ok"
    remedy = f"git -C {clone} checkout -- pyproject.toml"
    said(found, state, "pyproject.toml", detail, remedy)
    assert {doctor.check_core, doctor.check_torch, doctor.check_book} < set(own)


def test_a_pyproject_that_may_not_be_read(
    clone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (found,) = doctor.check_pyproject(Setting(clone))
    assert found.state == "ok"
    assert not list(doctor.check_pyproject(Setting(None)))
    close(monkeypatch, "pyproject.toml")
    (found,) = doctor.check_pyproject(Setting(clone))
    file = clone / "pyproject.toml"
    why = f"{file}: Permission denied"
    said(found, "wrong", "pyproject.toml", why, f"chmod -R u+rX {file}")


def close(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Refuse to read a file, also to root, whom no mode keeps out."""
    real = io.open

    def refuse(file: Any, *words: Any, **options: Any) -> Any:
        if Path(file).name == name:
            raise PermissionError(13, "Permission denied", str(file))
        return real(file, *words, **options)

    monkeypatch.setattr(io, "open", refuse)


def test_a_package_whose_metadata_is_lost(
    clone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = clone / "site"
    (folder / "lostling-1.0.dist-info").mkdir(parents=True)
    (folder / "lostling-1.0.dist-info" / "top_level.txt").write_text("lostling\n")
    monkeypatch.syspath_prepend(folder)
    doctor._distributions.cache_clear()
    try:
        remedy = "pip install lostling"
        found = doctor._check_requirements(
            Setting(clone), "extra x", ["lostling>=1"], remedy
        )
        assert doctor._module("scikit-learn>=1.4") == "sklearn"
    finally:
        doctor._distributions.cache_clear()
    said(found, "wrong", "extra x", "lostling: damaged, its dist-info", remedy)


# ----------------------------------------------------------- processes that misbehave


def act(
    monkeypatch: pytest.MonkeyPatch, seconds: dict[str, float]
) -> list[tuple[list[str], float]]:
    """Let each import take its seconds, without waiting; return what was run."""
    calls: list[tuple[list[str], float]] = []

    def run(words: list[str], limit: float) -> subprocess.CompletedProcess[str]:
        names, spent, out = words[3:], 0.0, ""
        calls.append((names, limit))
        for name in names:
            spent += seconds[name]
            if spent > limit:
                why = f"no answer in {limit:.0f} s"
                return subprocess.CompletedProcess(words, doctor._HUNG, out, why)
            out += doctor._MARK + json.dumps([name, ""]) + "\n"
        return subprocess.CompletedProcess(words, 0, out, "")

    monkeypatch.setattr(doctor, "_run", run)
    return calls


def test_imports_that_hang(clone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hours = 10_000.0
    seconds = {"a": 1.0, "b": hours, "c": 1.0, "d": hours, "e": 1.0}
    calls = act(monkeypatch, seconds)
    errors = Setting(clone).import_errors(seconds)
    assert errors == {"b": "no answer in 120 s", "d": "no answer in 30 s"}
    names = [("abcde", 120), ("bcde", 120), ("cde", 30), ("de", 30), ("e", 30)]
    assert calls == [(list(left), limit) for left, limit in names]


def test_slow_imports_do_not_hang(clone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = act(monkeypatch, {"a": 70.0, "b": 70.0, "c": 110.0})
    setting = Setting(clone)
    assert not setting.import_errors(["a", "b", "c"])
    assert not setting.hung
    assert len(calls) == 3


def test_an_import_that_asks_gets_no_answer(
    clone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shadow(monkeypatch, clone / "shadow", "curious", "input()")
    monkeypatch.setattr(doctor, "_PATIENCE", 20)
    # Somebody may sit at the keyboard: an open pipe stands in for them.
    reading, writing = os.pipe()
    kept = os.dup(0)
    os.dup2(reading, 0)
    try:
        errors = Setting(clone).import_errors(["curious"])
    finally:
        os.dup2(kept, 0)
        for end in (reading, writing, kept):
            os.close(end)
    assert errors["curious"].startswith("EOFError")


def test_checks_whose_process_hangs(
    clone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = clone / "hanging-python"
    program.write_text("#!/bin/sh\necho a word >&2\nexec sleep 600\n")
    program.chmod(0o755)
    monkeypatch.setattr(doctor, "_PATIENCE", 0.2)
    imports = dict.fromkeys(["torch", "ipykernel", "jupyter_client"], "")

    def setting() -> Setting:
        return Setting(clone, str(program), imports)

    why = "no answer in "
    for check, name in (
        (doctor.check_package, "robustbook"),
        (doctor.check_kernel, "kernel python3"),
        (doctor.check_cache, "cache"),
    ):
        said(check(setting()), "wrong", name, why, "pip install")
    (found,) = doctor.check_data_sets(setting())
    said(found, "wrong", "data sets", why, "pip install")
    said(
        doctor.check_cuda(setting()),
        *("wrong", "GPU", why, "export CUDA_VISIBLE_DEVICES="),
    )
    said(
        doctor.check_run(setting()),
        *("wrong", "run chapter 08", "no answer in 3 s", "run 08"),
    )


@pytest.mark.parametrize("late", ["print('goodbye')", "os.write(1, b'caf\\xe9')"])
def test_what_else_is_printed_is_no_answer(
    clone: Path, monkeypatch: pytest.MonkeyPatch, late: str
) -> None:
    text = f"import atexit, os\nprint('hello')\natexit.register(lambda: {late})"
    shadow(monkeypatch, clone / "shadow", "sitecustomize", text)
    setting = Setting(clone, imports=dict.fromkeys(["ipykernel", "jupyter_client"], ""))
    assert "goodbye" in setting.probe("").stdout or "caf" in setting.probe("").stdout
    assert doctor.check_package(Setting(None)).state == "ok"
    assert doctor.check_kernel(setting).state == "ok"
    assert doctor.check_cache(setting).state == "ok"


def test_a_python_that_answers_nothing(clone: Path) -> None:
    program = clone / "silent-python"
    program.write_text(f"#!/bin/sh\necho '{doctor._MARK}[\"cut'\n")
    program.chmod(0o755)
    imports = dict.fromkeys(["torch", "ipykernel", "jupyter_client"], "")
    setting = Setting(clone, str(program), imports)
    why = "Python ended with status 0 and did not answer"
    said(doctor.check_package(setting), "wrong", "robustbook", why, "pip install")
    said(doctor.check_kernel(setting), "wrong", "kernel python3", why, ".[book]")
    said(doctor.check_cache(setting), "wrong", "cache", why, "pip install")
    (found,) = doctor.check_data_sets(setting)
    said(found, "wrong", "data sets", why, ".[book]")
    assert doctor.check_cuda(setting).state == "ok"


@pytest.mark.skipif(os.name == "nt", reason="no such signal")
def test_an_interrupt_ends_the_chapter_too(clone: Path) -> None:
    program, note = clone / "long-python", clone / "pid"
    program.write_text(f"#!/bin/sh\necho $$ > {note}.new\nmv {note}.new {note}\n")
    with program.open("a") as script:
        script.write("exec sleep 600\n")
    program.chmod(0o755)
    code = (
        "import sys; from pathlib import Path; from press import doctor;"
        "doctor.check_run(doctor.Setting(Path(sys.argv[1]), sys.argv[2]))"
    )
    words = [sys.executable, "-c", code, str(clone), str(program)]
    with subprocess.Popen(words, stderr=subprocess.DEVNULL) as process:
        while not note.exists():
            assert process.poll() is None
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        assert process.wait(20) != 0
    with pytest.raises(ProcessLookupError):
        os.kill(int(note.read_text()), 0)


# -------------------------------------------------------------- the book and its data


def test_the_clone(clone: Path) -> None:
    name = "clone of the book"
    assert doctor.check_clone(Setting(clone)).detail == f"{clone}, 1 chapters"
    said(doctor.check_clone(Setting(None)), "missing", name, "notebooks/", "git clone")
    (clone / ".git").mkdir()
    (clone / "book" / "chapters" / "01_small.ipynb").unlink()
    said(
        doctor.check_clone(Setting(clone)),
        *("missing", name, "1 executed chapter", f"make -C {clone} book"),
    )
    (clone / "notebooks" / "01_small.md").unlink()
    said(
        doctor.check_clone(Setting(clone)),
        *("missing", name, "the chapters of", f"git -C {clone} checkout -- notebooks"),
    )


@pytest.mark.parametrize(
    ("file", "content", "state", "detail"),
    [
        ("net.safetensors", b"Weights", "wrong", "net.safetensors: another sha256"),
        ("net.safetensors", None, "missing", "net.safetensors"),
        ("registry.json", None, "missing", "registry.json"),
        ("registry.json", b"{", "wrong", "registry.json: "),
        ("registry.json", b"{}", "wrong", "registry.json: 'checkpoints'"),
    ],
)
def test_the_checkpoints(
    clone: Path, file: str, content: bytes | None, state: str, detail: str
) -> None:
    (clone / ".git").mkdir()
    found = doctor.check_checkpoints(Setting(clone))
    assert (found.state, found.detail) == ("ok", "1 files, sha256 as registered")
    path = clone / "data" / "checkpoints" / file
    path.unlink() if content is None else path.write_bytes(content)
    said(
        doctor.check_checkpoints(Setting(clone)),
        *(state, "checkpoints", detail, f"checkout -- data/checkpoints/{file}"),
    )


@pytest.mark.parametrize("file", ["net.safetensors", "registry.json"])
def test_a_checkpoint_that_may_not_be_read(
    clone: Path, monkeypatch: pytest.MonkeyPatch, file: str
) -> None:
    close(monkeypatch, file)
    folder = clone / "data" / "checkpoints"
    said(
        doctor.check_checkpoints(Setting(clone)),
        *("wrong", "checkpoints", f"{folder / file}: Permission denied"),
        f"chmod -R u+rX {folder}",
    )


def test_a_result_that_may_not_be_read(
    clone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    close(monkeypatch, "sweep.json")
    said(
        doctor.check_results(Setting(clone)),
        *("wrong", "stored results", "sweep.json: Permission denied"),
        f"chmod -R u+rX {clone / 'data'}",
    )


def test_the_results(clone: Path) -> None:
    name = "stored results"
    sweep = clone / "data" / "results" / "sweep.json"
    assert doctor.check_results(Setting(clone)).state == "ok"
    sweep.write_text('{"schema": 1, "rows": [1]}')
    said(
        doctor.check_results(Setting(clone)),
        *("wrong", name, "not those that the chapters were executed with", "make -C"),
    )
    git = ["git", "-C", str(clone), "-c", "user.name=a", "-c", "user.email=a@b.example"]
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "add", "data"], check=True)
    subprocess.run([*git, "commit", "-q", "-m", "data"], check=True)
    stamp_chapters(clone)
    assert doctor.check_results(Setting(clone)).state == "ok"
    sweep.write_text('{"schema": 1, "rows": [2]}')
    said(
        doctor.check_results(Setting(clone)),
        *("wrong", name, "data/results/sweep.json", "-- data/results/sweep.json"),
    )
    # What chapters do not load is none of its business, nor is it to be restored.
    (clone / "data" / "claims.toml").write_text("new")
    assert "claims" not in doctor.check_results(Setting(clone)).remedy
    sweep.write_text('{"schema": 1')
    said(
        doctor.check_results(Setting(clone)),
        *("wrong", name, "sweep.json: no stored result", "-- data/results/sweep.json"),
    )
    sweep.unlink()
    sweep.parent.rmdir()
    said(doctor.check_results(Setting(clone)), "missing", name, "results", "checkout")


def test_the_data_variable(clone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = "ROBUSTBOOK_DATA"
    assert doctor.check_data_variable(Setting(clone)).state == "ok"
    monkeypatch.setenv(name, str(clone))
    assert doctor.check_data_variable(Setting(clone)).detail == str(clone)
    monkeypatch.setenv(name, "~nobody-at-all/x")
    said(
        doctor.check_data_variable(Setting(clone)),
        *("wrong", name, "x is no folder", "unset ROBUSTBOOK_DATA"),
    )
    monkeypatch.setenv(name, str(clone / "gone"))
    said(
        doctor.check_data_variable(Setting(clone)),
        *("wrong", name, "gone is no folder", "unset ROBUSTBOOK_DATA"),
    )


@pytest.mark.slow
def test_the_data_sets(clone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shared = clone / "shared"
    (shared / "cifar10").mkdir(parents=True)
    (shared / "cifar10" / "labels.npy").write_bytes(b"labels")
    (shared / "fashion-mnist").mkdir()
    images = shared / "fashion-mnist" / "train-images-idx3-ubyte.gz"
    images.write_bytes(b"pictures")
    monkeypatch.setenv("ROBUSTBOOK_DATA", str(shared))
    found = {f.name: f for f in doctor.check_data_sets(Setting(clone))}
    assert list(found) == [
        *("mnist", "fashion-mnist", "cifar10", "sentence-polarity", "public models"),
    ]
    said(
        found["mnist"], "missing", "mnist", "neither in", "robustbook data fetch mnist"
    )
    said(
        found["fashion-mnist"],
        *("wrong", "fashion-mnist", f"{images}: expected sha256", f"rm {images} && "),
    )
    assert found["fashion-mnist"].remedy.endswith("robustbook data fetch fashion-mnist")
    said(found["cifar10"], "wrong", "cifar10", "labels.npy", "fetch cifar10")
    said(
        found["public models"],
        *("missing", "public models", " and 21 more", "load_model"),
    )


# ------------------------------------------------------------------------ the machine


def test_the_cache(clone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    setting = Setting(clone)
    assert doctor.check_cache(setting).state == "ok"
    (clone / "file").touch()
    monkeypatch.setenv("ROBUSTBOOK_CACHE", str(clone / "file" / "cache"))
    said(
        doctor.check_cache(setting),
        *("wrong", "cache", f"{clone / 'file'} is no folder", "ROBUSTBOOK_CACHE="),
    )
    monkeypatch.setenv("ROBUSTBOOK_CACHE", "~nobody-at-all/x")
    said(
        doctor.check_cache(setting),
        *("wrong", "cache", "cannot be written: ~nobody-at-all/x", "ROBUSTBOOK_CACHE="),
    )
    monkeypatch.setenv("ROBUSTBOOK_CACHE", str(clone))
    monkeypatch.setenv("XDG_CACHE_HOME", str(clone / "file"))
    said(doctor.check_cache(setting), "wrong", "cache", "no folder", "XDG_CACHE_HOME=")


def test_the_output(clone: Path) -> None:
    assert doctor.check_output(Setting(clone)).state == "ok"
    (clone / "_build").touch()
    said(
        doctor.check_output(Setting(clone)),
        *("wrong", "output", "_build is no folder", "git clone"),
    )


def test_programs_and_browser(clone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    browser = clone / "browser"
    browser.write_text("#!/bin/sh\necho Chromium 1.2\n")
    browser.chmod(0o755)
    monkeypatch.setenv("ROBUSTBOOK_CHROMIUM", str(browser))
    found = doctor.check_chromium(Setting(clone))
    assert (found.state, found.detail) == ("ok", f"Chromium 1.2, {browser}")
    browser.write_text("#!/bin/sh\necho no display >&2\nexit 1\n")
    remedy = "unset ROBUSTBOOK_CHROMIUM"
    said(
        doctor.check_chromium(Setting(clone)), "wrong", "Chromium", "no display", remedy
    )
    browser.unlink()
    said(doctor.check_chromium(Setting(clone)), "wrong", "Chromium", "No such", remedy)
    monkeypatch.delenv("ROBUSTBOOK_CHROMIUM")
    monkeypatch.setenv("PATH", str(clone))
    said(
        doctor.check_chromium(Setting(clone)),
        *("missing", "Chromium", "would skip", "install"),
    )
    said(
        doctor.check_programs(Setting(clone)),
        *("missing", "programs", "git, make", "git make"),
    )


def test_memory_disk_and_cores(clone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    setting = Setting(clone, imports={"torch": ""})
    monkeypatch.setattr(doctor, "_total_memory", lambda: 2 * 1024**3)
    said(
        doctor.check_memory(setting),
        *("wrong", "memory", "2.0 GiB, less than 3", "webbrowser https://mybinder.org"),
    )
    monkeypatch.setattr(doctor, "_total_memory", lambda: None)
    assert doctor.check_memory(setting).state == "ok"

    usage = type("Usage", (), {"free": 1024**3})
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda folder: usage)
    assert doctor.check_disk(setting).state == "ok"
    said(
        doctor.check_disk(Setting(clone, imports={"torch": "gone"})),
        *("wrong", "disk", "1.0 GiB free, less than 4.0", "cache purge"),
    )
    monkeypatch.setattr(doctor.os, "cpu_count", lambda: 1)
    cores = doctor.check_cores(setting)
    assert (cores.state, cores.detail[:2]) == ("ok", "1:")


def test_a_gpu_that_torch_does_not_use(
    clone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = clone / "nvidia-smi"
    driver.write_text("#!/bin/sh\n")
    driver.chmod(0o755)
    monkeypatch.setenv("PATH", str(clone))

    def answer(*found: Any) -> str:
        out = doctor._MARK + json.dumps(found)
        done = subprocess.CompletedProcess([], 0, out, "")
        monkeypatch.setattr(Setting, "probe", lambda *words: done)
        return doctor.check_cuda(Setting(clone, imports={"torch": ""})).detail

    assert "make book TORCH=cuda" in answer(None, None)
    assert answer("Fast 9000", "13.0") == "Fast 9000, CUDA 13.0"
    assert answer(None, "13.0") == "none; none is needed"


@pytest.mark.slow
def test_a_run(clone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_TRIAL", "01")
    timings = {"01_small": {"quick": {"seconds": 7.2}}}
    file = clone / "book" / "chapters" / "timings.json"
    file.write_text(json.dumps(timings))
    found = doctor.check_run(Setting(clone))
    assert found.state == "ok"
    assert found.detail.endswith("s; 7 s on the machine of the workshop guide")
    text = complete("import os\nassert os.environ['http_proxy'].endswith(':9')\n1 / 0")
    (clone / "notebooks" / "01_small.md").write_text(text)
    said(
        doctor.check_run(Setting(clone)),
        *("wrong", "run chapter 01", "ZeroDivisionError", "run 01 --profile quick"),
    )
    assert doctor.check_run(Setting(None)).state == "missing"


# ---------------------------------------------------------------------------- all


def test_a_check_that_fails_itself_is_a_finding(
    clone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def check_luck(setting: Setting) -> Finding:
        raise OSError("out of luck")

    monkeypatch.setattr(doctor, "_CHECKS", ((check_luck, ("scoring",)),))
    (found,) = doctor.diagnose(Setting(clone), "scoring")
    said(found, "wrong", "luck", "OSError: out of luck", "pip install")


def test_without_the_package_one_command_stands_for_all(clone: Path, bare: str) -> None:
    found = list(doctor.diagnose(Setting(clone, bare), "developing", run=True))
    assert [f.name for f in found if f.state != "ok"] == ["robustbook"]
    assert {"checkpoints", "stored results", "memory"} <= {f.name for f in found}


def test_the_levels(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="expected one of scoring, workshop, full"):
        list(doctor.diagnose(Setting(None), "reading"))
    for _, levels in doctor._CHECKS:
        assert set(levels) <= set(doctor.LEVELS)
    assert set(doctor._INSTALLED) <= {c for c, _ in doctor._CHECKS} | {doctor.check_run}


@pytest.mark.parametrize("state", ["missing", "wrong"])
def test_only_what_is_not_ok_has_a_remedy(state: str) -> None:
    with pytest.raises(ValueError, match="a remedy for what is not ok"):
        Finding("x", state, "gone")
    with pytest.raises(ValueError, match="a remedy for what is not ok"):
        Finding("x", "ok", "here", "make it")
    with pytest.raises(ValueError, match="expected ok, missing or wrong"):
        Finding("x", "fine", "here")


def command(*words: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "robustbook.cli", "doctor", *words],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
def test_the_command(clone: Path) -> None:
    done = command("--for", "scoring", "--json")
    assert done.returncode == 0, done.stdout
    answer = json.loads(done.stdout)
    assert answer["for"] == "scoring"
    assert answer["met"] is True
    assert {check["state"] for check in answer["checks"]} == {"ok"}
    done = command("--for", "scoring", cwd=clone)
    assert done.returncode == 1
    assert "wrong    robustbook " in done.stdout
    assert "\n         -> cd " in done.stdout
    assert done.stdout.endswith(
        "one thing to mend, from the top; the command follows ->\n"
    )
    assert command("--for", "reading").returncode == 2
    gone = command("--root", "gone")
    assert gone.returncode == 2
    assert gone.stderr.startswith("robustbook: no book in gone")


@pytest.mark.skipif(sys.prefix == sys.base_prefix, reason="no environment to leave")
def test_the_file_runs_where_nothing_is_installed(clone: Path) -> None:
    base = sys._base_executable  # type: ignore[attr-defined]
    file = ROOT / "src" / "robustbook" / "chapters" / "doctor.py"
    words = [base, "-I", str(file), "--root", str(clone), "--json"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    answer = json.loads(done.stdout)
    faults = [check for check in answer["checks"] if check["state"] != "ok"]
    assert [fault["name"] for fault in faults] == ["robustbook"]
    assert faults[0]["state"] == "missing"


def test_it_imports_the_standard_library_alone() -> None:
    tree = ast.parse(Path(doctor.__file__).read_text(encoding="utf-8"))
    modules = {
        name
        for node in tree.body
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [str(node.module)]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    assert {name.partition(".")[0] for name in modules} <= set(sys.stdlib_module_names)


@pytest.mark.slow
def test_this_clone_is_ready_for_a_workshop() -> None:
    faults = [
        doctor.render(found)
        for found in doctor.diagnose(Setting(ROOT), "workshop")
        if found.state != "ok"
    ]
    assert not faults, "\n".join(faults)
