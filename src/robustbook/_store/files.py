"""The project's own files: where they are, their sums, and their JSON."""

from __future__ import annotations

import hashlib
import json
import warnings
from pathlib import Path
from typing import Any, Final

__all__ = [
    "SCHEMA",
    "DataUnavailableError",
    "data_directory",
    "read_json",
    "sha256_of",
    "user_cache",
]

#: Of every JSON file that the project writes.
SCHEMA: Final = 1


class DataUnavailableError(RuntimeError):
    """A file is neither on this machine nor to be had; says what would help."""


def data_directory() -> Path:
    """Return the project's own ``data`` folder: checkpoints and stored results.

    In a checkout (also one that is installed with ``pip install -e``) it is the
    folder ``data`` of the repository; in a plain installation it is the copy
    that the wheel carries.

    Returns
    -------
    Path
        An existing folder.

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
    for folder in (package.parents[1] / "data", package / "_data"):
        if (folder / "checkpoints").is_dir():
            return folder
    raise DataUnavailableError(
        "the project's data folder (checkpoints, reported and stored results) was "
        f"looked for in {package.parents[1] / 'data'} and {package / '_data'}; "
        "install robustbook from a checkout of its repository (pip install -e .)"
    )


def user_cache(name: str) -> Path:
    """Return a folder of this user's cache, which need not exist.

    Parameters
    ----------
    name : str
        Of the folder.

    Returns
    -------
    Path
        Where pooch keeps what it downloads for robustbook.
    """
    with warnings.catch_warnings():
        # In a kernel without widgets, the import warns of progress bars.
        warnings.filterwarnings("ignore", message="IProgress not found")
        import pooch
    return Path(pooch.os_cache("robustbook")) / name


def sha256_of(path: Path) -> str:
    """Return the sha256 of a file in hexadecimal.

    Parameters
    ----------
    path : Path
        The file.

    Returns
    -------
    str
        64 hexadecimal digits.
    """
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def read_json(path: Path, *, remedy: str) -> dict[str, Any]:
    """Read a JSON object of the project's schema.

    Parameters
    ----------
    path : Path
        The file.
    remedy : str
        What to do where the file is missing or foreign.

    Returns
    -------
    dict
        Its content.

    Raises
    ------
    DataUnavailableError
        If there is no such file, or it is no JSON object of the schema.
    """
    if not path.is_file():
        raise DataUnavailableError(f"{path} is missing; {remedy}")
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
