"""Every chapter of this book runs in its quick profile, without a warning.

The published ones were executed in the full profile; `make check` proves that they are
fresh.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from press import execute
from press.layout import Chapter, list_chapters
from press.source import read_source

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def measured_once(
    fast_kernels: None, rows_once: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What chapters and tests of studies both look at is measured by the first."""
    monkeypatch.setenv("KERNEL_FIRST", str(rows_once))


@pytest.mark.slow
@pytest.mark.parametrize(
    "chapter", list_chapters(ROOT), ids=lambda chapter: chapter.name
)
def test_quick(chapter: Chapter) -> None:
    parameters = {"profile": "quick", "device": "cpu"}
    execute.execute(read_source(chapter), parameters=parameters)
