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
    assert len(checked.stdout.splitlines()) == 2
    assert "the same outputs" in command(root, "publish", "--stale").stdout
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
    done = command(chapter.root, "run", "01", "-p", "seed=none")
    assert done.exit_code == 1
    assert done.stderr.startswith("press: 01_small failed in the cell at ")


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        ("7", "this book has 01_small"),
        ("1 -p seed", "expected NAME=VALUE"),
        ("1 --output notebooks", "name a file"),
        ("1 --output intro.md/run.ipynb", "cannot be written"),
    ],
)
def test_mistakes_are_one_line(make_book, words, remedy):
    done = command(make_book("1 / 0").root, "run", *words.split())
    assert done.exit_code == 2
    assert done.stderr.startswith("press: ")
    assert remedy in done.stderr
    assert len(done.stderr.splitlines()) == 1


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
