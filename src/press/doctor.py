"""What is missing on this machine, and how to get it: ``make doctor``.

It needs the standard library only, and runs where nothing could be installed.
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
REMAKE = "rm -rf .venv; make env"

# `pip check` knows what these need in turn.
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

# A name, a finding, and the command that mends it; empty where all is well.
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


def _run(*words: str) -> tuple[int, str]:
    """Run Python, which can neither ask nor hang; return its status and its output."""
    try:
        done = subprocess.run(
            [sys.executable, *words],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=900,
        )
    except subprocess.TimeoutExpired:
        return 124, "no answer in 900 s"
    return done.returncode, done.stdout.strip()


def diagnose(*, run: bool = True) -> Iterator[Finding]:
    """Yield the findings in the order in which to mend them."""
    if platform.system() == "Windows":
        why = "no make, and no .venv/bin, which all commands of README use"
        yield "Windows", why, "wsl --install, then clone and make env in Ubuntu"
    fits = (3, 11) <= sys.version_info[:2] <= (3, 13)
    mend = "" if fits else "rm -rf .venv; make env PYTHON=python3.12"
    yield "Python", f"{platform.python_version()}; 3.11, 3.12 and 3.13 will do", mend
    missing = [name for name, known in show_versions().items() if not known]
    if missing:
        yield "packages", f"missing: {', '.join(missing)}", REMAKE
    else:
        yield "packages", f"{len(PACKAGES)} installed", ""
        status, output = _run("-m", "pip", "--disable-pip-version-check", "check")
        found = "; ".join(output.splitlines()[:5])
        yield "pip check", found, REMAKE if status else ""
    data = os.environ.get("ROBUSTBOOK_DATA", "").strip()
    if data and not Path(data).is_dir():
        found = f"ROBUSTBOOK_DATA={data}, not a folder"
        yield "data sets", found, "unset ROBUSTBOOK_DATA"
    else:
        yield "data sets", data or "in the cache", ""
    yield "cache", os.environ.get("ROBUSTBOOK_CACHE", "") or "the user's", ""
    for name, use in PROGRAMS.items():
        program = shutil.which(os.environ.get(f"ROBUSTBOOK_{name.upper()}", name))
        yield name, program or f"none; it is for {use}", ""
    if run and not missing:
        yield _run_chapter()


def _run_chapter() -> Finding:
    """Run a chapter in its quick profile."""
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        words = ("press", "run", TRIAL, "--profile", "quick", "--device", "cpu")
        status, output = _run("-m", *words, "--output", str(Path(folder, "run.ipynb")))
    if status:
        why = (output or f"status {status}").splitlines()[-1]
        return f"chapter {TRIAL}", why, f"make rerun CHAPTER={TRIAL}"
    return f"chapter {TRIAL}", f"{time.perf_counter() - started:.0f} s in quick", ""


def main(words: list[str] | None = None) -> int:
    """Print the findings; return the exit status, 0 if nothing needs mending."""
    parser = argparse.ArgumentParser(description="Say what this machine lacks.")
    parser.add_argument("--no-run", action="store_true", help="run no chapter")
    run = not parser.parse_args(words).no_run
    for name, known in show_versions().items():
        print(f"{name:>14}: {known or 'missing'}")
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
