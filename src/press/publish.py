"""Run chapters: for a reader into a scratch folder, or for the site."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from nbformat import NotebookNode
from tqdm import tqdm

from press.execute import Execution, execute
from press.layout import BookError, Chapter
from press.pictures import lighten_pictures
from press.source import (
    Source,
    check_writable,
    parameter_values,
    read_source,
    render,
    sync,
    write_whole,
)
from press.stamps import STAMP, data_sums, input_hashes, package_versions
from press.status import record_timing, write_status

__all__ = ["PUBLISHED", "publish", "rerun"]

#: What the site shows: all of a chapter, on the processor that every reader has.
PUBLISHED: Mapping[str, Any] = {"profile": "full", "device": "cpu"}


def rerun(
    chapter: Chapter,
    *,
    parameters: Mapping[str, Any],
    output: Path | None = None,
    progress: bool = True,
) -> Path:
    """Run a chapter for yourself; what is published stays as it is.

    The executed notebook, whose path is returned, goes to ``output``, by default
    ``_build/rerun/<chapter>_<profile>.ipynb`` in the book.

    Raises
    ------
    ChapterError
        If a cell raises.
    BookError
        If the chapter has no parameter of a given name, or the output cannot be
        written.
    """
    source = read_source(chapter)
    if output is None:
        profile = {**parameter_values(source.notebook), **parameters}.get(
            "profile", "run"
        )
        folder = chapter.root / "_build" / "rerun"
        output = folder / f"{chapter.name}_{profile}.ipynb"
    check_writable(output)
    execution = execute(
        source,
        parameters=parameters,
        repeatable=False,
        warnings_fail=False,
        progress=progress,
    )
    write_whole(output, render(execution.notebook))
    return output


def publish(
    chapters: Sequence[Chapter],
    *,
    parameters: Mapping[str, Any] = PUBLISHED,
    jobs: int | None = None,
    progress: bool = True,
) -> list[BookError]:
    """Execute chapters of one book and publish each one that runs to its end.

    Without ``jobs`` as many run at a time as there are cores, at most 4. What is
    returned says which failed: of those, what is published stays as it was.
    """
    if not chapters:
        return []
    workers = min(jobs or min(os.cpu_count() or 1, 4), len(chapters))
    failures: list[BookError] = []
    with ThreadPoolExecutor(workers) as pool:
        for chapter, result in _execute_all(pool, chapters, parameters, progress):
            if isinstance(result, BookError):
                failures.append(result)
                tqdm.write(f"{chapter.name}: failed", file=sys.stderr)
                continue
            source, execution, hashes = result
            if hashes != input_hashes(chapter) or _data_changed(
                chapter.root, execution
            ):
                failures.append(
                    BookError(f"{chapter.name}: its inputs changed while it ran; again")
                )
                continue
            lighten_pictures(execution.notebook)
            stamped = _stamp(source, execution, hashes, parameters)
            write_whole(chapter.published, render(stamped))
            record_timing(chapter, execution.seconds)
            tqdm.write(f"{chapter.name}: {execution.seconds:.1f} s", file=sys.stderr)
    write_status(chapters[0].root)
    return failures


def _data_changed(root: Path, execution: Execution) -> bool:
    """Whether a file of ``data`` that was read has been written since."""
    return any(
        Path(path).is_relative_to(root / "data")
        and Path(path).stat().st_mtime > execution.started
        for path, *_ in execution.reads
    )


_Done = tuple[Source, Execution, dict[str, str]]


def _execute_all(
    pool: ThreadPoolExecutor,
    chapters: Sequence[Chapter],
    parameters: Mapping[str, Any],
    progress: bool,
) -> Iterator[tuple[Chapter, _Done | BookError]]:
    """Yield each chapter with what came of it, in the order in which they end."""

    def one(chapter: Chapter) -> _Done:
        sync(chapter)
        hashes = input_hashes(chapter)
        source = read_source(chapter)
        return source, execute(source, parameters=parameters, progress=progress), hashes

    futures = {pool.submit(one, chapter): chapter for chapter in chapters}
    bar = tqdm(
        as_completed(futures),
        total=len(futures),
        desc="chapters",
        unit="chapter",
        disable=None if progress else True,
    )
    for future in bar:
        try:
            yield futures[future], future.result()
        except BookError as error:
            yield futures[future], error


def _stamp(
    source: Source,
    execution: Execution,
    hashes: Mapping[str, str],
    parameters: Mapping[str, Any],
) -> NotebookNode:
    values = {**parameter_values(source.notebook), **parameters}
    execution.notebook.metadata[STAMP] = {
        **hashes,
        "data": data_sums(source.chapter.root, execution.reads),
        "device": _device(values.get("device", "cpu")),
        "parameters": values,
        "versions": package_versions(),
    }
    return execution.notebook


def _device(wanted: Any) -> str:
    if wanted not in ("auto", "cuda"):
        return str(wanted)
    import torch

    return torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
