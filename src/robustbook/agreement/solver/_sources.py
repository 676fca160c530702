"""Where the samples are: in memory, in files, in a stream.

A source gives the same blocks of samples in every pass over the data. Blocks that are
read anew must have the sums of the first pass.
"""

from __future__ import annotations

import itertools
import math
import mmap
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from robustbook._checks.arguments import (
    as_tensor,
    check_paired,
    check_views,
    view_names,
)

#: Entries of one view that are read at a time.
BLOCK_ENTRIES: Final = 2**20
#: Chunks of a stream are joined to at least this many.
JOINED_ENTRIES: Final = 2**17
#: Arrays of at most this many entries are loaded, wherever they are.
LOADED_ENTRIES: Final = 2**21

Block = tuple[Tensor, ...]


class Source:
    """Logits of the same samples in several views: here, checked tensors in memory."""

    #: None as long as it is not known.
    num_samples: int | None

    def __init__(self, views: Block) -> None:
        self.views = views
        self.num_views = len(views)
        self.num_samples, self.num_classes = views[0].shape
        self.device = views[0].device

    def blocks(self) -> Iterator[Block]:
        """One pass: blocks of all samples in order, a tensor (n, K) for each view."""
        yield self.views


class Stream(Source):
    """Chunks of samples, which a function or an object yields anew in every pass."""

    def __init__(self, chunks: Callable[[], Iterable[Any]] | Iterable[Any]) -> None:
        if not callable(chunks) and not isinstance(chunks, Iterable):
            raise TypeError(
                "logits: expected two or more arrays, or a stream of chunks of them, "
                f"got {type(chunks).__name__} alone"
            )
        if isinstance(chunks, Iterator):
            raise TypeError(
                "stream: expected chunks that can be read many times, got "
                f"{type(chunks).__name__}, which can be read once; pass the function "
                "that makes it, or an object such as a DataLoader"
            )
        self._chunks = chunks
        self.views, self.num_samples = (), None
        #: Of each block of the first pass the number of rows, and of each view a sum.
        self._sums: list[list[float]] = []
        self._complete = False
        # Shapes come from the first block. The first pass goes on from there, so that a
        # stream is noticed which differs when it is read again.
        rest = self._read()
        block = next(rest, ())
        self._first_pass = itertools.chain([block] if block else [], rest)
        self.num_views = len(block)
        self.num_classes = block[0].shape[1] if block else 0
        self.device = block[0].device if block else torch.device("cpu")

    def blocks(self) -> Iterator[Block]:
        place, small = -1, list[Block]()
        blocks = self._read() if self._complete else self._first_pass
        for place, block in enumerate(blocks):
            self._compare(place, block)
            # A large block costs little more than a small one.
            small.append(block)
            if sum(views[0].numel() for views in small) >= JOINED_ENTRIES:
                yield _joined(small)
                small = []
        if small:
            yield _joined(small)
        if place + 1 != len(self._sums):
            raise self._changed(place + 1)
        self.num_samples = round(sum(size for size, *_ in self._sums))
        self._complete = True

    def _compare(self, place: int, block: Block) -> None:
        """Keep the sums of a block, or refuse a block whose sums have changed.

        Rows are weighted by their place, so that rows which swapped places are noticed.
        """
        sums = [float(len(block[0])), *map(_sum_by_place, block)]
        if not self._complete:
            self._sums.append(sums)
            return
        before = self._sums[place] if place < len(self._sums) else []
        if sums != before:
            same = [now == then for now, then in zip(sums, before, strict=False)]
            raise self._changed(place, max(same.index(False) - 1, 0) if same else 0)

    def _changed(self, place: int, view: int = 0) -> Exception:
        return ValueError(
            "stream: expected the same chunks in every pass, got others from chunk "
            f"{place} on; yield all of them, in one order (shuffle=False)"
        )

    def _read(self) -> Iterator[Block]:
        """One pass: the chunks that have samples, checked in the first pass."""
        start, checked = 0, self._complete
        chunks = self._chunks() if callable(self._chunks) else self._chunks
        if not isinstance(chunks, Iterable):
            raise TypeError(
                "stream: expected a function that returns chunks to iterate over, got "
                f"{type(chunks).__name__} from it; let it yield or return them"
            )
        for place, chunk in enumerate(chunks):
            if not isinstance(chunk, (tuple, list)) or len(chunk) < 2:
                raise TypeError(
                    "stream: expected chunks of two or more arrays (n, K), got "
                    f"{type(chunk).__name__} as chunk {place}"
                )
            block: Block
            if checked:
                block = tuple(map(as_tensor, view_names(len(chunk)), chunk))
            else:
                block = check_views(*chunk, empty=True, start=start)
            if not len(block[0]):
                continue
            shape = len(block), block[0].shape[1]
            if start and shape != (self.num_views, self.num_classes):
                raise ValueError(
                    f"stream: expected {self.num_views} arrays with "
                    f"{self.num_classes} classes, as in the first chunk, got "
                    f"{shape[0]} with {shape[1]} in chunk {place}"
                )
            yield block
            start += len(block[0])


def _sum_by_place(view: Tensor) -> float:
    rows = view.double().sum(1)
    places = torch.arange(1, len(rows) + 1, dtype=torch.float64, device=rows.device)
    return float((rows * places).sum())


def _joined(blocks: Sequence[Block]) -> Block:
    if len(blocks) == 1:
        return blocks[0]
    return tuple(torch.cat(views) for views in zip(*blocks, strict=True))


class Rows(Stream):
    """A stream of rows of arrays: mapped files, zarr, HDF5, beside tensors."""

    def __init__(self, arrays: Sequence[Any]) -> None:
        self.arrays = arrays
        for name, array in zip(view_names(len(arrays)), arrays, strict=True):
            check_paired(("logits", name), arrays[0], array)
        size, classes = arrays[0].shape
        step = max(1, BLOCK_ENTRIES // classes)
        super().__init__(
            lambda: (
                tuple(view[start : start + step] for view in arrays)
                for start in range(0, size, step)
            )
        )
        self.num_samples = size

    def _changed(self, place: int, view: int = 0) -> Exception:
        array = self.arrays[view]
        where = array.path if isinstance(array, MappedFile) else "the array"
        return OSError(
            f"{view_names(self.num_views)[view]}: expected {where} to stay as it was "
            f"in the first pass, got other numbers in block {place}; measure again "
            "when nobody writes to it"
        )


class MappedFile:
    """An array that numpy mapped from a file; its rows are read instead.

    What is read does not stay in the memory of the process, and where the file was cut
    short there is an error and no crash.
    """

    #: For messages.
    name = "logits"

    def __init__(self, array: np.memmap[Any, Any], start: int) -> None:
        self.path = Path(str(array.filename))
        self.shape, self.dtype = array.shape, array.dtype
        self._start = start

    def __getitem__(self, rows: slice) -> np.ndarray[Any, Any]:
        total, width = self.shape
        start, stop, _ = rows.indices(total)
        place = self._start + start * width * self.dtype.itemsize
        count = max(0, stop - start) * width
        try:
            values = np.fromfile(self.path, self.dtype, count, offset=place)
        except FileNotFoundError as error:
            raise FileNotFoundError(
                f"{self.name}: expected the mapped file {self.path} to stay until all "
                "is measured, got no such file; put it back, or load it into memory"
            ) from error
        if len(values) < count:
            raise OSError(
                f"{self.name}: expected {total} rows of {width} in {self.path} to stay "
                f"there, got a file that ends in row {start + len(values) // width}; "
                "write it again"
            )
        return values.reshape(-1, width)


def open_views(*views: Any, empty: bool = False) -> Source:
    """Return the source of arrays, of files and the like, or of a stream of chunks."""
    if len(views) == 1 and not isinstance(views[0], (Tensor, np.ndarray)):
        return Stream(views[0])
    arrays = list(map(_sliced, views))
    if all(array is None for array in arrays):
        return Source(check_views(*views, empty=empty))
    for place, name in enumerate(view_names(len(views))):
        if arrays[place] is None:
            arrays[place] = as_tensor(name, views[place])
        elif isinstance(arrays[place], MappedFile):
            arrays[place].name = name
    return Rows(arrays)


def _sliced(view: Any) -> Any:
    """Return what reads rows of an array; None for one that is in memory, or small."""
    if not all(hasattr(view, part) for part in ("shape", "dtype", "__getitem__")):
        return None
    if len(view.shape) != 2 or math.prod(view.shape) <= LOADED_ENTRIES:
        return None
    if not isinstance(view, (Tensor, np.ndarray)):
        return view
    if not isinstance(view, np.memmap) or not view.flags.c_contiguous:
        return None
    if view.mode == "c":
        return None  # what was written to it is not in the file
    start = _place_in_file(view)
    return None if start is None else MappedFile(view, start)


def _place_in_file(array: np.memmap[Any, Any]) -> int | None:
    """Return where in its file an array begins: slices have the offset of the whole."""
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    if not isinstance(base, mmap.mmap) or array.filename is None:
        return None
    mapped = np.frombuffer(base, np.uint8).__array_interface__["data"][0]
    inside = int(array.__array_interface__["data"][0]) - mapped
    # Maps begin at a multiple of the granularity.
    return array.offset - array.offset % mmap.ALLOCATIONGRANULARITY + inside


class EvenRows:
    """Every s-th row of chunks that come one by one, where s grows with their number.

    At most twice as many rows are kept as asked for.
    """

    def __init__(self, empty: Block, most: int) -> None:
        self._parts, self._most = [empty], most
        self._count, self._step = 0, 1

    @property
    def rows(self) -> Block:
        """The rows so far, one tensor for each view."""
        return tuple(torch.cat(views) for views in zip(*self._parts, strict=True))

    def add(self, start: int, chunk: Sequence[Tensor]) -> None:
        """Look at the next rows, of which the first has the number `start`."""
        new = slice(-start % self._step, None, self._step)
        if not self._most or new.start >= len(chunk[0]):
            return
        self._parts.append(tuple(view[new].double() for view in chunk))
        self._count += len(self._parts[-1][0])
        while self._count > 2 * self._most:
            self._step *= 2
            self._parts = [tuple(view[::2].clone() for view in self.rows)]
            self._count = len(self._parts[0][0])
