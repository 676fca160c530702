"""Arrays from files that people export: .npy, .npz and .csv.

Pickled objects are never loaded, since they could run code. A .npy file stays on disk;
arrays of other files have a limit, since a small .npz file can unpack to a huge array.
"""

import re
import warnings
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

#: Size of the largest array that is read from a .npz or .csv file, in GiB.
LARGEST: Final = 4


class FileError(ValueError):
    """A file without a usable numeric array; the message says how to mend it."""


def read_array(path: Path, *, key: str | None = None, default: str) -> Array:
    """Read a numeric array; one of a .npy file stays on disk.

    In a .csv file, rows are samples and columns are classes, with or without a header
    line. `key` is the array's name in a .npz file, `default` the name that is looked
    for in one with several arrays if there is no key. Errors are a FileError.
    """
    with readable(path):
        match path.suffix.lower():
            case ".csv":
                array = _read_csv(path)
            case ".npz":
                array = _read_npz(path, key, default)
            case ".npy":
                array = np.lib.format.open_memmap(path, mode="r")
            case _:
                raise FileError(
                    f"{path}: expected a file that ends in .npy, .npz or .csv; "
                    'write one with numpy.save("logits.npy", logits)'
                )
    if array.dtype.kind not in "biufc":
        raise FileError(f"{path}: expected numbers, got dtype {array.dtype}")
    return array


def read_labels(path: Path) -> Array:
    """Read labels, shape (N,); a .csv file has one column, or one row."""
    labels = read_array(path, default="labels")
    if path.suffix.lower() != ".csv":
        return labels
    if 1 not in labels.shape:
        raise FileError(
            f"{path}: expected one column of labels, got {labels.shape[1]} columns"
        )
    return labels.ravel()


def npz_names(path: Path) -> list[str]:
    """Return the names of the arrays in a .npz file."""
    with readable(path), zipfile.ZipFile(path) as archive:
        return [name.removesuffix(".npy") for name in archive.namelist()]


def _read_npz(path: Path, key: str | None, default: str) -> Array:
    names = npz_names(path)
    wanted = key or (names[0] if len(names) == 1 else default)
    if wanted not in names:
        shown = ", ".join(map(repr, names[:10])) or "none"
        if len(names) > 10:
            shown += f" and {len(names) - 10} more"
        remedy = "; name one with --key" if key is None and names else ""
        raise FileError(
            f"{path}: expected an array named {wanted!r}, got {shown}{remedy}"
        )
    with zipfile.ZipFile(path) as archive:
        _check_size(path, archive.infolist()[names.index(wanted)].file_size)
    with np.load(path, allow_pickle=False) as arrays:
        return np.asarray(arrays[wanted])


def _read_csv(path: Path) -> Array:
    _check_size(path, path.stat().st_size)
    lines = [x for x in path.read_text("utf-8-sig").splitlines() if x.strip()]
    head = lines[0].replace('"', "").split(",") if lines else []
    if len(head) > 1 and not head[0].strip():
        raise FileError(
            f"{path}: its first column has no name, so it looks like row numbers; "
            "write the file without them (in pandas, to_csv(index=False))"
        )
    named = not any(map(_is_number, head))
    if len(lines) <= named:
        raise FileError(f"{path}: expected rows of numbers; the file is empty")
    try:
        rows = lines[named:]
        array = np.loadtxt(rows, delimiter=",", ndmin=2, comments=None, quotechar='"')
    except ValueError as error:
        # For these errors, numpy counts rows from 0.
        row = r"row (\d+), column"
        reason = re.sub(row, lambda m: f"row {int(m[1]) + 1}, column", str(error))
        raise FileError(
            f"{path}: expected rows with the same number of numbers; {reason} (not "
            "counting a header or blank lines)"
        ) from error
    # pandas calls columns without names 0, 1, 2, ..., other programs 1, 2, 3, ...
    numbers = np.arange(array.shape[1])
    numbered = any(np.array_equal(array[0], numbers + start) for start in (0, 1))
    if numbered and len(numbers) > 1 and (array[1:2] % 1).any():
        warnings.warn(
            f"{path}: its first line, {lines[0].strip():.40}, is taken for the numbers "
            "of the columns and left out; if it is a sample, put a line of names above "
            "it",
            UserWarning,
            stacklevel=3,
        )
        array = array[1:]
    return np.asarray(array)


def _is_number(cell: str) -> bool:
    try:
        return float(cell) is not None
    except ValueError:
        return False


def _check_size(path: Path, size: int) -> None:
    if size > LARGEST * 2**30:
        raise FileError(
            f"{path}: expected at most {LARGEST} GiB, got {size / 2**30:.2g} GiB; save "
            "larger logits as .npy, larger images as .safetensors"
        )


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Refuse a path without a file; turn the many errors of readers into one kind."""
    if not path.is_file():
        raise FileError(f"{path}: {'not a' if path.exists() else 'no such'} file")
    try:
        yield
    except FileError:
        raise
    except Exception as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise FileError(
            f"{path}: expected a numeric array in a .npy, .npz or .csv file, got one "
            f"that cannot be read ({reason}); save the array again"
        ) from error
