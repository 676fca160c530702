"""Every chapter runs quickly and without a warning, for any seed, over its ranges.

The published ones were executed in the full profile; `make check` proves that they are
fresh.
"""

import re
from pathlib import Path

import pytest

from press import execute
from press.layout import list_chapters
from press.source import parameter_values, read_source
from robustbook.notebook import stated_ranges

from ..conftest import RUN_SEED

ROOT = Path(__file__).resolve().parents[2]
#: Chapters that take longest, two thirds of the time of all: `make ranges` runs them.
LONG = [
    *("13", "16", "18", "25", "30", "31", "32", "33", "34", "35", "38", "40", "41"),
    "42",
]
COMMON = {"profile": "quick", "device": "cpu", "seed": RUN_SEED}


def ends_of(text):
    """By parameter, the first and the last value that it may have."""
    return {name: [v[0], v[-1]] for name, (_, v) in stated_ranges(text).items()}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("chapter", "end"),
    [
        pytest.param(
            chapter,
            end,
            id=f"{chapter.name}-{name}",
            marks=[pytest.mark.ranges] if end or chapter.name[:2] in LONG else [],
        )
        for chapter in list_chapters(ROOT)
        for end, name in enumerate(("low", "high"))
        # A chapter without parameters of its own runs once.
        if end == 0 or ends_of(chapter.source.read_text("utf-8"))
    ],
)
def test_quick(chapter, end):
    source = read_source(chapter)
    text = chapter.source.read_text("utf-8")
    ranged = {name: ends[end] for name, ends in ends_of(text).items()}
    execute.execute(source, parameters={**COMMON, "seed": RUN_SEED + end, **ranged})


def test_every_parameter_states_its_range():
    """Or says that any value will do; the common ones are explained in the preface."""
    bare = []
    for chapter in list_chapters(ROOT):
        text = chapter.source.read_text("utf-8")
        parameters = set(parameter_values(read_source(chapter).notebook))
        stated = {*ends_of(text), *re.findall(r"^(\w+) = .*# any ", text, re.MULTILINE)}
        bare += [f"{chapter.name}: {x}" for x in parameters - stated - set(COMMON)]
        assert set(ends_of(text)) <= parameters, "a range of no parameter"
        assert "check_ranges(globals())" in text
    assert bare == []


@pytest.mark.parametrize(
    ("comment", "ends"),
    [
        ("0.1 to 0.6: the noise", [0.1, 0.6]),
        ("-20 to 1e3: images", [-20, 1000.0]),
        ('one of "a", "b", "c": the network', ["a", "c"]),
        ("one of False, True: measure anew", [False, True]),
        ("any list: your own", None),
        ("1.2.3 to 4: no number", None),
        ("one of a, b: without quotes", None),
        ("3 to 3: no range", None),
        ("3 to 4, without a colon", None),
    ],
)
def test_comments_state_the_ends_of_ranges(comment, ends):
    assert ends_of(f"seed = 0\nx = 1  # {comment}\n").get("x") == ends
