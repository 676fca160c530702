"""What is missing on this machine, and how to get it: ``make doctor``.

It needs the standard library only, and runs where nothing could be installed.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

TRIAL = "02"
REINSTALL = "rm -rf .venv; make env"
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


def installed_version(name: str) -> str | None:
    """Return the version of a package, None if it is missing."""
    try:
        return version(name)
    except (PackageNotFoundError, KeyError):  # the second: damaged metadata
        return None


def run_python(name: str, remedy: str, *words: str) -> Finding:
    """Run Python, which can neither ask nor hang; say what failed, or the time."""
    started = time.perf_counter()
    try:
        done = subprocess.run(
            [sys.executable, "-m", *words],
            cwd=Path(__file__).resolve().parents[2],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=900,
        )
    except subprocess.TimeoutExpired:
        return name, "no answer in 900 s", remedy
    if done.returncode:
        return name, done.stdout.strip().rpartition("\n")[2], remedy
    return name, f"{time.perf_counter() - started:.0f} s", ""


def diagnose(*, run: bool = True) -> Iterator[Finding]:
    """Yield the findings in the order in which to mend them."""
    yield "system", f"{platform.platform()}, {os.cpu_count()} cores", ""
    if platform.system() == "Windows":
        why = "no make, and no .venv/bin, which all commands of README use"
        yield "Windows", why, "wsl --install, then clone and make env in Ubuntu"
    fits = (3, 11) <= sys.version_info[:2] <= (3, 13)
    python = f"{platform.python_version()}, {sys.executable}; 3.11 to 3.13 will do"
    yield "Python", python, "" if fits else f"{REINSTALL} PYTHON=python3.12"
    versions = {name: installed_version(name) for name in PACKAGES}
    missing = ", ".join(name for name, known in versions.items() if not known)
    if missing:
        yield "packages", f"missing: {missing}", REINSTALL
    else:
        yield (
            "packages",
            ", ".join(f"{name} {known}" for name, known in versions.items()),
            "",
        )
        pip = ("pip", "--disable-pip-version-check", "check")
        yield run_python("pip check", REINSTALL, *pip)
    data = os.environ.get("ROBUSTBOOK_DATA", "").strip()
    lost = data and not Path(data).is_dir()
    where = f"{data}, not a folder" if lost else data or "in the cache"
    yield "data sets", where, "unset ROBUSTBOOK_DATA" if lost else ""
    for name, use in PROGRAMS.items():
        program = shutil.which(os.environ.get(f"ROBUSTBOOK_{name.upper()}", name))
        yield name, program or f"none; it is for {use}", ""
    if run and not missing:
        remedy = f"make rerun CHAPTER={TRIAL}"
        words = ("press", "run", TRIAL, "--profile", "quick", "--device", "cpu")
        yield run_python(f"chapter {TRIAL} in quick", remedy, *words)


def main(words: list[str]) -> int:
    """Print the findings; return the exit status, 0 if nothing needs mending."""
    faults = 0
    for name, finding, mend in diagnose(run="--no-run" not in words):
        faults += bool(mend)
        print(f"{'to mend' if mend else 'ok':<8}{name:<20}{finding}", flush=True)
        if mend:
            print(f"{'':8}-> {mend}")
    print(f"\n{faults} to mend; start at the top" if faults else "\nready")
    return int(faults > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
