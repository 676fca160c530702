"""Cells speak: minus signs, tables, claims, in a notebook and out of it."""

import math

import numpy as np
import pandas as pd
import pytest
import torch

from robustbook.notebook import check_ranges, claim, record, say, show_table


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("-4.33", "~4.33"),
        ("by -.5 and -∞", "by ~.5 and ~∞"),
        ("-0.11 (95 % -0.17 to -0.04)", "~0.11 (95 % ~0.17 to ~0.04)"),
        ("[-1, -2] < -3", "[~1, ~2] < ~3"),
        ("2026-11-22", "2026-11-22"),
        ("resnet-20, 1e-05, 5-7", "resnet-20, 1e-05, 5-7"),
        ("- none", "- none"),
        ("`-3`, $-3$", "`-3`, $-3$"),
        ("`f(x, -3)`, $x = -3$, -3", "`f(x, -3)`, $x = -3$, ~3"),
    ],
)
def test_a_hyphen_before_a_number_becomes_a_minus_sign(written, shown, capsys):
    say(written)
    claim(written, True)
    shown = shown.replace("~", "\N{MINUS SIGN}")
    assert capsys.readouterr().out == f"{shown}\n✓ **Holds in this run.** {shown}\n"


@pytest.mark.parametrize("holds", [np.array([1.0]) > 0, torch.tensor(1.0) > 0, 1])
def test_a_truth_value_may_be_an_array_of_one(holds, capsys):
    claim("So.", holds)
    assert capsys.readouterr().out.startswith("✓")


@pytest.mark.parametrize(
    "holds",
    [np.ones(2) > 0, torch.ones(2) > 0, [], [True], math.nan, "False", all, None, 0.5],
)
def test_several_truth_values_are_refused(holds):
    with pytest.raises(ValueError, match=r"one truth value.*\.all\(\)"):
        claim("So.", holds)


@pytest.mark.parametrize(
    ("possible", "mark"),
    [(True, "○ **Undecided"), (np.array([1.0]) < 0, "✗ **Does not hold")],
)
def test_an_undecided_claim_is_not_false(possible, mark, capsys):
    claim("So.", False, possible)
    claim("So.", True, possible)
    undecided, holds = capsys.readouterr().out.splitlines()
    assert undecided.startswith(mark)
    assert holds.startswith("✓")


CELL = """profile = "quick"
seed = 0
wrong = 0.2  # 0 to 0.4: share of labels
kind = "a"  # one of "a", "b": of noise
folder = ""  # any folder: of data
"""


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"profile": "fast"}, 'profile: expected "quick" or "full", got \'fast\''),
        ({"seed": -1}, "seed: expected a whole number from 0, got -1"),
        ({"seed": 0.5}, "seed: expected a whole number"),
        ({"wrong": 2}, "wrong: expected 0 to 0.4, got 2"),
        ({"wrong": -0.1}, "wrong: expected 0 to 0.4"),
        ({"wrong": math.nan}, "wrong: expected 0 to 0.4"),
        ({"wrong": "0.1"}, "wrong: expected 0 to 0.4"),
        ({"kind": "c"}, 'kind: expected one of "a", "b", got \'c\''),
        ({"cuont": 100}, "cuont: expected a parameter of this chapter: .* wrong, kind"),
        ({"wrong": 0.4, "kind": "b", "folder": "x", "seed": 3}, None),
        ({"wrong": 0}, None),
    ],
)
def test_parameters_are_those_of_the_chapter_and_in_range(given, said):
    injected = "\n".join(["# Parameters", *(f"{n} = {v!r}" for n, v in given.items())])
    cells = ["", 'x = 5  # 0 to 1: not here\nprofile = "full"', CELL, injected]
    namespace = {"In": cells}
    exec("\n".join(cells), {"nan": math.nan}, namespace)
    if said is None:
        check_ranges(namespace)
        return
    with pytest.raises(ValueError, match=said):
        check_ranges(namespace)


def test_digits_signs_and_missing_values_of_a_table(capsys):
    frame = pd.DataFrame(
        {"σ": [np.inf, -0.01], "n": [3, 4], "who": ["a|b", None], "a|b": [np.nan, -1.0]}
    ).set_index("who")
    show_table(frame, digits=1)
    assert capsys.readouterr().out.splitlines() == [
        r"| who | σ | n | a\|b |",
        "| --- | --: | --: | --: |",
        r"| a\|b | ∞ | 3 |  |",
        "|  | 0.0 | 4 | −1.0 |",
    ]


@pytest.mark.parametrize("table", [{"a": []}, {("a", "b"): [1.0], ("a", "c"): [2.0]}])
def test_a_table_without_rows_or_with_several_heads_is_refused(table):
    with pytest.raises(ValueError, match="expected rows"):
        show_table(pd.DataFrame(table))


def test_in_a_notebook_the_texts_are_outputs(monkeypatch):
    import IPython
    import IPython.display

    shown = []
    monkeypatch.setattr(IPython, "get_ipython", object)
    monkeypatch.setattr(
        IPython.display,
        "display",
        lambda data, raw, metadata: shown.append((data, metadata)),
    )
    claim("So.", False)
    record("answer", np.float64(0.5))
    (said, verdict), (kept, name) = shown
    assert said["text/markdown"] == "✗ **Does not hold in this run.** So."
    assert verdict == {"robustbook_claim": False}
    assert list(kept.values()) == ["0.5"]
    assert name["scrapbook"]["name"] == "answer"
