"""A book of a few pages with the configuration of this one, to be built truly."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

SHARED = ("_config.yml", "CITATION.cff", "constraints.txt", "book/references.bib")
CONTENTS = """\
format: jb-book
root: book/intro
parts:
  - caption: Part
    numbered: 2
    chapters:
"""


def small_book(folder, chapters, others=None):
    """Write a book of chapters, by name, of other pages, by path, and what all have."""
    (folder / "notebooks").mkdir()
    (folder / "book" / "chapters").mkdir(parents=True)
    (folder / "book" / "_static").symlink_to(ROOT / "book" / "_static")
    for name in SHARED:
        shutil.copy(ROOT / name, folder / name)
    (folder / "book" / "intro.md").write_text("# Preface\n\nTo begin with.\n")
    (folder / "book" / "bibliography.md").write_text(
        "# Bibliography\n\n```{bibliography}\n:all:\n```\n"
    )
    pages = [f"book/chapters/{name}" for name in chapters]
    for path, text in (others or {}).items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")
        pages.append(path.removesuffix(".md"))
    pages += ["book/bibliography", "book/status"]
    lines = [f"      - file: {page}\n" for page in pages]
    (folder / "_toc.yml").write_text(CONTENTS + "".join(lines))
    for name, text in chapters.items():
        (folder / "notebooks" / f"{name}.md").write_text(text, encoding="utf-8")


def press(folder, *words, status=0):
    """Run a command of the press that the book has; return what it says.

    With None, whatever its exit status is.
    """
    done = subprocess.run(
        [sys.executable, "-m", "press", *words],
        cwd=folder,
        env=os.environ | {"NO_COLOR": "1", "PYTHONPATH": str(folder / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert status in (None, done.returncode), done.stdout + done.stderr
    return done.stdout + done.stderr
