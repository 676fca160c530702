"""Arrays from files that people export: .npy, .npz and .csv.

A file is trusted neither with running code (no pickles) nor with memory. What cannot
be read is said in a line: which file, what was expected, what was got, how to mend it.
"""

import csv
import itertools
import math
import os
import reprlib
import warnings
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Final

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

#: The largest array that is read, in GiB; a small .npz file can hold a huge one.
LIMIT: Final = "ROBUSTBOOK_LARGEST_ARRAY"
_DEFAULT_LIMIT: Final = 2.0

#: The largest header, in bytes, that numpy reads of a file that it does not trust.
_LONGEST_HEADER: Final = 10_000

#: Entries in a block of rows.
BLOCK_ENTRIES: Final = 2**22

_SUFFIXES: Final = (".npy", ".npz", ".csv")


class FileError(ValueError):
    """A file that holds no numeric array, with the remedy."""


def largest_array() -> float:
    """Return the limit in bytes: of ROBUSTBOOK_LARGEST_ARRAY (GiB), or 2 GiB."""
    text = os.environ.get(LIMIT, "").strip() or str(_DEFAULT_LIMIT)
    try:
        limit = float(text)
    except ValueError:
        limit = math.nan
    if not limit > 0:
        raise FileError(f"{LIMIT}: expected a number of GiB, such as 8, got {text!r}")
    return limit * 2**30


def read_array(
    path: Path, *, key: str | None = None, default: str, mapped: bool = False
) -> Array:
    """Read a numeric array of a .npy, .npz or .csv file, in the machine's byte order.

    In a .csv file, rows are samples and columns are classes, with or without one header
    line (column numbers, with a warning); it gives float64. `key` is the array's name
    in a .npz file, `default` the name that is taken where there are several and no key.
    If `mapped`, a .npy file stays where it is, whatever its size, in its own byte
    order. Without an array of at most :func:`largest_array` bytes: a FileError.
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
            return _read_npz(path, key, default)
        with path.open("rb") as file:
            return _read_npy(path, file, mapped=mapped)
    except FileError:
        raise
    except OSError as error:
        raise FileError(f"{path}: {error.strerror or error}") from error
    except Exception as error:
        # NumPy and the readers below it name no set of errors for damaged files:
        # zlib.error, RuntimeError, TokenError, MemoryError for a header that
        # claims too much, and more have been seen.
        reason = " ".join(str(error).split()) or type(error).__name__
        raise FileError(f"{path}: cannot be read ({reason}); save it again") from error


def read_labels(path: Path, *, key: str | None = None) -> Array:
    """Read integer labels, shape (N,); a .csv file has one column, or one row."""
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


# --- .npy and .npz ------------------------------------------------------------------


def _read_npz(path: Path, key: str | None, default: str) -> Array:
    if not zipfile.is_zipfile(path):
        raise FileError(
            f"{path}: not a .npz file; write one with numpy.savez(path, logits=...)"
        )
    with zipfile.ZipFile(path) as archive:
        names = [name.removesuffix(".npy") for name in archive.namelist()]
        wanted = key or (names[0] if len(names) == 1 else default)
        if wanted not in names:
            unnamed = key is None and names
            remedy = "name one with --key" if unnamed else "see numpy.savez"
            raise FileError(
                f"{path}: expected an array named {wanted!r}, "
                f"got {_listed(names)}; {remedy}"
            )
        with archive.open(archive.namelist()[names.index(wanted)]) as file:
            return _read_npy(path, file)


def _listed(names: list[str]) -> str:
    few = ", ".join(map(repr, names[:10])) or "none"
    return f"{few} and {len(names) - 10} more" if len(names) > 10 else few


def row_blocks(array: Array) -> Iterator[tuple[slice, Array]]:
    """Slices of an array and their rows; of a mapped one, few stay in memory."""
    rows = max(1, BLOCK_ENTRIES // max(1, math.prod(array.shape[1:])))
    for start in range(0, len(array), rows):
        block = slice(start, min(start + rows, len(array)))
        if not isinstance(array, np.memmap) or not array.flags.c_contiguous:
            yield block, array[block]
            continue
        # Pages that were read stay as long as their map.
        place = array.offset + start * array.strides[0]
        shape = block.stop - start, *array.shape[1:]
        yield block, np.memmap(str(array.filename), array.dtype, "r", place, shape)


def _read_npy(path: Path, file: IO[bytes], *, mapped: bool = False) -> Array:
    """Look at what the header declares before any memory is taken for it."""
    form = np.lib.format
    if file.read(len(form.MAGIC_PREFIX)) != form.MAGIC_PREFIX:
        raise FileError(
            f"{path}: not a .npy file; write one with numpy.save(path, array)"
        )
    file.seek(0)
    old = form.read_magic(file) == (1, 0)
    length = int.from_bytes(file.read(2 if old else 4), "little")
    if length > _LONGEST_HEADER:
        raise FileError(
            f"{path}: expected a header of at most {_LONGEST_HEADER} bytes, got one of "
            f"{length}: the file is damaged; save it again"
        )
    file.seek(len(form.MAGIC_PREFIX) + 2)
    read = form.read_array_header_1_0 if old else form.read_array_header_2_0
    shape, _, dtype = read(file)
    if dtype.hasobject:
        raise FileError(
            f"{path}: it holds pickled Python objects, which are not loaded as they "
            "may run code; save a numeric array"
        )
    if dtype.kind not in "biufc":
        raise FileError(f"{path}: expected numbers, got dtype {dtype}")
    size, limit = math.prod(shape) * dtype.itemsize, largest_array()
    if mapped and dtype.itemsize <= 8:
        there = path.stat().st_size - file.tell()
        if there < size:
            raise FileError(
                f"{path}: expected {size} bytes of shape {shape}, got {there}: the "
                "file was cut short; save it again"
            )
        if size:
            return np.load(path, mmap_mode="r", allow_pickle=False)
    if size > limit:
        raise FileError(
            f"{path}: expected an array of at most {limit / 2**30:g} GiB, got shape "
            f"{shape} of {dtype}, {size / 2**30:.1f} GiB; to read it, set {LIMIT}="
            f"{math.ceil(size / 2**30)}"
        )
    file.seek(0)
    array = np.asarray(np.load(file, allow_pickle=False))
    # What torch can take.
    if dtype.kind == "f" and dtype.itemsize > 8:
        return array.astype(np.float64)
    return array.astype(dtype.newbyteorder("="), copy=False)


# --- .csv ---------------------------------------------------------------------------


def _read_csv(path: Path) -> Array:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            lines = _rows(path, file)
            head = list(itertools.islice(lines, 2))
            if not head:
                raise FileError(f"{path}: the file is empty")
            first, second = head[0][1], head[-1][1]
            header = _is_header(path, first, second)
            if header and len(head) == 1:
                raise FileError(f"{path}: a header line and no rows")
            array = np.array(
                [
                    _numbers(f"{path}: line {line}", cells, len(first))
                    for line, cells in itertools.chain(head[header:], lines)
                ]
            )
    except UnicodeDecodeError as error:
        raise FileError(f"{path}: not text in UTF-8, so not a .csv file") from error
    if header and _is_number(first[0]):
        warnings.warn(
            f"{path}: its first line, {reprlib.repr(','.join(first))[1:-1]}, is taken "
            "for the numbers of the columns and left out; if it is a sample, write it "
            f"as {first[0]}.0,{first[1]}.0{',...' * (len(first) > 2)}",
            UserWarning,
            stacklevel=3,
        )
    return array


def _rows(path: Path, file: Any) -> Iterator[tuple[int, list[str]]]:
    """Yield the number of each line that is not blank, as editors say it, and cells."""
    reader, last = csv.reader(file, strict=True), 0
    try:
        for row in reader:
            if any(cell.strip() for cell in row):
                last = reader.line_num
                yield last, [cell.strip() for cell in row]
    except csv.Error as error:
        what = str(error)
        if "end of data" in what:
            what = "expected every quote to be closed, got one that is not"
        raise FileError(f"{path}: after line {last}: {what}") from error


def _numbers(place: str, cells: list[str], width: int) -> Array:
    if len(cells) != width:
        raise FileError(f"{place}: expected {width} columns, got {len(cells)}")
    for column, cell in enumerate(cells, start=1):
        if not _is_number(cell):
            got = reprlib.repr(cell) if cell else "nothing"
            raise FileError(f"{place}, column {column}: expected a number, got {got}")
    return np.array([float(cell) for cell in cells])


def _is_header(path: Path, first: list[str], second: list[str]) -> bool:
    if first[0] == "" and len(first) > 1:
        raise FileError(
            f"{path}: its first column has no name, so it looks like row numbers; "
            "write the file without them (in pandas, to_csv(index=False))"
        )
    if not all(map(_is_number, first)):
        # A faulty row is no header: that one has names throughout.
        return not any(map(_is_number, first))
    # pandas names unnamed columns 0, 1, 2, ..., others 1, 2, 3, ...
    counts = [[str(start + i) for i in range(len(first))] for start in (0, 1)]
    numbered = len(first) > 1 and first in counts
    # With no second line, this one is it: a sample of whole numbers.
    return numbered and not all(cell.lstrip("+-").isdecimal() for cell in second)


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return "_" not in cell  # Python takes 1_0 for ten, other readers do not
