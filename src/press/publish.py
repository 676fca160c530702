"""Run chapters: for a reader into a scratch folder, or for the site."""

from __future__ import annotations

import base64
import io
import os
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future, as_completed
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

from nbformat import NotebookNode
from PIL import Image, ImageChops, ImageStat
from tqdm import tqdm

from press.execute import chapter_processes, execute, execute_here
from press.layout import BookError, Chapter
from press.pairs import as_page
from press.source import (
    METADATA,
    check_writable,
    code_cells,
    code_of,
    parameter_values,
    read_source,
    render,
    weave,
    write_whole,
)
from press.stamps import STAMP, code_sum, data_sums, package_versions
from press.status import record_timing, write_status

#: What the site shows: all of a chapter, on the processor that every reader has.
PUBLISHED: Mapping[str, Any] = {"profile": "full", "device": "cpu"}

#: In bytes: smaller pictures are not worth the time.
SMALL = 40_000
#: The mean change of a pixel's color, of 255, that a picture may suffer.
LARGEST_CHANGE = 0.5


def rerun(
    chapter: Chapter, *, parameters: Mapping[str, Any], output: Path | None = None
) -> Path:
    """Run a chapter for yourself; what is published stays as it is.

    The executed notebook, whose path is returned, goes to ``output``, by default
    ``_build/rerun/<chapter>_<profile>.ipynb`` in the book.
    """
    source = read_source(chapter)
    if output is None:
        profile = {**parameter_values(source.notebook), **parameters}.get(
            "profile", "run"
        )
        folder = chapter.root / "_build" / "rerun"
        output = folder / f"{chapter.name}_{profile}.ipynb"
    check_writable(output)
    execution = execute(source, parameters=parameters, strict=False)
    write_whole(output, render(as_page(source, execution.notebook)))
    return output


def publish(
    chapters: Sequence[Chapter],
    *,
    parameters: Mapping[str, Any] = PUBLISHED,
    jobs: int | None = None,
) -> list[BookError]:
    """Execute chapters of one book and publish each one that runs to its end.

    Without ``jobs`` as many run at a time as there are cores, at most 4. What is
    returned says which failed: of those, what is published stays as it was.
    """
    if not chapters:
        return []
    failures: list[BookError] = []
    with chapter_processes(jobs or min(os.cpu_count() or 1, 4)) as pool:
        runs: dict[Future[float], Chapter] = {
            pool.submit(_publish, chapter, parameters): chapter for chapter in chapters
        }
        finished = as_completed(runs)
        for run in tqdm(finished, "chapters", len(runs), unit="chapter", disable=None):
            chapter = runs[run]
            try:
                seconds = run.result()
            except BookError as error:
                failures.append(error)
            except BrokenProcessPool as error:  # all that run then, or wait
                failures.append(BookError(f"{chapter.name}: {error}"))
            else:
                record_timing(chapter, seconds)
                tqdm.write(f"{chapter.name}: {seconds:.1f} s", file=sys.stderr)
                continue
            tqdm.write(f"{chapter.name}: failed", file=sys.stderr)
    write_status(chapters[0].root)
    return failures


def _publish(chapter: Chapter, parameters: Mapping[str, Any]) -> float:
    """Execute and publish one chapter; return how long it ran."""
    started, code, source = time.time(), code_sum(chapter), read_source(chapter)
    execution = execute_here(source, parameters=parameters)
    # Its text may have changed.
    now, data = read_source(chapter), data_sums(chapter.root, execution.reads)
    if (
        code_of(now.notebook) != code_of(source.notebook)
        or code_sum(chapter) != code
        or _changed_since(chapter.root, started, data)
    ):
        raise BookError(f"{chapter.name}: its inputs changed while it ran; again")
    cells = code_cells(execution.notebook)
    false = [
        f"\n{cell.id}: {output.data['text/plain']}"
        for cell in cells
        for output in cell.outputs
        # So `robustbook.notebook.claim` marks what the run proved false.
        if output.get("metadata", {}).get("robustbook_claim") is False
    ]
    if false:
        raise BookError(f"{chapter.name}: not published{''.join(false)}")
    lighten_pictures(execution.notebook)
    stamp = {
        "code_sha256": code,
        "data": data,
        "parameters": {**parameter_values(source.notebook), **parameters},
        "versions": package_versions(),
    }
    stamped = weave(now, cells, {**METADATA, STAMP: stamp})
    write_whole(chapter.published, render(stamped))
    return execution.seconds


def _changed_since(root: Path, started: float, names: Iterable[str]) -> bool:
    files = [root / name.partition("#/")[0] for name in names]
    return any(file.stat().st_mtime > started for file in files if file.exists())


def lighten(content: bytes) -> bytes:
    """Return a PNG picture with a palette of 256 colors, at a third of its size.

    Where the difference could be seen, or some pixels are transparent, it stays.
    """
    if len(content) < SMALL:
        return content
    with Image.open(io.BytesIO(content)) as opened:
        if opened.mode not in ("RGB", "RGBA"):
            return content
        if opened.mode == "RGBA" and opened.getchannel("A").getextrema() != (255, 255):
            return content
        picture = opened.convert("RGB")
    few = picture.quantize(256, dither=Image.Dither.NONE)
    change = ImageStat.Stat(ImageChops.difference(picture, few.convert("RGB"))).mean
    lighter = io.BytesIO()
    few.save(lighter, format="PNG", optimize=True)
    worth = max(change) <= LARGEST_CHANGE and lighter.tell() < len(content)
    return lighter.getvalue() if worth else content


def lighten_pictures(notebook: NotebookNode) -> None:
    """Lighten every picture among the outputs of a notebook."""
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            data = output.get("data", {})
            if "image/png" in data:
                content = lighten(base64.b64decode(data["image/png"]))
                data["image/png"] = base64.b64encode(content).decode("ascii")
