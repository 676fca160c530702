"""A cache of arrays outside git: one file for each configuration.

An interrupted experiment finds here what it has computed. The name of a file holds
the sum of its whole configuration, and the file holds the configuration itself: what
was computed in one way is never read as what was computed in another.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
import uuid
import zipfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from robustbook._store import user_cache

__all__ = ["Arrays", "Configuration", "cache_directory", "cached_arrays"]

Arrays = dict[str, npt.NDArray[Any]]
Configuration = Mapping[str, str | int | float | bool | None]

ENVIRONMENT_VARIABLE: Final = "ROBUSTBOOK_CACHE"
_CONFIGURATION: Final = "configuration"

#: What numpy, zipfile and zlib raise for damaged files: cut, flipped, overwritten.
_DAMAGED: Final = (
    EOFError,
    KeyError,
    NotImplementedError,  # a flipped bit names another compression
    OSError,
    RuntimeError,  # or encryption
    SyntaxError,  # in the header of an array
    ValueError,
    struct.error,
    zipfile.BadZipFile,
    zlib.error,
)


def cache_directory() -> Path:
    """Return the folder of the cache: ROBUSTBOOK_CACHE, or one of the user's.

    Returns
    -------
    Path
        The folder, which need not exist.

    Examples
    --------
    >>> cache_directory().is_absolute()
    True
    """
    value = os.environ.get(ENVIRONMENT_VARIABLE, "").strip()
    if value:
        return Path(value).expanduser().resolve()
    return user_cache("experiments")


def cached_arrays(
    configuration: Configuration,
    compute: Callable[[], Arrays],
    *,
    directory: Path | str | None = None,
) -> Arrays:
    """Read the arrays of a configuration, or compute and store them.

    Parameters
    ----------
    configuration : mapping
        All that the arrays depend on: plain numbers and strings.
    compute : callable
        Returns the arrays, by name.
    directory : Path or str, optional
        The cache; :func:`cache_directory` by default.

    Returns
    -------
    dict of str to ndarray
        The arrays.

    Raises
    ------
    TypeError
        If a value of the configuration is not a plain number or string.
    OSError
        If nothing can be written to the cache; said before anything is computed.

    Notes
    -----
    A file is written beside its place and then moved there, so that an interruption
    leaves no half of one. A file that cannot be read is computed anew.

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.mkdtemp()
    >>> first = cached_arrays(
    ...     {"size": 3}, lambda: {"x": np.zeros(3)}, directory=folder
    ... )
    >>> again = cached_arrays({"size": 3}, lambda: 1 / 0, directory=folder)
    >>> again["x"]
    array([0., 0., 0.])
    """
    for key, value in configuration.items():
        if value is not None and type(value) not in (str, int, float, bool):
            raise TypeError(
                f"configuration: {key}: expected a plain number or string, got "
                f"{type(value).__name__}"
            )
    text = json.dumps(dict(configuration), sort_keys=True)
    folder = cache_directory() if directory is None else Path(directory)
    path = folder / f"{hashlib.sha256(text.encode()).hexdigest()[:32]}.npz"
    found = _read(path, text)
    if found is not None:
        return found
    _prepare(folder)
    arrays = compute()
    if _CONFIGURATION in arrays:
        raise ValueError(f"compute: expected no array named {_CONFIGURATION!r}")
    temporary = path.with_suffix(f".{uuid.uuid4().hex}.tmp")
    try:
        with temporary.open("wb") as file:
            content: dict[str, Any] = {_CONFIGURATION: np.array(text), **arrays}
            np.savez_compressed(file, **content)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    return arrays


def _prepare(folder: Path) -> None:
    """Make the folder, or say that it is of no use."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK):
            raise PermissionError("not writable")
    except OSError as error:
        raise OSError(
            f"{folder}: nothing can be written to this cache "
            f"({error.strerror or error}); set {ENVIRONMENT_VARIABLE} to a folder "
            "that can be written to"
        ) from error


def _read(path: Path, text: str) -> Arrays | None:
    if not path.is_file():
        return None
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
            if str(stored[_CONFIGURATION]) != text:
                return None
            return {name: stored[name] for name in stored if name != _CONFIGURATION}
    except PermissionError:
        raise  # a file that is there and must not be read is no damaged one
    except _DAMAGED:
        return None
