"""Name the programs and packages that this machine lacks: ``make doctor``.

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
from importlib.metadata import distributions
from pathlib import Path

TRIAL = "02"
REINSTALL = "rm -rf .venv; make env"
# `pip check` knows what these need in turn.
PACKAGES = ("robustbook", "torch", "jupytext", "papermill", "jupyter-book")
PROGRAMS = {
    "git": "contributing",
    "make": "the commands of README",
    "chromium": "the PDF and the tests of the site",
}

# A name, a finding, and the command that mends it; empty where all is well.
Finding = tuple[str, str, str]


def run_python(name: str, remedy: str, *words: str) -> Finding:
    """Run Python, which cannot ask anything; say what failed, or how long it took."""
    started = time.perf_counter()
    result = subprocess.run(
        [sys.executable, "-m", *words],
        cwd=Path(__file__).resolve().parents[2],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if result.returncode:
        return name, result.stdout.strip().rpartition("\n")[2], remedy
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
    installed = {each.name for each in distributions() if each.metadata}
    missing = ", ".join(name for name in PACKAGES if name not in installed)
    if missing:
        yield "packages", f"missing: {missing}", REINSTALL
    else:
        pip = ("pip", "--disable-pip-version-check", "check")
        yield run_python("pip check", REINSTALL, *pip)
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
