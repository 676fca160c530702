"""The project's files: their folders, safe writing, and JSON."""

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

#: Version of the schema of all JSON files that the project writes.
SCHEMA: Final = 1

#: Variable with the file that lists the files of ``data`` that a run reads, for its
#: stamp.
_READS: Final = "ROBUSTBOOK_READS"
_TEMPORARY: Final = ".writing"
_ABANDONED: Final = 24 * 3600.0


class DataUnavailableError(RuntimeError):
    """A file is neither on this machine nor could it be downloaded."""


def data_directory() -> Path:
    """Return the project's own ``data`` folder: checkpoints and stored results.

    In a checkout, installed or not, it is that of the repository; else that of the
    package robustbook-data; else the one inside robustbook, which has no stored results
    and only the networks for the digits.

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
    """Return the error for a missing file of ``data``.

    If robustbook was installed without its data package, installing that is the remedy.
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
    """Open a file to be written completely or not at all.

    It is written under a temporary name in the same folder, which is made if needed,
    and renamed at the end of the block. After an error or on a full disk, the earlier
    file stays. The next writer removes what a killed process left, after a day. Mode
    "w" is text in UTF-8 with plain line ends. An OSError names the file.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    _remove_abandoned(path.parent)
    temporary = path.with_name(f".{uuid.uuid4().hex}{_TEMPORARY}")
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
    """Write a text file completely, or leave the earlier one."""
    with atomic_write(path, "w") as file:
        file.write(text)


def _remove_abandoned(folder: Path) -> None:
    """Remove temporary files that killed processes left a day ago or earlier."""
    for left in folder.glob(f".*{_TEMPORARY}"):
        with suppress(OSError):
            if time.time() - left.stat().st_mtime > _ABANDONED:
                left.unlink()


def check_writable(folder: Path | str, *, what: str, remedy: str) -> None:
    """Refuse a folder that cannot be written to, before anything is computed.

    The folder is made if needed. The message begins with `what` the folder is for
    ("cache", "checkpoint") and ends with the `remedy`.
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
    """Record that a chapter read this file of ``data``, for the stamp of the chapter.

    If only a part of a JSON file was used, the keys are the path to it.
    """
    listing = os.environ.get(_READS)
    if listing:
        with Path(listing).open("a", encoding="utf-8") as file:
            file.write(json.dumps([str(Path(path).resolve()), *keys]) + "\n")


def read_json(path: Path, *, remedy: str, note: bool = True) -> dict[str, Any]:
    """Read a JSON object of the project's schema.

    A file that is missing or has another schema is a DataUnavailableError with the
    `remedy`. Without `note`, the caller calls :func:`note_read` for the part it uses.
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
