"""A labeled sample of the files of a folder, drawn with a seed."""

import os
import random
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from robustbook._checks.arguments import check_count

#: By extension, the type that a file has, in Magika's words. Extensions that several
#: types share, such as .h, are left out, and so is .pyc: which files are compiled
#: depends on what was imported before.
FILE_TYPES: Final[Mapping[str, str]] = {
    "c": "c",
    "cpp": "cpp",
    "css": "css",
    "csv": "csv",
    "f90": "fortran",
    "gz": "gzip",
    "html": "html",
    "jpg": "jpeg",
    "js": "javascript",
    "json": "json",
    "md": "markdown",
    "pdf": "pdf",
    "png": "png",
    "po": "po",
    "py": "python",
    "pyi": "python",
    "rst": "rst",
    "scss": "scss",
    "sh": "shell",
    "so": "elf",
    "svg": "svg",
    "toml": "toml",
    "ttf": "ttf",
    "txt": "txt",
    "woff2": "woff2",
    "xml": "xml",
    "yaml": "yaml",
}


@dataclass(frozen=True)
class Sample:
    """Contents with labels.

    Parameters
    ----------
    contents : tuple of bytes or of str
        Files, or texts.
    labels : tuple of str
        The type, or the language, of each.
    unreadable : tuple of str
        Files that could not be read and were left out.

    Examples
    --------
    >>> contents = b"import os", b"<svg/>", b"x = 1"
    >>> sample = Sample(contents, ("python", "svg", "python"))
    >>> sample.counts
    {'python': 2, 'svg': 1}
    """

    contents: tuple[Any, ...]
    labels: tuple[str, ...]
    unreadable: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if len(self.contents) != len(self.labels):
            raise ValueError(
                f"Sample: expected a label for each content, got {len(self.contents)} "
                f"contents and {len(self.labels)} labels"
            )

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def counts(self) -> dict[str, int]:
        """How many contents have each label, in alphabetical order."""
        return {label: self.labels.count(label) for label in sorted(set(self.labels))}


def installed_packages() -> list[Path]:
    """Return the folders that hold the packages of this Python environment."""
    names = ("site-packages", "dist-packages")
    folders = dict.fromkeys(Path(entry) for entry in sys.path if entry)
    return [path for path in folders if path.name in names and path.is_dir()]


def load_files(
    folder: Path | str | Iterable[Path | str] | None = None,
    *,
    types: Mapping[str, str] = FILE_TYPES,
    per_type: int = 60,
    at_least: int = 20,
    sizes: tuple[int, int] = (1024, 2**20),
    seed: int = 0,
) -> Sample:
    """Draw files of a folder, labeled by their extensions.

    Files of each type are shuffled, and the first ones taken that can be read and are
    no copies of others. The draw depends on the folder's files and the seed alone; the
    files of one type do not depend on those of others. Links are not followed.

    Parameters
    ----------
    folder : path, or several paths, optional
        Where to look, in all folders below it, too; the packages of this Python
        environment by default.
    types : dict, default FILE_TYPES
        By extension, without a dot and in lower case, the label that files have.
    per_type : int, default 60
        At most so many files are taken of a type.
    at_least : int, default 20
        Types with fewer files are left out.
    sizes : tuple of int, default (1024, 1048576)
        Smallest and largest size of a file, in bytes.
    seed : int, default 0
        Seed of the draw.

    Returns
    -------
    Sample
        Files as bytes, type by type.

    Raises
    ------
    TypeError
        If `folder` is no path and holds none.
    ValueError
        If there is no such folder, or no type with enough files in it.

    Warns
    -----
    UserWarning
        If files could not be read: how many, and which.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for i in range(3):
    ...         _ = Path(folder, f"{i}.py").write_text(f"x = {i}")
    ...     sample = load_files(folder, at_least=2, sizes=(1, 100))
    >>> sample.labels
    ('python', 'python', 'python')
    """
    check_count("per_type", per_type)
    check_count("at_least", at_least)
    folders = check_folders(folder)
    by_type: dict[str, list[Path]] = {}
    other_sizes = 0
    for path in files_below(folders):
        extension = path.suffix.lower().removeprefix(".")
        if extension not in types:
            continue
        if sizes[0] <= size_of(path) <= sizes[1]:
            by_type.setdefault(types[extension], []).append(path)
        else:
            other_sizes += 1
    contents: list[bytes] = []
    labels: list[str] = []
    unreadable: list[str] = []
    most = ""
    largest = 0
    for label, paths in sorted(by_type.items()):
        random.Random(f"{seed} {label}").shuffle(paths)
        read = list(_readable(paths, per_type, unreadable))
        if len(read) > largest:
            most, largest = label, len(read)
        if len(read) >= at_least:
            contents += read
            labels += len(read) * [label]
    warn_of_unreadable(unreadable)
    if not labels:
        where = ", ".join(map(str, folders)) or "no folder at all"
        found = f"at most {largest} ({most})" if largest else "none of any type"
        raise ValueError(
            f"folder: expected a type with {at_least} files or more of {sizes[0]} to "
            f"{sizes[1]} bytes, found {found} in {where}, and {other_sizes} "
            "of another size; lower at_least, change sizes, name more extensions in "
            "types, or choose another folder"
        )
    return Sample(tuple(contents), tuple(labels), tuple(unreadable))


def check_folders(folder: Path | str | Iterable[Path | str] | None) -> list[Path]:
    """Return the folders as paths; raise ValueError if one is missing."""
    if folder is None:
        return installed_packages()
    given = [folder] if isinstance(folder, str | Path) else folder
    try:
        folders = [Path(entry).expanduser() for entry in given]
    except TypeError:
        raise TypeError(
            f"folder: expected a path or several paths, got {folder!r}"
        ) from None
    for path in folders:
        if not path.is_dir():
            raise ValueError(f"folder: expected an existing folder, got {str(path)!r}")
    return folders


def files_below(folders: Iterable[Path]) -> Iterator[Path]:
    """Yield the files in all folders below, in an order that is always the same."""
    for folder in folders:
        for place, below, names in os.walk(folder):
            below.sort()
            for name in sorted(names):
                path = Path(place, name)
                if not path.is_symlink():
                    yield path


def size_of(path: Path) -> int:
    """Return the size in bytes; -1 of a file that has vanished meanwhile."""
    try:
        return path.stat().st_size
    except OSError:
        return -1


def warn_of_unreadable(paths: list[str]) -> None:
    """Say how many files could not be read, and name the first of them."""
    if paths:
        more = f" and {len(paths) - 3} more" if len(paths) > 3 else ""
        warnings.warn(
            f"{len(paths)} files could not be read and were left out: "
            f"{', '.join(paths[:3])}{more}",
            stacklevel=3,
        )


def _readable(paths: list[Path], count: int, unreadable: list[str]) -> Iterator[bytes]:
    seen: set[bytes] = set()
    for path in paths:
        if len(seen) == count:
            return
        try:
            content = path.read_bytes()
        except OSError:
            unreadable.append(str(path))
            continue
        if content not in seen:
            seen.add(content)
            yield content
