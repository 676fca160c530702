"""The project's own files: where they are, how they are written, and their JSON."""

import errno
import hashlib
import json
import os
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any, Final

#: Of every JSON file that the project writes.
SCHEMA: Final = 1

#: Where a run lists the files of ``data`` that it reads: its stamp covers them.
_READS: Final = "ROBUSTBOOK_READS"
_TEMPORARY: Final = ".writing"
_ABANDONED: Final = 24 * 3600.0


class DataUnavailableError(RuntimeError):
    """A file is neither on this machine nor to be had; says what would help."""


def data_directory() -> Path:
    """Return the project's own ``data`` folder: checkpoints and stored results.

    In a checkout, installed or not, that of the repository; else that of the package
    robustbook-data; else what robustbook itself carries, which has no stored results
    and only the networks for the digits.

    Raises
    ------
    DataUnavailableError
        If neither is there.

    Examples
    --------
    >>> from robustbook.datasets import data_directory
    >>> (data_directory() / "checkpoints" / "registry.json").is_file()
    True
    """
    package = Path(__file__).resolve().parents[1]
    data_package = find_spec("robustbook_data")
    folders = [
        package.parents[1] / "data",
        *map(Path, (data_package and data_package.submodule_search_locations) or ()),
        package / "_data",
    ]
    for folder in folders:
        if (folder / "checkpoints").is_dir():
            return folder
    raise DataUnavailableError(
        "the project's data folder (checkpoints, reported and stored results) was "
        f"looked for in {', '.join(map(str, folders))}; "
        "install robustbook from a checkout of its repository (pip install -e .)"
    )


def missing_file(path: Path, *, remedy: str) -> DataUnavailableError:
    """Return the error for a file of ``data`` that is not there.

    Where robustbook was installed without its data package, that is the remedy.
    """
    if path.parent.parent.name == "_data":
        remedy = "it is in robustbook-data: pip install ./data in a clone of the book"
    return DataUnavailableError(f"{path} is missing; {remedy}")


def cache_root() -> Path:
    """Return robustbook's folder in this user's cache, as platformdirs has it."""
    home = Path.home()
    if sys.platform == "win32":
        local = os.environ.get("LOCALAPPDATA") or home / "AppData" / "Local"
        return Path(local, "robustbook", "robustbook", "Cache")
    if sys.platform == "darwin":
        return home / "Library" / "Caches" / "robustbook"
    return Path(os.environ.get("XDG_CACHE_HOME") or home / ".cache", "robustbook")


def user_cache(name: str) -> Path:
    """Return the folder `name` of this user's cache, which need not exist."""
    return cache_root() / name


def sha256_of(path: Path) -> str:
    """Return the sha256 of a file: 64 hexadecimal digits."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


# -------------------------------------------------------------------- writing


@contextmanager
def atomic_write(path: Path | str, mode: str = "wb") -> Iterator[IO[Any]]:
    """Open a file that is whole under its name, or not there at all.

    It is written beside its place and moved there at the end of the block; folders
    above it are made. An error or a full disk leaves what was there before; what a
    killed process left is removed by the next writer, a day later. Mode "w" is text in
    UTF-8 with plain line ends. An OSError names the file.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    _remove_abandoned(path)
    unique = f"{uuid.uuid4().hex[:12]}{_TEMPORARY}"
    temporary = path.with_name(f"{_beside(path)}{unique}")
    text: dict[str, Any] = {} if "b" in mode else {"encoding": "utf-8", "newline": "\n"}
    try:
        with temporary.open(mode.replace("w", "x"), **text) as file:
            yield file
        temporary.replace(path)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Path | str, text: str) -> None:
    """Write a text file whole, or leave what is there."""
    with atomic_write(path, "w") as file:
        file.write(text)


def _beside(path: Path) -> str:
    """How the names of temporary files begin; names have 255 bytes at most."""
    return f".{os.fsencode(path.name)[:200].decode(errors='ignore')}."


def _remove_abandoned(path: Path) -> None:
    """Remove what processes that were killed a day ago left beside `path`."""
    for left in path.parent.glob(f"{_beside(path)}*{_TEMPORARY}"):
        with suppress(OSError):
            if time.time() - left.stat().st_mtime > _ABANDONED:
                left.unlink()


def check_writable(folder: Path | str, *, what: str, remedy: str) -> None:
    """Refuse a folder in which nothing can be written, before anything is computed.

    It is made if it is not there. The message begins with `what` it was to be ("cache",
    "checkpoint") and ends with the `remedy`.
    """
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK):
            raise PermissionError(errno.EACCES, "not writable")
    except OSError as error:
        raise OSError(
            f"{what}: expected a folder that can be written to, got {folder} "
            f"({error.strerror or error}); {remedy}"
        ) from error


# -------------------------------------------------------------------- reading


def note_read(path: Path, *keys: str) -> None:
    """Tell whoever executes a chapter that it read this file of ``data``.

    Of a JSON file of which only a part was used, the keys say where that is.
    """
    listing = os.environ.get(_READS)
    if listing:
        with Path(listing).open("a", encoding="utf-8") as file:
            file.write(json.dumps([str(Path(path).resolve()), *keys]) + "\n")


def read_json(path: Path, *, remedy: str, note: bool = True) -> dict[str, Any]:
    """Read a JSON object of the project's schema.

    `remedy` is for a file that is missing or foreign, a DataUnavailableError. Without
    `note`, the caller uses a part and calls :func:`note_read` himself.
    """
    if not path.is_file():
        raise missing_file(path, remedy=remedy)
    if note:
        note_read(path)
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise DataUnavailableError(f"{path}: not JSON ({error}); {remedy}") from error
    schema = content.get("schema") if isinstance(content, dict) else None
    if schema != SCHEMA:
        raise DataUnavailableError(
            f"{path}: expected a JSON object of schema {SCHEMA}, got {schema!r}; "
            f"{remedy}"
        )
    return content
