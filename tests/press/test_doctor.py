"""The doctor names what is missing, and the command that gets it."""

import subprocess
import sys
from types import SimpleNamespace

import pytest

from press import doctor


def test_it_runs_where_nothing_is_installed():
    # -S: no site-packages. -I: no PYTHONPATH, nor the folder of the file.
    command = [sys.executable, "-I", "-S", doctor.__file__]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "")
    assert "missing: robustbook, torch, " in done.stdout
    assert doctor.REINSTALL in done.stdout


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


def test_what_fails_is_named_with_its_remedy(monkeypatch):
    failed = SimpleNamespace(returncode=1, stdout="Look:\ntorch needs numpy<2.\n")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: failed)
    monkeypatch.setattr(doctor.platform, "system", lambda: "Windows")
    monkeypatch.setenv("ROBUSTBOOK_DATA", "no/such/folder")
    rows = {name: row for name, *row in doctor.diagnose()}
    assert rows["pip check"] == ["torch needs numpy<2.", doctor.REINSTALL]
    assert rows["chapter 02 in quick"][1] == "make rerun CHAPTER=02"
    assert rows["data sets"][1] == "unset ROBUSTBOOK_DATA"
    assert "wsl --install" in rows["Windows"][1]


@pytest.mark.parametrize(
    ("python", "fits"),
    [((3, 9), False), ((3, 11), True), ((3, 13), True), ((3, 20), False)],
)
def test_a_python_that_does_not_fit_or_a_program_that_hangs(monkeypatch, python, fits):
    def hang(*_, **__):
        raise subprocess.TimeoutExpired("python", 900)

    monkeypatch.setattr(subprocess, "run", hang)
    here = SimpleNamespace(version_info=(*python, 1), executable=sys.executable)
    monkeypatch.setattr(doctor, "sys", here)
    rows = {name: row for name, *row in doctor.diagnose()}
    assert (rows["Python"][1] == "") == fits
    assert rows["pip check"] == ["no answer in 900 s", doctor.REINSTALL]
