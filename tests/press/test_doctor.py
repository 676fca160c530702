"""The doctor names what is missing, and the command that gets it."""

import subprocess
import sys
from types import SimpleNamespace

import pytest

from press import doctor


def findings(run=False):
    return {name: (found, mend) for name, found, mend in doctor.diagnose(run=run)}


def test_it_runs_where_nothing_is_installed():
    # -S: no site-packages. -I: no PYTHONPATH, nor the folder of the file.
    done = subprocess.run(
        [sys.executable, "-I", "-S", doctor.__file__],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (1, "")
    assert "         torch: missing\n" in done.stdout
    assert "to mend packages          missing: robustbook, torch, " in done.stdout
    assert "        -> rm -rf .venv; make env\n" in done.stdout
    assert done.stdout.endswith("1 to mend; start at the top\n")


def test_versions_are_those_of_this_python():
    versions = doctor.show_versions()
    assert versions["python"].endswith(sys.executable)
    assert all(versions[name][0].isdigit() for name in doctor.PACKAGES)


@pytest.fixture
def no_conflict(monkeypatch):
    """Pip, which takes seconds, finds none."""
    monkeypatch.setattr(doctor, "_run", lambda *words: (0, "No conflict."))


@pytest.mark.usefixtures("no_conflict")
def test_a_good_set_up_is_ready(capsys):
    assert doctor.main([]) == 0
    output = capsys.readouterr().out
    assert "chapter 02" in output
    assert output.endswith("\nready\n")


@pytest.mark.usefixtures("no_conflict")
def test_the_remedy_on_windows_is_wsl(monkeypatch):
    monkeypatch.setattr(doctor.platform, "system", lambda: "Windows")
    assert "wsl --install" in findings()["Windows"][1]


def test_packages_that_do_not_fit_are_named(monkeypatch):
    why = "torch 2.0 has requirement numpy<2, but you have numpy 2.4.6."
    monkeypatch.setattr(doctor, "_run", lambda *words: (1, why))
    assert findings()["pip check"] == (why, "rm -rf .venv; make env")


@pytest.mark.usefixtures("no_conflict")
@pytest.mark.parametrize(
    ("python", "mend"),
    [((3, 9), True), ((3, 11), False), ((3, 13), False), ((3, 20), True)],
)
def test_a_python_that_the_book_cannot_use_is_replaced(monkeypatch, python, mend):
    here = SimpleNamespace(version_info=(*python, 1), executable=sys.executable)
    monkeypatch.setattr(doctor, "sys", here)
    assert findings()["Python"][1] == (
        "rm -rf .venv; make env PYTHON=python3.12" if mend else ""
    )


@pytest.mark.usefixtures("no_conflict")
def test_a_folder_of_data_that_is_none(monkeypatch):
    monkeypatch.setenv("ROBUSTBOOK_DATA", "no/such/folder")
    assert findings()["data sets"] == (
        "ROBUSTBOOK_DATA=no/such/folder, not a folder",
        "unset ROBUSTBOOK_DATA",
    )


@pytest.mark.slow
def test_a_chapter_that_does_not_run(monkeypatch):
    monkeypatch.setattr(doctor, "TRIAL", "99")
    why, mend = findings(run=True)["chapter 99"]
    assert why.startswith("press: no chapter '99'")
    assert mend == "make rerun CHAPTER=99"


def test_a_program_that_hangs_is_given_up(monkeypatch):
    def hang(*_, **__):
        raise subprocess.TimeoutExpired("python", 900)

    monkeypatch.setattr(doctor.subprocess, "run", hang)
    assert findings()["pip check"] == ("no answer in 900 s", "rm -rf .venv; make env")
