"""Arrays from files that people export: .npy, .npz and .csv.

A file is never trusted with running code (no pickles), and what cannot be read is
said in one line: which file, what was expected, what was got, how to mend it.
"""

from __future__ import annotations

import csv
import itertools
import reprlib
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["FileError", "read_array", "read_labels"]

Array = npt.NDArray[Any]

_SUFFIXES = (".npy", ".npz", ".csv")
_NPY_MAGIC = b"\x93NUMPY"


class FileError(ValueError):
    """A file that holds no numeric array, with the remedy."""


def read_array(path: Path, *, key: str | None = None, default: str) -> Array:
    """Read a numeric array.

    Parameters
    ----------
    path : Path
        A .npy, .npz or .csv file. In a .csv file, rows are samples and columns are
        classes, with or without one header line; it gives float64.
    key : str, optional
        The array's name in a .npz file.
    default : str
        The name that is taken in a .npz file of several arrays if ``key`` is left
        out.

    Returns
    -------
    ndarray
        In the machine's byte order.

    Raises
    ------
    FileError
        If there is no such file or no numeric array in it.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "clean.csv")
    ...     _ = path.write_text("cat,dog\\n1.5,-0.5\\n0,2\\n")
    ...     read_array(path, default="logits").tolist()
    [[1.5, -0.5], [0.0, 2.0]]
    """
    if path.suffix.lower() not in _SUFFIXES:
        raise FileError(
            f"{path}: expected a file that ends in .npy, .npz or .csv; "
            'write one with numpy.save("logits.npy", logits)'
        )
    if not path.is_file():
        raise FileError(f"{path}: {'not a' if path.exists() else 'no such'} file")
    try:
        if path.stat().st_size == 0:
            raise FileError(f"{path}: the file is empty")
        if path.suffix.lower() == ".csv":
            return _read_csv(path)
        if path.suffix.lower() == ".npz":
            return _native(path, _read_npz(path, key, default))
        return _native(path, _read_npy(path))
    except FileError:
        raise
    except OSError as error:
        raise FileError(f"{path}: {error.strerror or error}") from error
    except Exception as error:
        # NumPy and the readers below it name no set of errors for damaged files:
        # zlib.error, RuntimeError, TokenError, MemoryError for a header that
        # claims too much, and more have been seen.
        raise _unreadable(path, error) from error


def read_labels(path: Path, *, key: str | None = None) -> Array:
    """Read integer labels, shape (N,); a .csv file has one column, or one row.

    Raises
    ------
    FileError
        If there is no such file or no labels in it.
    """
    labels = read_array(path, key=key, default="labels")
    if path.suffix.lower() != ".csv":
        return labels
    if 1 not in labels.shape:
        raise FileError(
            f"{path}: expected one column of labels, got {labels.shape[1]} columns"
        )
    labels = labels.ravel()
    # A float64 holds whole numbers up to 2**53; NaN fails both comparisons.
    whole = (labels == np.trunc(labels)) & (np.abs(labels) <= 2**53)
    if not whole.all():
        first = int(np.flatnonzero(~whole)[0])
        raise FileError(
            f"{path}: expected class numbers, got {labels[first]} at sample {first}"
        )
    return labels.astype(np.int64)


def _native(path: Path, array: Array) -> Array:
    """Refuse what is no number; give what torch can take."""
    if array.dtype.kind not in "biufc":
        raise FileError(f"{path}: expected numbers, got dtype {array.dtype}")
    if array.dtype.kind == "f" and array.dtype.itemsize > 8:
        return array.astype(np.float64)
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def _read_npy(path: Path) -> Array:
    with path.open("rb") as file:
        if file.read(len(_NPY_MAGIC)) != _NPY_MAGIC:
            raise FileError(
                f"{path}: not a .npy file; write one with numpy.save(path, array)"
            )
    return np.asarray(np.load(path, allow_pickle=False))


def _read_npz(path: Path, key: str | None, default: str) -> Array:
    if not zipfile.is_zipfile(path):
        raise FileError(
            f"{path}: not a .npz file; write one with numpy.savez(path, logits=...)"
        )
    # NumPy leaves a file that it opened itself open where the archive is damaged.
    with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
        return np.asarray(archive[_choose(path, archive.files, key, default)])


def _choose(path: Path, names: list[str], key: str | None, default: str) -> str:
    wanted = key or (names[0] if len(names) == 1 else default)
    if wanted in names:
        return wanted
    remedy = "name one with --key" if key is None and names else "see numpy.savez"
    raise FileError(
        f"{path}: expected an array named {wanted!r}, "
        f"got {', '.join(map(repr, names)) or 'none'}; {remedy}"
    )


def _unreadable(path: Path, error: Exception) -> FileError:
    if "allow_pickle" in str(error):
        return FileError(
            f"{path}: it holds pickled Python objects, which are not loaded as they "
            "may run code; save a numeric array"
        )
    reason = " ".join(str(error).split()) or type(error).__name__
    return FileError(f"{path}: cannot be read ({reason}); save it again")


def _read_csv(path: Path) -> Array:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            first, second = itertools.islice(
                itertools.chain(_rows(file), [(0, []), (0, [])]), 2
            )
        if not first[1]:
            raise FileError(f"{path}: the file is empty")
        header = _is_header(path, first[1], second[1])
        if header and not second[1]:
            raise FileError(f"{path}: a header line and no rows")
        return np.loadtxt(
            path,
            delimiter=",",
            comments=None,
            quotechar='"',
            skiprows=first[0] if header else 0,
            ndmin=2,
            encoding="utf-8-sig",
        )
    except UnicodeDecodeError as error:
        raise FileError(f"{path}: not text in UTF-8, so not a .csv file") from error
    except FileError:
        raise
    except ValueError as error:
        raise FileError(f"{path}: {_first_fault(path) or error}") from error


def _rows(file: Any) -> Iterator[tuple[int, list[str]]]:
    """Yield the number of each line that is not blank, and its cells."""
    reader = csv.reader(file)
    for row in reader:
        if any(cell.strip() for cell in row):
            yield reader.line_num, [cell.strip() for cell in row]


def _is_header(path: Path, first: list[str], second: list[str]) -> bool:
    if first[0] == "" and len(first) > 1:
        raise FileError(
            f"{path}: its first column has no name, so it looks like row numbers; "
            "write the file without them (in pandas, to_csv(index=False))"
        )
    if not all(map(_is_number, first)):
        # A faulty row is no header: that one has names throughout.
        return not any(map(_is_number, first))
    # pandas names unnamed columns 0, 1, 2, ..., others 1, 2, 3, ...: no sample,
    # though they are numbers.
    width = len(first)
    numbered = width > 1 and any(
        first == [str(start + i) for i in range(width)] for start in (0, 1)
    )
    return numbered and not all(cell.lstrip("+-").isdecimal() for cell in second)


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _first_fault(path: Path) -> str | None:
    """Find what the fast reader stumbled over, as an editor numbers it."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        width = None
        for position, (line, row) in enumerate(_rows(file)):
            width = width or len(row)
            if len(row) != width:
                return f"line {line}: expected {width} columns, got {len(row)}"
            if position == 0 and not any(map(_is_number, row)):
                continue
            for column, cell in enumerate(row, start=1):
                if not _is_number(cell):
                    got = reprlib.repr(cell) if cell else "nothing"
                    return f"line {line}, column {column}: expected a number, got {got}"
    return None
