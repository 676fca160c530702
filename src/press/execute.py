"""Execute one chapter with papermill, into a notebook whose bytes repeat."""

from __future__ import annotations

import json
import logging
import os
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat
import papermill
from jupyter_client.kernelspec import KernelSpec
from jupyter_client.manager import AsyncKernelManager
from jupyter_core.utils import ensure_event_loop
from nbclient.exceptions import DeadKernelError
from nbformat import NotebookNode
from papermill.exceptions import PapermillExecutionError, strip_color

from press.layout import BookError
from press.source import (
    EXECUTED_WITH,
    METADATA,
    Source,
    cell_tags,
    code_cells,
    parameter_values,
    weave,
)

#: What starts a kernel.
KERNEL = (sys.executable, "-m", "ipykernel_launcher")

# The tail of a traceback that is shown: the cell's own frame and the error.
_TRACEBACK_LINES = 25

# One thread: sums come out the same on a machine with more cores.
_ONE_THREAD = {f"{name}_NUM_THREADS": "1" for name in ("MKL", "OMP", "OPENBLAS")}

_PAPERMILL_TAG = "injected-parameters"


class ChapterError(BookError):
    """A chapter did not run to its end, or wrote a warning."""

    status = 1


@dataclass(frozen=True)
class Execution:
    """An executed chapter, how long it took, also by cell, and what it read of data."""

    notebook: NotebookNode
    seconds: float
    cell_seconds: tuple[float, ...]
    started: float
    reads: tuple[tuple[str, ...], ...]


def execute(
    source: Source,
    *,
    parameters: Mapping[str, Any],
    strict: bool = True,
) -> Execution:
    """Execute a chapter from top to bottom in a kernel of this Python.

    The notebook keeps no trace of when, where or how fast it ran. ``strict`` is with
    one thread, so that numbers do not depend on the machine's cores, and counts
    anything on standard error as a failure.
    """
    name = source.chapter.name
    known = parameter_values(source.notebook)
    for parameter in parameters:
        if parameter not in known:
            raise BookError(
                f"{name} has no parameter {parameter!r}; "
                f"it has {', '.join(known) or 'none'}"
            )
    began, started = time.time(), time.perf_counter()
    with (
        tempfile.TemporaryDirectory(
            prefix="robustbook-", ignore_cleanup_errors=True
        ) as folder,
        _event_loop(),
    ):
        log, listing = Path(folder, "kernel.log"), Path(folder, "reads")
        try:
            executed = papermill.execute_notebook(
                nbformat.from_dict(source.notebook),
                None,
                dict(parameters),
                kernel_name=METADATA["kernelspec"]["name"],
                language="python",
                # disable=None: only on a terminal.
                progress_bar={"desc": name, "leave": False, "disable": None},
                kernel_manager_class=_kernel_manager(
                    source.chapter.root, log, listing, one_thread=strict
                ),
                # Not papermill's `cwd`, which moves this whole process: chapters
                # run side by side in threads.
                resources={"metadata": {"path": str(source.chapter.root)}},
            )
        except PapermillExecutionError as error:
            raise ChapterError(_describe(source, error, bool(parameters))) from None
        except (DeadKernelError, RuntimeError) as error:
            raise ChapterError(f"{name}: {error}\n\n{_tail(log)}") from error
        lines = listing.read_text("utf-8").splitlines() if listing.is_file() else []
    notebook = _normalize(source, executed)
    if strict:
        _refuse_stderr(source, notebook)
    return Execution(
        notebook,
        time.perf_counter() - started,
        _cell_seconds(executed),
        began,
        tuple(sorted({tuple(json.loads(line)) for line in lines})),
    )


def _cell_seconds(executed: NotebookNode) -> tuple[float, ...]:
    return tuple(
        float(cell.metadata.get("papermill", {}).get("duration") or 0.0)
        for cell in executed.cells
        if _PAPERMILL_TAG not in cell_tags(cell)
    )


@contextmanager
def _event_loop() -> Iterator[None]:
    """Close the event loop that nbclient makes in this thread and leaves open."""
    try:
        yield
    finally:
        loop = ensure_event_loop()
        if not loop.is_running():
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.close()


def _kernel_manager(
    root: Path, log: Path, reads: Path, *, one_thread: bool
) -> type[AsyncKernelManager]:
    """Start this very Python, with none of the user's kernels and configuration.

    What the kernel itself says goes to ``log``.
    """
    path = [str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]
    env = {
        "IPYTHONDIR": str(log.parent),
        "MPLBACKEND": "module://matplotlib_inline.backend_inline",
        "PATH": os.pathsep.join(path),
        "PYDEVD_DISABLE_FILE_VALIDATION": "1",
        "PYTHONHASHSEED": "0",
        # The package lists there which files of data it reads.
        "ROBUSTBOOK_READS": str(reads),
        # Dates in vector figures.
        "SOURCE_DATE_EPOCH": "0",
    }
    if (root / "src").is_dir():
        # The package that is stamped is the package that runs.
        env["PYTHONPATH"] = str(root / "src")
    if one_thread:
        env |= _ONE_THREAD
    options = ("-f", "{connection_file}", "--HistoryManager.enabled=False")
    spec = KernelSpec(
        argv=[*KERNEL, *options],
        env=env,
        display_name=METADATA["kernelspec"]["display_name"],
        language=METADATA["kernelspec"]["language"],
    )

    class ThisPython(AsyncKernelManager):
        @property
        def kernel_spec(self) -> KernelSpec:
            return spec

        # jupyter_client declares the synchronous signature for both managers.
        async def start_kernel(self, **options: Any) -> None:  # type: ignore[override]
            with log.open("ab") as file:
                await super().start_kernel(**options, stderr=file)

    # papermill logs each parameter and each cell.
    logging.getLogger("papermill").setLevel(logging.ERROR)
    return ThisPython


def _tail(log: Path) -> str:
    text = log.read_text(errors="replace") if log.is_file() else ""
    return "\n".join(text.splitlines()[-_TRACEBACK_LINES:])


def _describe(
    source: Source, error: PapermillExecutionError, has_parameters: bool
) -> str:
    """Say which cell failed, with its code and the tail of the traceback."""
    tagged = ["parameters" in cell_tags(cell) for cell in source.notebook.cells]
    # papermill adds a cell after that of the parameters, else at the top.
    added = tagged.index(True) + 1 if True in tagged else 0
    index = error.cell_index - (has_parameters and error.cell_index >= added)
    traceback = strip_color("\n".join(error.traceback)).splitlines()
    tail = "\n".join(traceback[-_TRACEBACK_LINES:])
    return (
        f"{source.chapter.name} failed in the cell at {source.place(index)}:\n\n"
        f"{textwrap.indent(error.source, '    ')}\n\n{tail}"
    )


def _normalize(source: Source, executed: NotebookNode) -> NotebookNode:
    """Return the executed chapter with the cells and the ids of its source.

    The values that papermill injects go to the end of the parameters cell.
    """
    code: list[NotebookNode] = []
    for cell in code_cells(executed):
        if _PAPERMILL_TAG in cell_tags(cell):
            given = cell.source.removeprefix("# Parameters\n")
            code[-1].source += EXECUTED_WITH + given.rstrip()
            continue
        cell.execution_count = len(code) + 1
        cell.outputs = _merge(cell.outputs, cell.execution_count)
        code.append(cell)
    return weave(source, code)


def _merge(outputs: list[NotebookNode], count: int) -> list[NotebookNode]:
    """Join neighboring pieces of one stream: where it breaks is a matter of time."""
    merged: list[NotebookNode] = []
    for output in outputs:
        kind, last = output.output_type, merged[-1] if merged else None
        if kind == "stream" and last is not None and last.get("name") == output.name:
            last.text += output.text
            continue
        if kind == "execute_result":
            output.execution_count = count
        merged.append(output)
    return merged


def _refuse_stderr(source: Source, notebook: NotebookNode) -> None:
    for index, cell in enumerate(notebook.cells):
        for output in cell.get("outputs", []):
            if output.output_type == "stream" and output.name == "stderr":
                raise ChapterError(
                    f"{source.chapter.name}: the cell at {source.place(index)} wrote "
                    "to standard error, and a warning counts as a failure:\n\n"
                    f"{textwrap.indent(output.text.rstrip(), '    ')}"
                )
