"""The commands on chapters, as typed."""

import contextlib
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from press import commands


def command(folder, *words):
    with contextlib.chdir(folder):
        return CliRunner().invoke(commands.app, words)


@pytest.mark.slow
def test_publish_check_and_stale(make_book):
    chapter = make_book()
    root = chapter.root
    assert "stale" in command(root, "check").stdout
    assert command(root / "notebooks", "publish", "--stale").exit_code == 0
    checked = command(root, "check")
    assert checked.stdout == "1 chapters: all in step, nothing stale\n"
    assert checked.exit_code == 0
    again = command(root, "publish", "--stale")
    assert again.stdout == "no chapter has to be executed\n"

    chapter.source.write_text(chapter.source.read_text() + "\nMore.\n")
    checked = command(root, "check")
    assert checked.exit_code == 1
    assert checked.stdout.splitlines() == [
        "notebooks/01_small.ipynb: made from another text; make book",
        "book/chapters/01_small.ipynb: its text is not the present one; make book",
    ]
    assert command(root, "publish", "--stale").stdout == (
        "01_small: new text, the same outputs\nno chapter has to be executed\n"
    )
    assert "More." in chapter.published.read_text()


@pytest.mark.slow
def test_run_with_parameters(make_book, tmp_path):
    chapter = make_book("print(profile, seed + 1)")
    output = tmp_path / "mine.ipynb"
    done = command(
        chapter.root,
        *("run", "1", "-p", "seed=41", "--profile", "full"),
        *("--output", str(output)),
    )
    assert done.stdout == f"{output}\n"
    assert "full 42" in output.read_text()


@pytest.mark.slow
def test_run_says_what_failed(make_book):
    done = command(make_book("1 / 0").root, "run", "01")
    assert done.exit_code == 1
    assert done.stderr.startswith("press: 01_small failed in the cell at ")
    assert "Traceback (most recent call last)\nCell" not in done.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["run", "7"], "no chapter '7'; this book has 01_small"),
        (["run", "1", "-p", "seed"], "--parameter seed: expected NAME=VALUE"),
        (
            ["run", "1", "--output", "notebooks"],
            "notebooks: a folder; name a file, such as notebooks/run.ipynb",
        ),
        (
            ["run", "1", "--output", "intro.md/run.ipynb"],
            "intro.md/run.ipynb: cannot be written: File exists",
        ),
    ],
)
def test_mistakes_are_one_line(make_book, words, message):
    done = command(make_book("1 / 0").root, *words)
    assert done.exit_code == 2
    assert done.stderr == f"press: {message}\n"


def test_no_book(tmp_path):
    """As a program, once."""
    done = subprocess.run(
        [sys.executable, "-m", "press", "check"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.startswith("press: no book at or above ")
