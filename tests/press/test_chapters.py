"""Every chapter runs quickly and without a warning, for any seed, over its ranges.

The published ones were executed in the full profile; `make check` proves that they are
fresh.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from press import execute
from press.layout import Chapter, list_chapters
from press.source import (
    cell_tags,
    parameter_ends,
    parameter_values,
    read_source,
)

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def measured_once(
    fast_kernels: None, rows_once: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What chapters and tests of studies both look at is measured by the first."""
    monkeypatch.setenv("KERNEL_FIRST", str(rows_once))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("chapter", "end"),
    [
        pytest.param(
            chapter,
            end,
            id=f"{chapter.name}-{name}",
            marks=[pytest.mark.ranges] if end else [],
        )
        for chapter in list_chapters(ROOT)
        for end, name in enumerate(("low", "high"))
        # A chapter without parameters of its own runs once.
        if end == 0 or parameter_ends(read_source(chapter).notebook)
    ],
)
def test_quick(chapter: Chapter, end: int) -> None:
    source = read_source(chapter)
    own = {name: ends[end] for name, ends in parameter_ends(source.notebook).items()}
    common = {"profile": "quick", "device": "cpu", "seed": end + 1}
    execute.execute(source, parameters=common | own)


def test_every_parameter_states_its_range() -> None:
    """Or says that any value will do; the common ones are explained in the preface."""
    bare = []
    for chapter in list_chapters(ROOT):
        notebook = read_source(chapter).notebook
        own = set(parameter_values(notebook)) - {"profile", "seed", "device"}
        cell = next(c for c in notebook.cells if "parameters" in cell_tags(c))
        stated = set(parameter_ends(notebook)) | {
            name for name in own if re.search(rf"^{name} = .*# any ", cell.source, re.M)
        }
        bare += [f"{chapter.name}: {name}" for name in sorted(own - stated)]
    assert bare == []
