"""What is missing on this machine, and how to get it: ``robustbook doctor``.

Reading the book needs a browser and nothing else, so there is nothing to check for
it. There are four purposes that need more: scoring your own logits, a workshop (run
any chapter), full (compute the expensive results anew, with real data), and
developing (run the tests). Each has its list of checks; a check ends as ok, missing
or wrong, and what is not ok names the one command that mends it.

Nothing but the standard library is imported here, and every package is tried in
another process, so that a set-up can be examined that is broken in any way. Before
anything is installed, run the file itself::

    python3 src/press/doctor.py
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.metadata
import json
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if __name__ == "__main__":
    # Run as a file, its own folder is where Python looks for modules.
    sys.path[0] = str(Path(__file__).resolve().parents[1])

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

__all__ = ["LEVELS", "Finding", "Setting", "diagnose", "main", "render", "render_json"]

#: What a set-up can be for, and what that means.
LEVELS: Mapping[str, str] = {
    "scoring": "score two files of logits",
    "workshop": "run every chapter, as a workshop does",
    "full": "compute the expensive results anew, with real data",
    "developing": "run all tests and build the site",
}

_RUNNING = ("workshop", "full", "developing")

_OLDEST, _NEWEST = (3, 11), (3, 13)
_REPOSITORY = "https://github.com/robustness-measured/robustness-measured"
_CPU_INDEX = "https://download.pytorch.org/whl/cpu"

#: Bytes; what is less is wrong. Chapters take up to a third of it, the system the rest.
_MEMORY = 3 * 1024**3
#: Bytes: for the environment where there is none yet, and for results of chapters.
_DISK_TO_INSTALL, _DISK = 4 * 1024**3, 512 * 1024**2

#: Seconds after which a process that says nothing counts as hanging.
_PATIENCE = 120.0
#: Its status then, that of timeout(1).
_HUNG = 124

_CHROMIUM = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_TRIAL = "08"

# What to import, where the name of the distribution does not say it.
_MODULES = {
    "sphinxcontrib-bibtex": "sphinxcontrib.bibtex",
    "sphinxext-opengraph": "sphinxext.opengraph",
}


@dataclass(frozen=True)
class Finding:
    """What one check found.

    Attributes
    ----------
    name : str
        What was looked at.
    state : str
        "ok", "missing" or "wrong".
    detail : str
        What was found.
    remedy : str
        The command that mends it; empty if all is well.
    """

    name: str
    state: str
    detail: str
    remedy: str = ""

    def __post_init__(self) -> None:
        if self.state not in ("ok", "missing", "wrong"):
            raise ValueError(f"state: expected ok, missing or wrong; got {self.state}")
        if (self.state == "ok") == bool(self.remedy):
            raise ValueError(f"{self.name}: a remedy for what is not ok, and only then")


def _ok(name: str, detail: str) -> Finding:
    return Finding(name, "ok", detail)


@dataclass(frozen=True)
class Setting:
    """What is examined.

    Attributes
    ----------
    root : Path, optional
        The clone of the book.
    python : str
        The Python that would run it.
    """

    root: Path | None
    python: str = sys.executable
    #: What importing each module ended with; empty if well.
    imports: dict[str, str] = field(default_factory=dict, compare=False)
    #: What processes that hung were waited for.
    hung: list[str] = field(default_factory=list, compare=False)

    def probe(
        self, code: str, *words: str, times: int = 1
    ) -> subprocess.CompletedProcess[str]:
        """Run code in another process of the same Python, for a limited time."""
        # What hangs once hangs wherever it is imported: be shorter with the others.
        seconds = times * _PATIENCE / (4 if self.hung else 1)
        done = _run([self.python, "-c", code, *words], seconds)
        if done.returncode == _HUNG and not _answers(done):
            self.hung.append(_last_line(done.stderr))
        return done

    def import_errors(self, modules: Iterable[str]) -> dict[str, str]:
        """Import modules in another process; return the message of each that fails."""
        wanted = [name for name in modules if name not in self.imports]
        while wanted:
            done = self.probe(_IMPORT, *wanted)
            self.imports.update(_answers(done))
            left = [name for name in wanted if name not in self.imports]
            if left and done.returncode == _HUNG:
                if left == wanted:  # not all of them together are slow: it hangs alone
                    self.imports[left.pop(0)] = _last_line(done.stderr)
            elif left:  # the first of them took the process down
                why = f"Python ended with status {done.returncode}"
                self.imports[left.pop(0)] = why
            wanted = left
        return {name: error for name in modules if (error := self.imports[name])}

    def pip(self, *words: str) -> str:
        """Return a command that installs something."""
        return f"{shlex.quote(self.python)} -m pip install {' '.join(words)}"

    def install(self, extra: str = "") -> str:
        """Return the command that installs the package, with an extra."""
        suffix = f"[{extra}]" if extra else ""
        if self.root is None:
            return self.pip(f'"robustbook{suffix} @ git+{_REPOSITORY}"')
        folder = shlex.quote(str(self.root))
        words = f"--constraint constraints.txt --editable '.{suffix}'"
        return f"cd {folder} && {self.pip(words)}"


_MARK = "doctor: "


def _run(
    words: list[str], seconds: float, **options: Any
) -> subprocess.CompletedProcess[str]:
    """Run a program that can neither ask nor hang; Ctrl-C ends it too."""
    try:
        return subprocess.run(
            words,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=seconds,
            **options,
        )
    except subprocess.TimeoutExpired as error:
        # Bytes or text, or nothing: it depends on the system.
        out, told = (
            part.decode(errors="replace") if isinstance(part, bytes) else part or ""
            for part in (error.stdout, error.stderr)
        )
        why = f"{told}\nno answer in {seconds:.0f} s"
        return subprocess.CompletedProcess(words, _HUNG, out, why)


def _answers(done: subprocess.CompletedProcess[str]) -> list[Any]:
    """What a process answered, whatever else was printed before or after."""
    found = []
    for line in done.stdout.splitlines():
        if line.startswith(_MARK):
            try:
                found.append(json.loads(line[len(_MARK) :]))
            except ValueError:  # cut off, or another's
                continue
    return found


def _why(done: subprocess.CompletedProcess[str]) -> str:
    """Why there was no answer."""
    if done.returncode:
        return _last_line(done.stderr)
    return "Python ended with status 0 and did not answer"


_IMPORT = f"""
import contextlib, importlib, io, json, sys, warnings
warnings.simplefilter("ignore")
for name in sys.argv[1:]:
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            # What the package mends before it imports them.
            if name in ("torchmetrics", "torchvision"):
                importlib.import_module("robustbook._compat").mend_torchvision()
            if name == "robustbench":
                mends = "robustbook.models._robustbench_compat"
                importlib.import_module(mends).import_robustbench()
            importlib.import_module(name)
        message = ""
    except BaseException as error:
        message = f"{{type(error).__name__}}: {{error}}"
    print("\\n{_MARK}" + json.dumps([name, message]), flush=True)
"""


# ------------------------------------------------------------------ Python, packages


def check_python(setting: Setting) -> Finding:
    """The version of this Python."""
    found = platform.python_version()
    if _OLDEST <= sys.version_info[:2] <= _NEWEST:
        return _ok("Python", f"{found}, {setting.python}")
    python = shlex.quote(setting.python)
    return Finding(
        "Python",
        "wrong",
        f"{found}; the book needs 3.11, 3.12 or 3.13",
        f"make -C {shlex.quote(str(setting.root))} env PYTHON=python3.12"
        if setting.root
        else f"{python} -m webbrowser https://www.python.org/downloads/",
    )


def check_pyproject(setting: Setting) -> Iterator[Finding]:
    """What the clone says that it needs can be read."""
    name = "pyproject.toml"
    if setting.root is None or sys.version_info < (3, 11):
        return
    try:
        for extra in ("", "book", "attacks", "test"):
            _requirements(setting, extra)
    except FileNotFoundError:
        yield Finding(name, "missing", str(setting.root), _restore(setting, [name]))
    except PermissionError as error:
        yield _closed(name, error, setting.root / name)
    except (ValueError, KeyError, TypeError) as error:
        kind = "not UTF-8" if isinstance(error, UnicodeDecodeError) else "not TOML"
        why = f"without {error}" if isinstance(error, KeyError) else f"{kind}: {error}"
        yield Finding(name, "wrong", why, _restore(setting, [name]))
    else:
        yield _ok(name, "readable")


def _closed(name: str, error: PermissionError, path: Path) -> Finding:
    """Say which file may not be read, and open it or all of a folder."""
    why = f"{error.filename or path}: {error.strerror or error}"
    return Finding(name, "wrong", why, f"chmod -R u+rX {shlex.quote(str(path))}")


_PLACE = f"""
import json, robustbook
print("\\n{_MARK}" + json.dumps(robustbook.__file__), flush=True)
"""


def check_package(setting: Setting) -> Finding:
    """The package, and whether it is that of the clone."""
    name = "robustbook"
    done = setting.probe(_PLACE)
    answers = _answers(done)
    if not answers and "No module named 'robustbook'" in done.stderr:
        if setting.root is None:
            return Finding(name, "missing", "not installed", setting.install())
        own = setting.root / ".venv" / "bin" / "robustbook"
        if own.is_file() and Path(sys.prefix).resolve() != own.parents[1].resolve():
            where = f"not in this Python; the clone's own is {own.parents[1]}"
            return Finding(name, "missing", where, f"{shlex.quote(str(own))} doctor")
        folder = shlex.quote(str(setting.root))
        return Finding(name, "missing", "not installed", f"make -C {folder} env")
    if not answers:
        return Finding(name, "wrong", _why(done), setting.install())
    place = Path(answers[-1]).parent
    if setting.root and setting.root / "src" not in place.parents:
        where = f"that of {place}, not of this clone"
        return Finding(name, "wrong", where, setting.install())
    version = importlib.metadata.version(name)
    return _ok(name, f"{version}, {place}")


def _requirements(setting: Setting, extra: str) -> list[str]:
    """What the package asks for, as it is written; of an extra or, "", always."""
    if setting.root is not None and sys.version_info >= (3, 11):
        import tomllib

        text = (setting.root / "pyproject.toml").read_text(encoding="utf-8")
        project = tomllib.loads(text)["project"]
        stated = project["optional-dependencies"] if extra else project
        return list(stated[extra or "dependencies"])
    try:
        lines = importlib.metadata.requires("robustbook") or []
    except importlib.metadata.PackageNotFoundError:
        return []
    marker = re.compile(rf";\s*extra\s*==\s*[\"']{extra}[\"']" if extra else r"^[^;]*$")
    return [line.partition(";")[0] for line in lines if marker.search(line)]


def _unmet(requirement: str) -> tuple[str, str]:
    """Return the state of a requirement and, if it is not met, why."""
    found = re.match(r"[\w.-]+", requirement)
    assert found is not None
    name = found[0]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what is damaged
            version: str | None = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "missing", name
    except KeyError:
        version = None
    if not version:
        return "wrong", f"{name}: damaged, its dist-info has no version"
    try:
        from packaging.requirements import Requirement

        fits = Requirement(requirement).specifier.contains(version, prereleases=True)
    except ImportError:
        fits = True  # it imports, or not: that is seen next
    return ("ok", "") if fits else ("wrong", f"{name} {version}, not {requirement}")


def _check_requirements(
    setting: Setting, name: str, requirements: list[str], remedy: str
) -> Finding:
    states = [_unmet(requirement) for requirement in requirements]
    missing = [why for state, why in states if state == "missing"]
    wrong = [why for state, why in states if state == "wrong"]
    if not requirements:
        return Finding(name, "missing", "robustbook is not installed", remedy)
    if missing:
        return Finding(name, "missing", ", ".join(missing), remedy)
    if wrong:
        return Finding(name, "wrong", "; ".join(wrong), remedy)
    errors = setting.import_errors([_module(each) for each in requirements])
    if errors:
        detail = "; ".join(f"{each}: {why}" for each, why in errors.items())
        return Finding(name, "wrong", detail, remedy)
    return _ok(name, f"{len(requirements)} packages, all import")


def _module(requirement: str) -> str:
    """The name under which a distribution is imported."""
    found = re.match(r"[\w.-]+", requirement)
    assert found is not None
    name = found[0].lower()
    usual = _MODULES.get(name, name.replace("-", "_"))
    known = _distributions()
    if usual.partition(".")[0] in known:
        return usual
    return next((m for m, names in known.items() if name in names), usual)


@lru_cache(maxsize=1)
def _distributions() -> Mapping[str, list[str]]:
    """The modules that are installed, and what each is a part of, in lower case."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what is damaged and has no name
        found = importlib.metadata.packages_distributions()
    public = sorted(module for module in found if not module.startswith("_"))
    return {m: [name.lower() for name in found[m] if name] for m in public}


def check_core(setting: Setting) -> Finding:
    """What the package itself runs on, but torch."""
    requirements = [
        line
        for line in _requirements(setting, "")
        if not line.startswith(("torch>", "torch=", "torchmetrics"))
    ]
    return _check_requirements(setting, "packages", requirements, setting.install())


def check_torch(setting: Setting) -> Finding:
    """Torch, its version and what it was built for; torchmetrics."""
    remedy = setting.pip(
        *_pin(setting, "torch"), *_pin(setting, "torchmetrics"), _index()
    ).rstrip()
    requirements = [
        line
        for line in _requirements(setting, "") or ["torch", "torchmetrics"]
        if line.startswith("torch")
    ]
    finding = _check_requirements(setting, "torch", requirements, remedy)
    if finding.state != "ok":
        return finding
    version = importlib.metadata.version("torch")
    (pin,) = _pin(setting, "torch")
    made = pin.partition("==")[2]
    same = not made or version.partition("+")[0] == made
    note = "" if same else f"; the book's numbers were made with {made}"
    return _ok("torch", version + note)


def _pin(setting: Setting, name: str) -> tuple[str]:
    """The version that the book was made with, as pip takes it."""
    file = setting.root and setting.root / "constraints.txt"
    if file and file.is_file():
        for line in file.read_text(encoding="utf-8").splitlines():
            if line.startswith(f"{name}=="):
                return (line.strip(),)
    return (name,)


def _index() -> str:
    return f"--extra-index-url {_CPU_INDEX}" if sys.platform == "linux" else ""


def _check_extra(setting: Setting, extra: str) -> Finding:
    requirements = _requirements(setting, extra)
    remedy = setting.install(extra)
    return _check_requirements(setting, f"extra {extra}", requirements, remedy)


def check_book(setting: Setting) -> Finding:
    """What executes chapters and builds the site."""
    return _check_extra(setting, "book")


def check_attacks(setting: Setting) -> Finding:
    """What attacks networks."""
    return _check_extra(setting, "attacks")


def check_test(setting: Setting) -> Finding:
    """What tests the package, the chapters and the site."""
    return _check_extra(setting, "test")


_KERNEL = f"""
import json
from jupyter_client.kernelspec import KernelSpecManager, NoSuchKernel
try:
    spec = KernelSpecManager().get_kernel_spec("python3")
    found = [spec.argv[0], spec.resource_dir]
except NoSuchKernel:
    found = None
print("\\n{_MARK}" + json.dumps(found), flush=True)
"""


def check_kernel(setting: Setting) -> Finding:
    """The kernel that Jupyter and papermill start for a chapter."""
    name = "kernel python3"
    python = shlex.quote(setting.python)
    remedy = f"{python} -m ipykernel install --sys-prefix --name python3"
    if errors := setting.import_errors(["ipykernel", "jupyter_client"]):
        lost = ", ".join(errors)
        return Finding(name, "missing", f"{lost}: no import", setting.install("book"))
    done = setting.probe(_KERNEL)
    answers = _answers(done)
    if not answers:
        return Finding(name, "wrong", _why(done), setting.install("book"))
    found = answers[-1]
    if found is None:
        return Finding(name, "missing", "Jupyter knows no such kernel", remedy)
    program, place = found
    started = program if Path(program).is_absolute() else setting.python
    if Path(started).absolute() != Path(setting.python).absolute() and not _same_prefix(
        started, setting.python
    ):
        if os.environ.get("JUPYTER_PATH"):
            remedy = "unset JUPYTER_PATH"
        return Finding(name, "wrong", f"{place} starts {program}, not this one", remedy)
    return _ok(name, f"starts {started}")


def _same_prefix(one: str, other: str) -> bool:
    """Two names of one Python, such as python and python3 of one environment."""
    first, second = Path(one), Path(other)
    return (
        first.is_file()
        and first.parent.absolute() == second.parent.absolute()
        and first.resolve() == second.resolve()
    )


# -------------------------------------------------------------- the book and its data


def check_clone(setting: Setting) -> Finding:
    """The repository, with its chapters."""
    name = "clone of the book"
    if setting.root is None:
        return Finding(
            name,
            "missing",
            f"no folder with notebooks/ and _toc.yml at or above {Path.cwd()}",
            f"git clone {_REPOSITORY}",
        )
    chapters = [p.stem for p in (setting.root / "notebooks").glob("[0-9][0-9]_*.md")]
    executed = setting.root / "book" / "chapters"
    lost = [name for name in chapters if not (executed / f"{name}.ipynb").is_file()]
    if not chapters:
        remedy = _restore(setting, ["notebooks"])
        return Finding(name, "missing", f"the chapters of {setting.root}", remedy)
    if lost:
        remedy = f"make -C {shlex.quote(str(setting.root))} book"
        return Finding(name, "missing", f"{len(lost)} executed chapters", remedy)
    return _ok(name, f"{setting.root}, {len(chapters)} chapters")


def _restore(setting: Setting, paths: list[str]) -> str:
    """The command that brings committed files back, and no others."""
    if setting.root is None:
        return setting.install()
    folder = shlex.quote(str(setting.root))
    if (setting.root / ".git").exists():
        return f"git -C {folder} checkout -- {shlex.join(paths)}"
    return f"git clone {_REPOSITORY}"


def _data_folder(setting: Setting) -> Path | None:
    """The project's data: of the clone, else of the installed package."""
    if setting.root is not None:
        return setting.root / "data"
    from robustbook._store import DataUnavailableError, data_directory

    try:
        return data_directory()
    except DataUnavailableError:
        return None


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def check_checkpoints(setting: Setting) -> Finding:
    """The committed checkpoints, each with its sha256."""
    name = "checkpoints"
    data = _data_folder(setting)
    remedy = _restore(setting, ["data/checkpoints/registry.json"])
    if data is None:
        return Finding(name, "missing", "no folder with the project's data", remedy)
    folder = data / "checkpoints"
    try:
        registry = json.loads((folder / "registry.json").read_text(encoding="utf-8"))
        entries = registry["checkpoints"].values()
        stated = {entry["file"]: entry["sha256"] for entry in entries}
        lost = [file for file in stated if not (folder / file).is_file()]
        if lost:
            remedy = _restore(setting, [f"data/checkpoints/{file}" for file in lost])
            return Finding(name, "missing", _some(lost), remedy)
        bad = [file for file, sum_ in stated.items() if _sha256(folder / file) != sum_]
    except FileNotFoundError:
        return Finding(name, "missing", f"{folder / 'registry.json'}", remedy)
    except PermissionError as error:
        return _closed(name, error, folder)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        return Finding(name, "wrong", f"registry.json: {error}", remedy)
    if bad:
        remedy = _restore(setting, [f"data/checkpoints/{file}" for file in bad])
        return Finding(name, "wrong", f"{_some(bad)}: another sha256", remedy)
    return _ok(name, f"{len(stated)} files, sha256 as registered")


def check_results(setting: Setting) -> Finding:
    """The stored results: readable, and those of the executed chapters."""
    name = "stored results"
    data = _data_folder(setting)
    remedy = _restore(setting, ["data/results", "data/reported"])
    if data is None:
        return Finding(name, "missing", "no folder with the project's data", remedy)
    files = [*data.glob("results/*.json"), *data.glob("reported/*.json")]
    if not (data / "results").is_dir() or not files:
        return Finding(name, "missing", f"{data / 'results'}", remedy)
    broken = []
    for path in files:
        try:
            readable = json.loads(path.read_text(encoding="utf-8"))["schema"] == 1
        except PermissionError as error:
            return _closed(name, error, data)
        except (ValueError, KeyError, TypeError):
            readable = False
        if not readable:
            broken.append(path.relative_to(data).as_posix())
    if broken:
        remedy = _restore(setting, [f"data/{file}" for file in broken])
        return Finding(name, "wrong", f"{_some(broken)}: no stored result", remedy)
    if setting.root is None:
        return _ok(name, f"{len(files)} files")
    if check_checkpoints(setting).state != "ok":
        return _ok(name, f"{len(files)} files, readable")
    sums = _stamped_sums(setting.root)
    if _data_sum(setting.root) in sums or not sums:
        return _ok(name, f"{len(files)} files, sha256 as in the executed chapters")
    changed = _changed(setting.root)
    why = "not those that the chapters were executed with"
    if changed:
        remedy = _restore(setting, changed)
        return Finding(name, "wrong", f"{why}: {_some(changed)}", remedy)
    remedy = f"make -C {shlex.quote(str(setting.root))} book"
    return Finding(name, "wrong", why, remedy)


def _stamped_sums(root: Path) -> set[str]:
    from press.layout import list_chapters
    from press.stamps import read_stamp

    stamps = [read_stamp(chapter) for chapter in list_chapters(root)]
    return {stamp["data_sha256"] for stamp in stamps if stamp}


def _data_sum(root: Path) -> str:
    from press.stamps import data_sha256

    return data_sha256(root)


def _changed(root: Path) -> list[str]:
    """What git says has changed among the data that chapters load."""
    folders = [f"data/{name}" for name in ("checkpoints", "reported", "results")]
    try:
        done = subprocess.run(
            ["git", "-C", str(root), "diff", "--name-only", "HEAD", "--", *folders],
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError:
        return []
    return done.stdout.splitlines()


def _some(names: list[str]) -> str:
    """A few of a list."""
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more


def check_data_variable(setting: Setting) -> Finding:
    """The folder that ROBUSTBOOK_DATA names."""
    name = "ROBUSTBOOK_DATA"
    value = os.environ.get(name, "").strip()
    if not value:
        return _ok(name, "not set: data sets are looked for in the cache")
    folder = _expand(value)
    if folder is None or not folder.is_dir():
        return Finding(name, "wrong", f"{value} is no folder", f"unset {name}")
    return _ok(name, value)


def _expand(value: str) -> Path | None:
    """A folder that a variable names; none if it is that of nobody."""
    try:
        return Path(value).expanduser()
    except RuntimeError:
        return None


_DATA = f"""
import json
from robustbook.datasets import (
    DataUnavailableError, dataset_spec, fetch, list_datasets, list_sentences,
    sentences_spec,
)
from robustbook.datasets import _cifar10
from robustbook.datasets._obtain import data_folder, verify
from robustbook.models import list_public_models, public_model
from robustbook.models._public import _obtain
import pooch

class Missing(Exception):
    pass

def refuse(**options):
    raise Missing

pooch.retrieve = refuse

def state(find):
    try:
        return "ok", find()
    except DataUnavailableError as error:
        found = "missing" if isinstance(error.__cause__, Missing) else "wrong"
        return found, str(error)

def images(name):
    folder = data_folder()
    pictures = folder and folder / name
    if name == "cifar10" and pictures and (pictures / "labels.npy").is_file() \\
            and not (pictures / _cifar10.ARCHIVE).is_file():
        for file, sum_ in _cifar10._PICTURES.items():
            try:
                verify(pictures / file, sum_)
            except FileNotFoundError as error:
                raise DataUnavailableError(str(error)) from Missing()
        return f"{{len(_cifar10._PICTURES)}} files in {{pictures}}"
    files = fetch(name, progress=False)
    return f"{{len(files)}} files in {{files[0].parent}}"

def say(name, state, detail):
    print("\\n{_MARK}" + json.dumps([name, state, detail]), flush=True)

needed = [n for n in list_datasets() if dataset_spec(n).files]
needed += [n for n in list_sentences() if sentences_spec(n).files]
for name in needed:
    say(name, *state(lambda: images(name)))
found = {{
    n: state(lambda: _obtain(public_model(n), None)) for n in list_public_models()
}}
for kind in ("missing", "wrong"):
    names = [n for n, (state_, _) in found.items() if state_ == kind]
    if names:
        say("public models", kind, " ".join(names))
        break
else:
    say("public models", "ok", f"{{len(found)}} checkpoints")
"""


def check_data_sets(setting: Setting) -> Iterator[Finding]:
    """Every data set and public checkpoint, with its sha256; nothing is downloaded."""
    done = setting.probe(_DATA, times=10)  # sums of some gigabytes
    rows = _answers(done)
    command = shlex.quote(str(Path(setting.python).parent / "robustbook"))
    for name, state, detail in rows:
        if state == "ok":
            yield _ok(name, detail)
        elif name == "public models":
            names = detail.split()
            load = f"[load_model(name) for name in {names}]"
            code = f"from robustbook.models import load_model; {load}"
            remedy = f"{shlex.quote(setting.python)} -c {shlex.quote(code)}"
            yield Finding(name, state, _some(names), remedy)
        elif state == "missing":
            yield Finding(
                name,
                state,
                "neither in ROBUSTBOOK_DATA nor in the cache",
                f"{command} data fetch {name}",
            )
        else:
            file, _, why = detail.partition(": expected ")
            yield Finding(
                name,
                state,
                f"{file}: expected {why.partition(';')[0]}",
                f"rm {shlex.quote(file)} && {command} data fetch {name}",
            )
    if done.returncode or not rows:
        yield Finding("data sets", "wrong", _why(done), setting.install("book"))


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "no message"


# ------------------------------------------------------------------------ the machine


def _cannot_write(folder: Path) -> str:
    """Why nothing can be written to a folder, which need not exist; "" if it can."""
    folder = folder.absolute()
    while not os.path.lexists(folder) and folder != folder.parent:
        folder = folder.parent
    if not folder.is_dir():
        return f"{folder} is no folder"
    try:
        with tempfile.TemporaryFile(dir=folder):
            return ""
    except OSError as error:
        return f"{folder}: {error.strerror or error}"


_CACHE = f"""
import json, pooch
print("\\n{_MARK}" + json.dumps(str(pooch.os_cache("robustbook"))), flush=True)
"""


def check_cache(setting: Setting) -> Finding:
    """The caches of downloads and of attacks can be written."""
    name = "cache"
    given = os.environ.get("ROBUSTBOOK_CACHE", "").strip()
    home = 'export XDG_CACHE_HOME="$(mktemp -d)"'
    done = setting.probe(_CACHE)
    answers = _answers(done)
    if not answers:
        return Finding(name, "wrong", _why(done), setting.install())
    downloads = Path(answers[-1])
    attacks = _expand(given) if given else downloads / "experiments"
    why = _cannot_write(attacks) if attacks else f"{given} is nobody's home"
    if why:
        remedy = 'export ROBUSTBOOK_CACHE="$(mktemp -d)"' if given else home
        return Finding(name, "wrong", f"cannot be written: {why}", remedy)
    if why := _cannot_write(downloads):
        return Finding(name, "wrong", f"cannot be written: {why}", home)
    return _ok(name, str(attacks))


def check_output(setting: Setting) -> Finding:
    """Where executed chapters go can be written."""
    name = "output"
    folder = (setting.root or Path.cwd()) / "_build" / "rerun"
    if why := _cannot_write(folder):
        remedy = f"cd ~ && git clone {_REPOSITORY}"
        return Finding(name, "wrong", f"cannot be written: {why}", remedy)
    return _ok(name, str(folder))


def check_programs(setting: Setting) -> Finding:
    """The programs that the Makefile calls."""
    lost = [name for name in ("git", "make") if shutil.which(name) is None]
    if lost:
        return Finding("programs", "missing", ", ".join(lost), _system(*lost))
    return _ok("programs", "git, make")


def _system(*packages: str) -> str:
    """A command of the system's own package manager."""
    words = " ".join(packages)
    if sys.platform == "darwin":
        return f"brew install {words}"
    return f"sudo apt-get install --yes {words}"


def check_chromium(setting: Setting) -> Finding:
    """The browser of the tests of the site; ROBUSTBOOK_CHROMIUM names another."""
    name = "Chromium"
    given = os.environ.get("ROBUSTBOOK_CHROMIUM")
    program = given or next(filter(None, map(shutil.which, _CHROMIUM)), None)
    if program is None:
        return Finding(
            name, "missing", "the browser tests would skip", _system("chromium")
        )
    try:
        done = subprocess.run(
            [program, "--version"],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        failed = done.returncode and (_last_line(done.stderr))
    except (OSError, subprocess.TimeoutExpired) as error:
        failed = str(error)
    if failed:
        remedy = "unset ROBUSTBOOK_CHROMIUM" if given else _system("chromium")
        return Finding(name, "wrong", f"{program}: {failed}", remedy)
    return _ok(name, f"{_last_line(done.stdout)}, {program}")


_CUDA = f"""
import json, torch
found = torch.cuda.is_available()
answer = [torch.cuda.get_device_name() if found else None, torch.version.cuda]
print("\\n{_MARK}" + json.dumps(answer), flush=True)
"""


def check_cuda(setting: Setting) -> Finding:
    """A GPU; nothing in the book needs one."""
    name = "GPU"
    driver = shutil.which("nvidia-smi") is not None
    if setting.import_errors(["torch"]):
        return _ok(name, "not looked for, without torch; none is needed")
    done = setting.probe(_CUDA)
    answers = _answers(done)
    if done.returncode == _HUNG and not answers:
        return Finding(name, "wrong", _why(done), 'export CUDA_VISIBLE_DEVICES=""')
    device, built = answers[-1] if answers else (None, None)
    if device:
        return _ok(name, f"{device}, CUDA {built}")
    if driver and not built:
        return _ok(name, "not used: torch is its CPU build; make book TORCH=cuda")
    return _ok(name, "none; none is needed")


def _total_memory() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None


def check_memory(setting: Setting) -> Finding:
    """The memory of the machine."""
    name = "memory"
    total = _total_memory()
    if total is None:
        return _ok(name, "not known on this system")
    found = f"{total / 1024**3:.1f} GiB"
    if total < _MEMORY:
        return Finding(
            name,
            "wrong",
            f"{found}, less than {_MEMORY / 1024**3:.0f}",
            f"{shlex.quote(setting.python)} -m webbrowser {_binder()}",
        )
    return _ok(name, found)


def _binder() -> str:
    """Where chapters run on somebody else's machine."""
    name = _REPOSITORY.removeprefix("https://github.com/")
    return f"https://mybinder.org/v2/gh/{name}/main"


def check_disk(setting: Setting) -> Finding:
    """The free disk space."""
    name = "disk"
    folder = setting.root or Path.cwd()
    free = shutil.disk_usage(folder).free
    installed = not setting.import_errors(["torch"])
    needed = _DISK if installed else _DISK_TO_INSTALL
    found = f"{free / 1024**3:.1f} GiB free"
    if free < needed:
        return Finding(
            name,
            "wrong",
            f"{found}, less than {needed / 1024**3:.1f}",
            f"{shlex.quote(setting.python)} -m pip cache purge",
        )
    return _ok(name, found)


def check_cores(setting: Setting) -> Finding:
    """The cores of the processor; one is slow, and enough."""
    cores = os.cpu_count() or 1
    slow = ": chapters take longer than on the pages" if cores == 1 else ""
    return _ok("cores", f"{cores}{slow}")


def check_network(setting: Setting) -> Finding:
    """Nothing is asked of the network here."""
    return _ok("network", "not tried; only installing and fetching data use it")


def check_run(setting: Setting) -> Finding:
    """Run a chapter in profile quick, cut off from the network."""
    name = f"run chapter {_TRIAL}"
    nowhere = "http://127.0.0.1:9"
    proxies = ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
    env = {**os.environ, **dict.fromkeys(proxies, nowhere)}
    env.pop("ROBUSTBOOK_DATA", None)
    if setting.root is None:
        return Finding(name, "missing", "no chapter here", f"git clone {_REPOSITORY}")
    words = ["-m", "press", "run", _TRIAL, "--profile", "quick"]
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        output = str(Path(folder, "run.ipynb"))
        done = _run(
            [setting.python, *words, "--device", "cpu", "--output", output],
            15 * _PATIENCE,
            cwd=setting.root,
            env=env,
        )
        seconds = time.perf_counter() - started
    if done.returncode:
        command = [setting.python, *words]
        folder = shlex.quote(str(setting.root))
        return Finding(
            name,
            "wrong",
            _last_line(done.stderr),
            f"cd {folder} && {shlex.join(command)}",
        )
    timed = _timed(setting.root)
    there = f"; {timed:.0f} s on the machine of the workshop guide" if timed else ""
    return _ok(name, f"{seconds:.0f} s{there}")


def _timed(root: Path) -> float | None:
    """The seconds that the chapter took where the guide's timings were made."""
    file = root / "book" / "chapters" / "timings.json"
    try:
        timings = json.loads(file.read_text(encoding="utf-8"))
        for name, profiles in timings.items():
            if name.startswith(f"{_TRIAL}_"):
                quick = profiles["quick"]
                return float(quick.get("core_seconds", quick["seconds"]))
    except (OSError, ValueError, KeyError, TypeError):
        pass
    return None


# ---------------------------------------------------------------------------- all


Check = Any  # Callable[[Setting], Finding | Iterator[Finding]]

_CHECKS: tuple[tuple[Check, tuple[str, ...]], ...] = (
    (check_python, tuple(LEVELS)),
    (check_pyproject, tuple(LEVELS)),
    (check_package, tuple(LEVELS)),
    (check_torch, tuple(LEVELS)),
    (check_core, tuple(LEVELS)),
    (check_book, _RUNNING),
    (check_attacks, _RUNNING),
    (check_test, ("developing",)),
    (check_kernel, _RUNNING),
    (check_clone, _RUNNING),
    (check_checkpoints, _RUNNING),
    (check_results, _RUNNING),
    (check_data_variable, ("full",)),
    (check_data_sets, ("full",)),
    (check_cache, _RUNNING),
    (check_output, _RUNNING),
    (check_programs, ("developing",)),
    (check_chromium, ("developing",)),
    (check_memory, _RUNNING),
    (check_disk, _RUNNING),
    (check_cores, _RUNNING),
    (check_cuda, ("full", "developing")),
    (check_network, _RUNNING),
)


# What compares with pyproject.toml, and says nothing where that cannot be read.
_STATED = (check_torch, check_core, check_book, check_attacks, check_test)

# What only a Python with the package can answer.
_INSTALLED = (
    check_torch,
    check_core,
    check_book,
    check_attacks,
    check_test,
    check_kernel,
    check_data_sets,
    check_cache,
    check_cuda,
    check_run,
)


def diagnose(setting: Setting, level: str, *, run: bool = False) -> Iterator[Finding]:
    """Yield what each check of a level finds, in the order in which to mend it.

    Parameters
    ----------
    setting : Setting
        What is examined.
    level : str
        One of :data:`LEVELS`.
    run : bool, default False
        Run a chapter too.

    Yields
    ------
    Finding
        A check that cannot be made counts as wrong.

    Raises
    ------
    ValueError
        If there is no such level.
    """
    if level not in LEVELS:
        raise ValueError(f"level: expected one of {', '.join(LEVELS)}; got {level!r}")
    checks = [check for check, levels in _CHECKS if level in levels]
    installed = readable = True
    for check in [*checks, *([check_run] if run else [])]:
        if not installed and check in _INSTALLED:
            continue  # it comes with the package, by the same command
        if not readable and check in _STATED:
            continue
        try:
            found = check(setting)
            findings = [found] if isinstance(found, Finding) else list(found)
        except Exception as error:  # whatever is broken is what is looked for
            name = check.__name__.removeprefix("check_")
            name = {"core": "packages", "package": "robustbook"}.get(name, name)
            why = f"{type(error).__name__}: {error}"
            findings = [Finding(name, "wrong", why, setting.install("book"))]
        if check is check_python:
            installed = findings[0].state == "ok"
        elif check is check_pyproject:
            readable = all(found.state == "ok" for found in findings)
        elif check is check_package:
            installed = installed and findings[0].state != "missing"
        yield from findings


def render(finding: Finding) -> str:
    """Return a finding as a line, with its remedy on a second one."""
    line = f"{finding.state:<8} {finding.name:<18} {finding.detail}"
    return f"{line}\n{'':8} -> {finding.remedy}" if finding.remedy else line


def render_json(findings: Iterable[Finding], level: str) -> str:
    """Return all findings as one JSON object."""
    found = list(findings)
    answer = {
        "for": level,
        "met": all(finding.state == "ok" for finding in found),
        "checks": [asdict(finding) for finding in found],
    }
    return json.dumps(answer, indent=1)


def report(setting: Setting, level: str, *, run: bool, as_json: bool) -> int:
    """Print what the checks find; return the exit status, 0 if the level is met."""
    if as_json:
        found = list(diagnose(setting, level, run=run))
        print(render_json(found, level))
        return int(any(finding.state != "ok" for finding in found))
    faults = 0
    for finding in diagnose(setting, level, run=run):
        print(render(finding), flush=True)
        faults += finding.state != "ok"
    if faults:
        what = "one thing" if faults == 1 else f"{faults} things"
        print(f"\nfor {level}: {what} to mend, from the top; the command follows ->")
    else:
        print(f"\nready for {level}: {LEVELS[level]}")
    return int(faults > 0)


def main(words: list[str] | None = None) -> int:
    """Run the check without the command line's own library."""
    parser = argparse.ArgumentParser(
        prog="doctor", description="Say what is missing on this machine."
    )
    parser.add_argument("--for", dest="level", choices=LEVELS, default="workshop")
    parser.add_argument("--run", action="store_true", help="run a chapter too")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.add_argument("--root", type=Path, help="folder of the book")
    given = parser.parse_args(words)
    return report(
        Setting(find_clone(given.root)), given.level, run=given.run, as_json=given.json
    )


def find_clone(named: Path | None) -> Path | None:
    """Return the clone that is named, else the nearest one, else none."""
    from press.layout import BookError, book_root

    try:
        return book_root(named)
    except BookError:
        if named is not None:
            raise
        return None


if __name__ == "__main__":
    sys.exit(main())
