"""What is missing on this machine, and how to get it: ``make doctor``.

It needs the standard library only: it runs where nothing could be installed.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TRIAL = "02"

# What these need in turn, `pip check` knows.
REMAKE = "rm -rf .venv; make env"

PACKAGES = (
    *("robustbook", "torch", "torchvision", "numpy", "scipy", "matplotlib"),
    *("foolbox", "pyautoattack", "robustbench", "jupytext", "papermill", "ipykernel"),
    *("jupyter-book", "Sphinx", "myst-nb"),
)
PROGRAMS = {
    "git": "contributing",
    "make": "the commands of README",
    "chromium": "the PDF and the tests of the site",
}

# A name, what was found, and what mends it; nothing where all is well.
Finding = tuple[str, str, str]


def show_versions() -> dict[str, str]:
    """Return the system and the version of each package, empty if missing."""
    system = f"{platform.platform()}, {os.cpu_count()} cores"
    python = f"{platform.python_version()}, {sys.executable}"
    versions = {"system": system, "python": python}
    for name in PACKAGES:
        try:
            versions[name] = version(name) or ""
        except (PackageNotFoundError, KeyError):  # the second: damaged metadata
            versions[name] = ""
    return versions


def _check_packages(versions: dict[str, str]) -> Iterator[Finding]:
    if platform.system() == "Windows":
        why = "no make, and no .venv/bin, which all commands of README use"
        yield "Windows", why, "wsl --install, then clone and make env in Ubuntu"
    python = sys.version_info[:2]
    mend = (
        ""
        if (3, 11) <= python <= (3, 13)
        else "rm -rf .venv; make env PYTHON=python3.12"
    )
    yield "Python", f"{platform.python_version()}; 3.11, 3.12 and 3.13 will do", mend
    missing = [name for name in PACKAGES if not versions[name]]
    if missing:
        yield "packages", f"missing: {', '.join(missing)}", REMAKE
        return
    yield "packages", f"{len(PACKAGES)} installed", ""
    done = _run("-m", "pip", "--disable-pip-version-check", "check")
    lines = (done.stdout or done.stderr).strip().splitlines()
    yield "pip check", "; ".join(lines[:5]), REMAKE if done.returncode else ""


def _check_data() -> Iterator[Finding]:
    data = os.environ.get("ROBUSTBOOK_DATA", "").strip()
    lost = data and not Path(data).is_dir()
    said = f"ROBUSTBOOK_DATA={data}, not a folder" if lost else data or "in the cache"
    yield "data sets", said, "unset ROBUSTBOOK_DATA" if lost else ""
    yield "cache", os.environ.get("ROBUSTBOOK_CACHE", "") or "the user's", ""


def _check_run() -> Finding:
    """Run a chapter in its quick profile."""
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        output = str(Path(folder, "run.ipynb"))
        words = ("press", "run", TRIAL, "--profile", "quick", "--device", "cpu")
        done = _run("-m", *words, "--output", output)
    if not done.returncode:
        return f"chapter {TRIAL}", f"{time.perf_counter() - started:.0f} s in quick", ""
    why = (done.stderr.strip() or f"status {done.returncode}").splitlines()[-1]
    return f"chapter {TRIAL}", why, f"make rerun CHAPTER={TRIAL}"


def _run(*words: str) -> subprocess.CompletedProcess[str]:
    """Run Python, which can neither ask nor hang."""
    command = [sys.executable, *words]
    try:
        return subprocess.run(
            command, cwd=ROOT, input="", capture_output=True, text=True, timeout=900
        )
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 124, "", "no answer in 900 s")


def diagnose(*, run: bool = True) -> Iterator[Finding]:
    """Yield what was found, in the order in which to mend it."""
    versions = show_versions()
    yield from _check_packages(versions)
    yield from _check_data()
    for name, use in PROGRAMS.items():
        program = shutil.which(os.environ.get(f"ROBUSTBOOK_{name.upper()}", name))
        yield name, program or f"none; it is for {use}", ""
    if run and all(versions.values()):
        yield _check_run()


def main(words: list[str] | None = None) -> int:
    """Print what was found; return how the program ends, 0 if nothing needs mending."""
    parser = argparse.ArgumentParser(description="Say what this machine lacks.")
    parser.add_argument("--no-run", action="store_true", help="run no chapter")
    run = not parser.parse_args(words).no_run
    for name, found in show_versions().items():
        print(f"{name:>14}: {found or 'missing'}")
    faults = 0
    for name, found, mend in diagnose(run=run):
        faults += bool(mend)
        print(f"{'to mend' if mend else 'ok':<8}{name:<18}{found}", flush=True)
        if mend:
            print(f"{'':8}-> {mend}")
    print(f"\n{faults} to mend; start at the top" if faults else "\nready")
    return int(faults > 0)


if __name__ == "__main__":
    sys.exit(main())
