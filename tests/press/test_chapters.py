"""Every chapter of this book runs in its quick profile, without a warning.

The published ones were executed in the full profile; `make check` proves that they are
fresh.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from press import execute
from press.layout import Chapter, list_chapters
from press.source import read_source

ROOT = Path(__file__).resolve().parents[2]
NURSERY = Path(__file__).with_name("nursery.py")


@pytest.fixture(scope="module", autouse=True)
def nursery() -> Iterator[None]:
    """Kernels are born with their libraries, where the system can do that."""
    if not hasattr(os, "pidfd_open"):
        yield
        return
    setting = {
        **{f"{name}_NUM_THREADS": "1" for name in ("MKL", "OMP", "OPENBLAS")},
        "PYTHONHASHSEED": "0",
        "PYTHONPATH": str(ROOT / "src"),
    }
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        command = [sys.executable, "-P", str(NURSERY)]
        address = str(Path(folder, "socket"))
        with subprocess.Popen(
            [*command, "serve", address],
            env=os.environ | setting,
            stdout=subprocess.PIPE,
            text=True,
        ) as server:
            assert server.stdout is not None
            assert server.stdout.readline() == "ready\n"
            patch.setattr(execute, "KERNEL", (*command, address))
            yield
            server.terminate()


@pytest.mark.slow
@pytest.mark.parametrize(
    "chapter", list_chapters(ROOT), ids=lambda chapter: chapter.name
)
def test_quick(chapter: Chapter) -> None:
    parameters = {"profile": "quick", "device": "cpu"}
    execute.execute(read_source(chapter), parameters=parameters)
