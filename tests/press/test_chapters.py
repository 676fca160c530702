"""Every chapter of this book runs in its quick profile, without a warning.

The published ones were executed in the full profile; `python -m press check` proves
that they are fresh.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from press.execute import execute
from press.layout import Chapter, list_chapters
from press.source import read_source

CHAPTERS = list_chapters(Path(__file__).parents[2])


@pytest.mark.slow
@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda chapter: chapter.name)
def test_quick(chapter: Chapter) -> None:
    execute(read_source(chapter), parameters={"profile": "quick", "device": "cpu"})
