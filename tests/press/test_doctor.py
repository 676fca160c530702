"""The doctor names what is missing, and the command that gets it."""

import subprocess
import sys
from types import SimpleNamespace

import pytest

from press import doctor


@pytest.fixture
def findings(monkeypatch):
    """What it finds, by name, if a program ends with a status and an output."""

    def findings(status=0, output="", **options):
        done = SimpleNamespace(returncode=status, stdout=output)
        with monkeypatch.context() as patch:
            patch.setattr(subprocess, "run", lambda *_, **__: done)
            return {name: row for name, *row in doctor.diagnose(**options)}

    return findings


def test_it_runs_where_nothing_is_installed():
    # -S: no site-packages. -I: no PYTHONPATH, nor the folder of the file.
    done = subprocess.run(
        [sys.executable, "-I", "-S", doctor.__file__],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (1, "")
    assert "missing: robustbook, torch, " in done.stdout
    assert f"        -> {doctor.REINSTALL}\n" in done.stdout
    assert done.stdout.endswith("1 to mend; start at the top\n")


@pytest.mark.slow
def test_a_good_set_up_is_ready(capsys, make_book, monkeypatch):
    """The chapter that it runs is a small one here."""
    place = make_book().root / "src" / "press" / "doctor.py"
    monkeypatch.setattr(doctor, "__file__", str(place))
    monkeypatch.setattr(doctor, "TRIAL", "01")
    status = doctor.main([])
    output = capsys.readouterr().out
    assert (status, output.endswith("\nready\n")) == (0, True), output
    assert (make_book().root / "_build/rerun/01_small_quick.ipynb").is_file()


def test_what_fails_is_named_with_its_remedy(findings, monkeypatch):
    monkeypatch.setattr(doctor.platform, "system", lambda: "Windows")
    rows = findings(1, "Look:\ntorch needs numpy<2.\n")
    assert rows["pip check"] == ["torch needs numpy<2.", doctor.REINSTALL]
    assert rows["chapter 02 in quick"][1] == "make rerun CHAPTER=02"
    assert "wsl --install" in rows["Windows"][1]


@pytest.mark.parametrize(
    ("python", "fits"),
    [((3, 9), False), ((3, 11), True), ((3, 13), True), ((3, 20), False)],
)
def test_a_python_that_the_book_cannot_use_is_replaced(
    monkeypatch, findings, python, fits
):
    here = SimpleNamespace(version_info=(*python, 1), executable=sys.executable)
    monkeypatch.setattr(doctor, "sys", here)
    assert (findings()["Python"][1] == "") == fits
