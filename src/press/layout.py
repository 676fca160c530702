"""Paths of the book and of a chapter's files, and what is said of faults."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

# Also what a cell id may hold, since ids start with the chapter's name.
_NAME = re.compile(r"\d\d_[a-z0-9_]{1,50}")


class BookError(Exception):
    """A mistake of the user, or something missing on the machine."""

    #: The exit status, as for every misuse of a command.
    status = 2


@dataclass(frozen=True)
class Problem:
    """A fault of the book, its place, and how to mend it."""

    place: str
    fault: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.place}: {self.fault}; {self.remedy}"


@dataclass(frozen=True)
class Chapter:
    """One chapter and where its three forms are."""

    root: Path
    #: For example ``02_a_first_measurement``.
    name: str

    @property
    def number(self) -> int:
        """For example 2."""
        return int(self.name[:2])

    @property
    def is_audit(self) -> bool:
        """Whether it judges the source papers, where other chapters teach."""
        return "_audit_" in self.name

    @property
    def source(self) -> Path:
        """The MyST text notebook, the only form that is edited."""
        return self.root / "notebooks" / f"{self.name}.md"

    @property
    def pair(self) -> Path:
        """The same as a Jupyter notebook without outputs; generated."""
        return self.root / "notebooks" / f"{self.name}.ipynb"

    @property
    def published(self) -> Path:
        """The executed chapter that the site shows; generated."""
        return self.root / "book" / "chapters" / f"{self.name}.ipynb"

    def show(self, path: Path) -> str:
        """Return a path of the book as messages name it."""
        return path.relative_to(self.root).as_posix()


def book_root() -> Path:
    """Return the folder of the book: the nearest at or above the current one."""
    here = Path.cwd()
    for folder in (here, *here.parents):
        if (folder / "notebooks").is_dir() and (folder / "_toc.yml").is_file():
            return folder
    raise BookError(
        f"no book at or above {here}: expected a folder with notebooks/ and _toc.yml; "
        "go to a clone of the book"
    )


def package_version() -> str:
    """Return the version of ``robustbook``, without importing it."""
    init = Path(__file__).parents[1] / "robustbook" / "__init__.py"
    match = re.search(r'^__version__ = "(.+)"', init.read_text("utf-8"), re.MULTILINE)
    if match is None:
        raise BookError(f'{init}: expected a line __version__ = "..."')
    return match[1]


def list_chapters(root: Path) -> list[Chapter]:
    """Return the chapters of the book in ``root``, in order."""
    names = sorted(path.stem for path in (root / "notebooks").glob("*.md"))
    for name in names:
        if not _NAME.fullmatch(name):
            raise BookError(
                f"notebooks/{name}.md: expected a name of the form 08_some_words.md, "
                "two digits and lower case"
            )
    return [Chapter(root, name) for name in names]


def find_chapter(root: Path, wanted: str) -> Chapter:
    """Return a chapter by its name, its number (8 or 08) or one of its files."""
    stem = Path(wanted).name.removesuffix(".md").removesuffix(".ipynb")
    number = f"{int(stem):02d}_" if stem.isdecimal() else None
    chapters = list_chapters(root)
    matching = [
        chapter
        for chapter in chapters
        if chapter.name == stem or (number and chapter.name.startswith(number))
    ]
    if len(matching) == 1:
        return matching[0]
    known = ", ".join(chapter.name for chapter in chapters) or "none"
    raise BookError(f"no chapter {wanted!r}; this book has {known}")
