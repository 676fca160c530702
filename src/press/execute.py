"""Execute one chapter with papermill, into a notebook whose bytes repeat."""

from __future__ import annotations

import json
import logging
import multiprocessing
import os
import sys
import tempfile
import textwrap
import time
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat
import papermill
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

# The tail of a traceback that is shown: the cell's own frame and the error.
_TRACEBACK_LINES = 25

# One thread: sums come out the same on a machine with more cores.
_ONE_THREAD = {f"{name}_NUM_THREADS": "1" for name in ("MKL", "OMP", "OPENBLAS")}

_PAPERMILL_TAG = "injected-parameters"

# A server that has imported this module forks a fresh process for each chapter.
_FORK_SERVER = multiprocessing.get_context("forkserver")
_FORK_SERVER.set_forkserver_preload([__name__])


class ChapterError(BookError):
    """A chapter did not run to its end, or wrote a warning."""

    status = 1


@dataclass(frozen=True)
class Execution:
    """An executed chapter, how long it took, and what it read of data."""

    notebook: NotebookNode
    seconds: float
    reads: tuple[tuple[str, ...], ...]


def chapter_processes(count: int) -> ProcessPoolExecutor:
    """Return a pool of processes that end after one task, with this environment."""
    return ProcessPoolExecutor(
        count,
        mp_context=_FORK_SERVER,
        initializer=_set_environment,
        initargs=(dict(os.environ),),
        max_tasks_per_child=1,
    )


def _set_environment(environment: Mapping[str, str]) -> None:
    # The server has the environment of the time when it was started.
    os.environ.clear()
    os.environ.update(environment)


def execute(
    source: Source, *, parameters: Mapping[str, Any], strict: bool = True
) -> Execution:
    """Execute a chapter from top to bottom in a kernel of this Python.

    The notebook keeps no trace of when, where or how fast it ran. ``strict`` is with
    one thread, so that numbers do not depend on the machine's cores, and counts
    anything on standard error as a failure.
    """
    with chapter_processes(1) as pool:
        return pool.submit(
            execute_here, source, parameters=parameters, strict=strict
        ).result()


def execute_here(
    source: Source, *, parameters: Mapping[str, Any], strict: bool = True
) -> Execution:
    """Do what :func:`execute` does, and leave this process to it.

    The environment, the standard error and the event loop of the process are those of
    the chapter from then on.
    """
    name = source.chapter.name
    known = parameter_values(source.notebook)
    for parameter in parameters:
        if parameter not in known:
            raise BookError(
                f"{name} has no parameter {parameter!r}; "
                f"it has {', '.join(known) or 'none'}"
            )
    # papermill logs each parameter and each cell.
    logging.getLogger("papermill").setLevel(logging.ERROR)
    started = time.perf_counter()
    with tempfile.TemporaryDirectory(
        prefix="robustbook-", ignore_cleanup_errors=True
    ) as folder:
        log, listing = Path(folder, "kernel.log"), Path(folder, "reads")
        os.environ.update(_environment(source.chapter.root, folder, listing))
        if strict:
            os.environ.update(_ONE_THREAD)
        _redirect_stderr(log)
        try:
            executed = papermill.execute_notebook(
                nbformat.from_dict(source.notebook),
                None,
                dict(parameters),
                kernel_name=METADATA["kernelspec"]["name"],
                language="python",
                # disable=None: only on a terminal.
                progress_bar={"desc": name, "leave": False, "disable": None},
                cwd=source.chapter.root,
                extra_arguments=["--HistoryManager.enabled=False"],
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
        tuple(sorted({tuple(json.loads(line)) for line in lines})),
    )


def _environment(root: Path, folder: str, reads: Path) -> dict[str, str]:
    """Return what starts this very Python, without kernels and settings of the user."""
    path = [str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]
    environment = {
        "IPYTHONDIR": folder,
        "JUPYTER_DATA_DIR": folder,
        "JUPYTER_PATH": "",
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
        environment["PYTHONPATH"] = str(root / "src")
    return environment


def _redirect_stderr(log: Path) -> None:
    """Send to ``log`` what the kernel says; the progress bar stays where it is."""
    sys.stderr = os.fdopen(os.dup(2), "w")
    with log.open("ab") as file:
        os.dup2(file.fileno(), 2)


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
