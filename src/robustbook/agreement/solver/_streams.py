"""Where logits are: in memory, mapped files, arrays that are cut, chunks."""

import itertools
import math
import mmap
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any, Final, Protocol

import numpy as np
import torch
from torch import Tensor

from robustbook._checks.arguments import as_tensor, check_views, view_names

#: Entries of one view that are read at a time.
BLOCK_ENTRIES: Final = 2**20
#: Chunks of a stream are joined to at least this many.
JOINED_ENTRIES: Final = 2**17
#: Arrays of at most this many entries are loaded, wherever they are.
LOADED_ENTRIES: Final = 2**21


class Source(Protocol):
    """Logits of the same samples in several views; may be read many times.

    ``num_samples`` is None as long as it is not known.
    """

    num_views: int
    num_classes: int
    num_samples: int | None
    device: torch.device

    def blocks(self) -> Iterator[tuple[Tensor, ...]]:
        """One pass: blocks of all samples in order, a tensor (n, K) for each view."""


class InMemory:
    """Checked tensors."""

    def __init__(self, views: tuple[Tensor, ...]) -> None:
        self.views = views
        self.num_views = len(views)
        self.num_samples: int | None
        self.num_samples, self.num_classes = views[0].shape
        self.device = views[0].device

    def blocks(self) -> Iterator[tuple[Tensor, ...]]:
        """All samples at once."""
        yield self.views


def open_views(*views: Any, empty: bool = False) -> Source:
    """Where the logits are: arrays, files and the like, or one stream of chunks."""
    if len(views) == 1 and not isinstance(views[0], (Tensor, np.ndarray)):
        return Chunks(views[0])
    readers = [_reader(*own) for own in zip(view_names(len(views)), views, strict=True)]
    if any(own is not None for own in readers):
        named = zip(view_names(len(views)), views, readers, strict=True)
        cut = [as_tensor(n, view) if own is None else own for n, view, own in named]
        return Cut(cut, empty=empty)
    return InMemory(check_views(*views, empty=empty))


class Cut:
    """Arrays of which blocks of rows are read: files, zarr, HDF5, beside tensors."""

    def __init__(self, views: Sequence[Any], *, empty: bool = False) -> None:
        self._views = views
        # Of the first samples, shape and type; all numbers in the first pass.
        first = check_views(*(view[0:1] for view in views), empty=empty)
        shape, *others = (tuple(view.shape) for view in views)
        for name, other in zip(view_names(len(views))[1:], others, strict=True):
            if other != shape:
                raise ValueError(
                    f"{name}: expected the shape of logits, {shape} (row i of both "
                    f"must be the same sample), got {other}"
                )
        self.num_views = len(views)
        self.num_samples: int | None
        self.num_samples, self.num_classes = shape
        self.device = first[0].device
        self._sums = RunningSums(self._changed)

    def blocks(self) -> Iterator[tuple[Tensor, ...]]:
        known = self._sums.known
        rows = max(1, BLOCK_ENTRIES // self.num_classes)
        for place, start in enumerate(range(0, self.num_samples or 0, rows)):
            rows_read = [view[start : start + rows] for view in self._views]
            block = _tensors(rows_read, start, known=known)
            self._sums.compare(place, block)
            yield block
        self._sums.known = True

    def _changed(self, place: int, which: int) -> Exception:
        view, name = self._views[which], view_names(self.num_views)[which]
        where = view.path if isinstance(view, MappedFile) else "the array"
        return OSError(
            f"{name}: expected {where} to stay as it was in the first pass, got other "
            f"numbers in block {place}; measure again when nobody writes to it"
        )


class MappedFile:
    """An array that numpy mapped from a file; its rows are read instead.

    What is read does not stay in the memory of the process, and where the file was cut
    short there is an error and no crash.
    """

    def __init__(self, name: str, array: np.memmap[Any, Any], start: int) -> None:
        self.name = name
        self.path = Path(str(array.filename))
        self.shape, self.dtype = array.shape, array.dtype
        self._start = start

    def __getitem__(self, rows: slice) -> np.ndarray[Any, Any]:
        total, width = self.shape
        start, stop, _ = rows.indices(total)
        with self._open() as file:
            file.seek(self._start + start * width * self.dtype.itemsize)
            values = np.fromfile(file, self.dtype, max(0, stop - start) * width)
        if len(values) < (stop - start) * width:
            raise OSError(
                f"{self.name}: expected {total} rows of {width} in {self.path} to stay "
                f"there, got a file that ends in row {start + len(values) // width}; "
                "write it again"
            )
        return values.reshape(-1, width)

    def _open(self) -> IO[bytes]:
        try:
            return self.path.open("rb")
        except FileNotFoundError as error:
            raise FileNotFoundError(
                f"{self.name}: expected the mapped file {self.path} to stay until all "
                "is measured, got no such file; put it back, or load it into memory"
            ) from error


class RunningSums:
    """What tells a later pass from the first one: sums of its numbers, by block.

    Each row counts by its place: rows that changed places are seen as well.
    """

    def __init__(self, changed: Callable[[int, int], Exception]) -> None:
        self.known = False
        self._changed = changed
        #: Of each block the number of rows, and of each view the sum.
        self._sums: list[list[float]] = []

    def __len__(self) -> int:
        return len(self._sums)

    def compare(self, place: int, block: Sequence[Tensor]) -> None:
        """Keep the sums of a block, or refuse one whose sums are others."""
        sums = [float(len(block[0])), *map(_weighted_sum, block)]
        if not self.known:
            self._sums.append(sums)
        elif place >= len(self) or sums[0] != self._sums[place][0]:
            raise self._changed(place, 0)
        else:
            pairs = zip(sums[1:], self._sums[place][1:], strict=True)
            for which, (now, before) in enumerate(pairs):
                # What is no number is refused by who adds it up.
                if now != before and not math.isnan(now):
                    raise self._changed(place, which)


def _weighted_sum(view: Tensor) -> float:
    rows = view.double().sum(1)
    places = torch.arange(1, len(rows) + 1, dtype=torch.float64, device=rows.device)
    return float((rows * places).sum())


class Chunks:
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
        self._sums = RunningSums(lambda place, _: _changed(place))
        self.num_samples: int | None = None
        # The look at the first chunk begins the first pass: a stream that is another
        # when it is read again is seen.
        begun = self._read()
        first = next(begun, None)
        self._begun = itertools.chain([] if first is None else [first], begun)
        self.num_views = len(first) if first else 0
        self.num_classes = first[0].shape[1] if first else 0
        self.device = first[0].device if first else torch.device("cpu")

    def blocks(self) -> Iterator[tuple[Tensor, ...]]:
        place, size, small = -1, 0, []
        blocks = self._read() if self._sums.known else self._begun
        for place, block in enumerate(blocks):
            self._sums.compare(place, block)
            size += len(block[0])
            # Work on many samples costs little more than on a few.
            small.append(block)
            if sum(own[0].numel() for own in small) >= JOINED_ENTRIES:
                yield _joined(small)
                small = []
        if small:
            yield _joined(small)
        if place + 1 != len(self._sums):
            raise _changed(place + 1)
        self.num_samples, self._sums.known = size, True

    def _read(self) -> Iterator[tuple[Tensor, ...]]:
        """One pass: the chunks that have samples."""
        known, start = self.num_samples is not None, 0
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
            block = _tensors(chunk, start, known=known, empty=True)
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


def _joined(blocks: Sequence[tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
    if len(blocks) == 1:
        return blocks[0]
    return tuple(torch.cat(views) for views in zip(*blocks, strict=True))


def _changed(place: int) -> ValueError:
    return ValueError(
        "stream: expected the same chunks in every pass, got others from chunk "
        f"{place} on; yield all of them, in one order (shuffle=False)"
    )


def _tensors(
    block: Sequence[Any], start: int, *, known: bool, empty: bool = False
) -> tuple[Tensor, ...]:
    """The block as tensors, checked in the first pass."""
    if known:
        return tuple(map(as_tensor, view_names(len(block)), block))
    return check_views(*block, empty=empty, start=start)


def _reader(name: str, view: Any) -> Any:
    """What reads an array block by block; None for one that is in memory, or small."""
    array = isinstance(view, (Tensor, np.ndarray))
    if not all(hasattr(view, part) for part in ("shape", "dtype", "__getitem__")):
        return None
    if len(view.shape) != 2 or math.prod(view.shape) <= LOADED_ENTRIES:
        return None
    if not array:
        return view
    if not isinstance(view, np.memmap) or not view.flags.c_contiguous:
        return None
    if view.mode == "c":
        return None  # what was written to it is not in the file
    start = _place_in_file(view)
    return None if start is None else MappedFile(name, view, start)


def _place_in_file(array: np.memmap[Any, Any]) -> int | None:
    """Where in its file an array begins; views of a mapped array know it not."""
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

    def __init__(self, empty: list[Tensor], most: int) -> None:
        self._parts = [empty]
        self._most = most
        self._count, self._step = 0, 1

    @property
    def rows(self) -> list[Tensor]:
        """The rows so far, one tensor for each view."""
        return [torch.cat(views) for views in zip(*self._parts, strict=True)]

    def add(self, start: int, chunk: Sequence[Tensor]) -> None:
        """Look at the next rows, of which the first has the number `start`."""
        new = slice(-start % self._step, None, self._step)
        if not self._most or new.start >= len(chunk[0]):
            return
        self._parts.append([view[new].double() for view in chunk])
        self._count += len(self._parts[-1][0])
        while self._count > 2 * self._most:
            self._step *= 2
            self._parts = [[view[::2].clone() for view in self.rows]]
            self._count = len(self._parts[0][0])
