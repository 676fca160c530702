"""Where the parts of a chapter are: nothing else knows a path of the book."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

__all__ = [
    "BookError",
    "Chapter",
    "book_root",
    "find_chapter",
    "find_root",
    "list_chapters",
    "package_version",
]

# Also what a cell id may hold, since ids start with the chapter's name.
_NAME = re.compile(r"\d\d_[a-z0-9_]{1,50}")


class BookError(Exception):
    """What a person at the command line did or has that the runner cannot use."""

    #: The exit status that tells it: 2 as for every misuse of a command.
    status = 2


@dataclass(frozen=True, order=True)
class Chapter:
    """One chapter and where its three forms are."""

    #: The folder of the book, the one that holds ``notebooks/``.
    root: Path
    #: For example ``08_first_measurement``.
    name: str

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


def find_root(start: Path | None = None) -> Path:
    """Return the nearest folder, from here or ``start`` upwards, that holds a book.

    Raises
    ------
    BookError
        If there is none.
    """
    start = (start or Path.cwd()).resolve()
    for folder in (start, *start.parents):
        if _is_book(folder):
            return folder
    raise BookError(
        f"no book at or above {start}: expected a folder with notebooks/ and _toc.yml; "
        "go to a clone of the book, or name one with --root"
    )


def book_root(named: Path | None) -> Path:
    """Return the folder of the book: the one that is named, else the nearest.

    Raises
    ------
    BookError
        If it holds no book.
    """
    if named is None:
        return find_root()
    if not _is_book(named):
        raise BookError(
            f"no book in {named}: expected a folder with notebooks/ and _toc.yml"
        )
    return named.resolve()


def _is_book(folder: Path) -> bool:
    return (folder / "notebooks").is_dir() and (folder / "_toc.yml").is_file()


def package_version() -> str:
    """Return the version of ``robustbook`` beside this press, without importing it."""
    init = Path(__file__).parents[1] / "robustbook" / "__init__.py"
    found = re.search(r'^__version__ = "(.+)"', init.read_text("utf-8"), re.MULTILINE)
    if found is None:
        raise BookError(f'{init}: expected a line __version__ = "..."')
    return found[1]


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
    """Return the chapter that is named, numbered, or one of whose forms is given.

    Names are such as ``08_first_measurement``, numbers ``8`` or ``08``.

    Raises
    ------
    BookError
        If no chapter, or more than one, is so named.
    """
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
