"""Cells speak: minus signs, tables, claims, in a notebook and out of it."""

import math

import numpy as np
import pandas as pd
import pytest
import torch

from robustbook.notebook import claim, record, say, show_table


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
def test_what_is_no_single_truth_value_is_refused(holds):
    with pytest.raises(ValueError, match=r"one truth value.*\.all\(\)"):
        claim("So.", holds)


def test_a_table_has_its_digits_signs_and_gaps(capsys):
    frame = pd.DataFrame(
        {"σ": [0.1, -0.01], "n": [3, 4], "who": ["a|b", None], "a|b": [np.nan, -1.0]}
    ).set_index("who")
    show_table(frame, digits=1)
    assert capsys.readouterr().out.splitlines() == [
        r"| who | σ | n | a\|b |",
        "| --- | --: | --: | --: |",
        r"| a\|b | 0.1 | 3 |  |",
        "|  | 0.0 | 4 | −1.0 |",
    ]


@pytest.mark.parametrize("table", [{"a": []}, {("a", "b"): [1.0], ("a", "c"): [2.0]}])
def test_a_table_without_rows_or_with_several_heads_is_refused(table):
    with pytest.raises(ValueError, match="expected rows"):
        show_table(pd.DataFrame(table))


def test_in_a_notebook_they_are_outputs(monkeypatch):
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
