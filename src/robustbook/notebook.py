"""Sentences and tables with the numbers of a run, as output of a notebook's cells.

In a notebook they are shown as Markdown, elsewhere they are printed.
"""

from __future__ import annotations

import ast
import math
import re
import sys
from collections.abc import Mapping
from contextlib import suppress
from numbers import Real
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["check_ranges", "claim", "record", "say", "show_table"]

# Key in the metadata of a claim's output: whether the claim holds.
_CLAIM: Final = "robustbook_claim"

# First line of the cell in which papermill sets parameters.
_INJECTED: Final = "# Parameters\n"
_ASSIGNED = re.compile(r"^(\w+)\s*=", re.MULTILINE)
_RANGE = re.compile(
    r"^(\w+)\s*=.*# ((-?\d\S*) to (-?\d[^\s:]*)|one of ([^:]+)):", re.MULTILINE
)

# Code and formulas, which stay as they are, or a hyphen that is the sign of a number.
_MINUS = re.compile(r"`[^`]*`|\$[^$]*\$|(?<![\w\-−$`])-(?=[\d.∞]|inf)")


def check_ranges(namespace: Mapping[str, Any]) -> None:
    """Refuse parameters that are out of range, or that the chapter does not have.

    The comment after a parameter states its range, "0 to 0.4:" or "one of 1, 2:"; it is
    read from the cell that was run.

    Parameters
    ----------
    namespace : mapping
        The ``globals()`` of a notebook.

    Raises
    ------
    ValueError
        If a parameter is unknown or out of range.

    Examples
    --------
    >>> cell = 'profile = "quick"\\nseed = 0\\nwrong = 2  # 0 to 0.4: share of labels'
    >>> check_ranges({"profile": "quick", "seed": 0, "wrong": 2, "In": [cell]})
    Traceback (most recent call last):
    ...
    ValueError: wrong: expected 0 to 0.4, got 2
    """
    profile, seed = namespace["profile"], namespace["seed"]
    if profile not in ("quick", "full"):
        raise ValueError(f'profile: expected "quick" or "full", got {profile!r}')
    if type(seed) is not int or seed < 0:
        raise ValueError(f"seed: expected a whole number from 0, got {seed!r}")
    cell, injected = "", ""
    for source in namespace.get("In", ()):
        if source.startswith(_INJECTED):
            injected = source
        elif "profile" in _ASSIGNED.findall(source):
            cell, injected = source, ""
    known = _ASSIGNED.findall(cell)
    for name in _ASSIGNED.findall(injected):
        if name not in known:
            raise ValueError(
                f"{name}: expected a parameter of this chapter: {', '.join(known)}"
            )
    for name, (text, values) in stated_ranges(cell).items():
        value = namespace[name]
        if text.startswith("one of"):
            valid = value in values
        else:
            low, high = values
            valid = isinstance(value, Real) and low <= value <= high
        if not valid:
            raise ValueError(f"{name}: expected {text}, got {value!r}")


def stated_ranges(cell: str) -> dict[str, tuple[str, list[Any]]]:
    """Return the stated range of each parameter, and its ends or choices.

    Examples
    --------
    >>> stated_ranges("noise = 0.3  # 0.1 to 0.5: of an image")
    {'noise': ('0.1 to 0.5', [0.1, 0.5])}
    """
    ranges = {}
    for name, text, low, high, choices in _RANGE.findall(cell):
        with suppress(SyntaxError, ValueError):
            values = ast.literal_eval(f"[{choices or f'{low}, {high}'}]")
            if choices or low != high:
                ranges[name] = text, values
    return ranges


def say(sentence: str) -> None:
    """Show a sentence with the numbers of this run.

    The sentence is Markdown, one paragraph or more, with formulas between dollar signs.
    A hyphen before a number becomes a minus sign.

    Examples
    --------
    >>> say(f"Half of -3 is {-3 / 2}.")
    Half of −3 is −1.5.
    """
    _show(_signed(sentence))


def claim(
    sentence: str, holds: Any, possible: Any = False, *, check: bool = False
) -> None:
    """Show a claim with its numbers, and whether it holds in this run.

    With other seeds, networks or settings a claim may fail, and the notebook goes on.
    A chapter with a claim that fails is not published.

    Parameters
    ----------
    sentence : str
        Markdown, as in :func:`say`.
    holds : bool, or an array or tensor of one
        Whether this run shows it, such as ``low > 0`` of an interval.
    possible : bool, or an array or tensor of one, default False
        Whether the claim may be true although this run does not show it, such as
        ``high > 0``; it is then called undecided.
    check : bool, default False
        Whether a theorem leaves no choice, so that the claim checks the code and is no
        evidence.

    Raises
    ------
    ValueError
        If `holds` or `possible` is not a single truth value, but an array of several,
        or NaN.

    Examples
    --------
    >>> claim("Two and two make 4.", 2 + 2 == 4)
    ✓ **Holds in this run.** Two and two make 4.
    >>> claim("1e16 + 1 is greater than 1e16.", 1e16 + 1 > 1e16)
    ✗ **Does not hold in this run.** 1e16 + 1 is greater than 1e16.
    >>> low, high = -0.3, 0.9
    >>> claim(f"It costs 0.3 ({low} to {high}).", low > 0, possible=high > 0)
    ○ **Undecided in this run.** It costs 0.3 (−0.3 to 0.9).
    >>> claim("The bound, 0.3, is below 0.4.", 0.3 < 0.4, check=True)
    ✓ **Check of the code.** The bound, 0.3, is below 0.4.
    """
    true, maybe = _truth("holds", holds), _truth("possible", possible)
    mark = "✗ **Does not hold in this run.**"
    if true:
        mark = "✓ **Check of the code.**" if check else "✓ **Holds in this run.**"
    elif maybe:
        mark = "○ **Undecided in this run.**"
    _show(f"{mark} {_signed(sentence)}", {_CLAIM: true})


def show_table(frame: pd.DataFrame, digits: int = 2, *, index: bool = True) -> None:
    """Show a table as Markdown, which every front end and the site can wrap.

    Parameters
    ----------
    frame : DataFrame
        At most six columns can be read on a phone. A frame without rows, or with
        several rows of column names, is a ValueError.
    digits : int, default 2
        Decimals of floating-point numbers; text stays as it is.
    index : bool, default True
        Whether the first column is the index.

    Examples
    --------
    >>> import pandas as pd
    >>> show_table(pd.DataFrame({"network": ["CNN"], "PA": [-0.1]}), index=False)
    | network | PA |
    | --- | --: |
    | CNN | −0.10 |
    """
    if frame.empty or frame.columns.nlevels > 1:
        raise ValueError("frame: expected rows, and one row of column names")
    if index:
        frame = frame.reset_index()
    numeric = [kind.kind in "iuf" for kind in frame.dtypes]
    rows = [
        [_cell(name if name != "index" else "", digits) for name in frame.columns],
        ["--:" if number else "---" for number in numeric],
        *([_cell(value, digits) for value in row] for row in frame.to_numpy(object)),
    ]
    _show("\n".join(f"| {' | '.join(row)} |" for row in rows))


def record(name: str, value: Any) -> None:
    """Store a number in the notebook, invisibly, for pages that quote it.

    They quote it by its name, ``{glue:text}`name:.2f```, as the claims ledger does. A
    name or value that cannot be quoted is a ValueError.

    Examples
    --------
    >>> record("answer", 42)  # outside a notebook nothing is kept
    """
    if not _in_notebook():
        return
    # The format of papermill's scrapbook.
    prefix = "application/papermill.record/"
    if hasattr(value, "item"):  # NumPy's and torch's numbers
        value = value.item()
    if not re.fullmatch(r"[\w-]+", name) or not isinstance(value, int | float | str):
        raise ValueError(f"expected a name and a number or text, got {name}: {value!r}")
    metadata = {"scrapbook": {"name": name, "mime_prefix": prefix}}
    _display({f"{prefix}text/plain": repr(value)}, metadata)


def _truth(name: str, given: Any) -> bool:
    value = np.asarray(given.detach().cpu() if hasattr(given, "detach") else given)
    if value.size != 1 or value.dtype.kind not in "biu" or isinstance(given, list):
        raise ValueError(
            f"{name}: expected one truth value, got {given!r:.60}; for several, use "
            ".all() or .any()"
        )
    return bool(value.item())


def _signed(text: str) -> str:
    return _MINUS.sub(lambda m: "\N{MINUS SIGN}" if m[0] == "-" else m[0], text)


def _cell(value: Any, digits: int) -> str:
    if isinstance(value, float | np.floating):
        # The option z drops the sign of a number that rounds to zero.
        text = "" if math.isnan(value) else f"{value:z.{digits}f}"
        text = text.replace("inf", "∞")
    else:
        text = "" if value is None else " ".join(str(value).split())
        text = text.replace(" ± ", "\N{NO-BREAK SPACE}±\N{NO-BREAK SPACE}")
        text = re.sub(r"(?<!\\)\|", r"\|", text)
    return _signed(text)


def _show(text: str, metadata: dict[str, Any] | None = None) -> None:
    if not _in_notebook():
        print(text)
        return
    bundle = {"text/markdown": text, "text/plain": text}
    _display(bundle, metadata or {})


def _in_notebook() -> bool:
    shell = sys.modules.get("IPython")
    return shell is not None and shell.get_ipython() is not None


def _display(bundle: dict[str, str], metadata: dict[str, Any]) -> None:
    from IPython.display import display

    display(bundle, raw=True, metadata=metadata)
