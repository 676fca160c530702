"""Sentences and tables that a notebook's cells speak: numbers of this very run.

In a notebook they show as Markdown, elsewhere they are printed.
"""

from __future__ import annotations

import math
import re
import sys
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["check_profile", "claim", "record", "say", "show_table"]

# Under this key the metadata of a claim's output say whether it holds.
_CLAIM: Final = "robustbook_claim"

# A hyphen that stands for a minus: before a number, and behind no word.
# Code and formulas, which stay, or the sign of a number.
_MINUS = re.compile(r"`[^`]*`|\$[^$]*\$|(?<![\w\-−$`])-(?=[\d.∞]|inf)")


def check_profile(profile: str) -> None:
    """Refuse a profile that is neither "quick" nor "full", with a ValueError.

    Examples
    --------
    >>> check_profile("fast")
    Traceback (most recent call last):
    ...
    ValueError: profile: expected "quick" or "full", got 'fast'
    """
    if profile not in ("quick", "full"):
        raise ValueError(f'profile: expected "quick" or "full", got {profile!r}')


def say(sentence: str) -> None:
    """Show a sentence with the numbers of this run.

    It is Markdown, one paragraph or more; formulas stand between dollar signs. A hyphen
    before a number becomes a minus sign.

    Examples
    --------
    >>> say(f"Half of -3 is {-3 / 2}.")
    Half of −3 is −1.5.
    """
    _show(_signed(sentence))


def claim(sentence: str, holds: Any) -> None:
    """Show a claim with its numbers, and whether it holds in this run.

    Other seeds, networks or settings may prove it false, and nothing stops there. In
    the published book it has to hold: a false one is not published.

    It is Markdown, as in :func:`say`; `holds` may be an array or tensor of one element.

    Raises
    ------
    ValueError
        If `holds` is no single truth value, such as an array of several, or NaN.

    Examples
    --------
    >>> claim("Two and two make 4.", 2 + 2 == 4)
    ✓ **Holds in this run.** Two and two make 4.
    >>> claim("1e16 + 1 is greater than 1e16.", 1e16 + 1 > 1e16)
    ✗ **Does not hold in this run.** 1e16 + 1 is greater than 1e16.
    """
    value = np.asarray(holds.detach().cpu() if hasattr(holds, "detach") else holds)
    if value.size != 1 or value.dtype.kind not in "biu" or isinstance(holds, list):
        raise ValueError(
            f"holds: expected one truth value, got {holds!r:.60}; of several, say "
            ".all() or .any()"
        )
    true = bool(value.item())
    mark = "✓ **Holds in this run.**" if true else "✗ **Does not hold in this run.**"
    text = _signed(sentence)
    _show(f"{mark} {text}", {_CLAIM: true})


def show_table(frame: pd.DataFrame, digits: int = 2, *, index: bool = True) -> None:
    """Show a table as Markdown, which every front end and the site can break and wrap.

    Parameters
    ----------
    frame : DataFrame
        At most six columns read well on a telephone. One without rows, or with several
        rows of column names, is a ValueError.
    digits : int, default 2
        Decimals of its floating point numbers; what is text stays as it is.
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
    """Keep a number in the notebook, unseen, for what quotes it, as the claims ledger.

    It is quoted by its name, ``{glue:text}`name:.2f```; what cannot be is a ValueError.

    Examples
    --------
    >>> record("answer", 42)  # outside a notebook nothing is kept
    """
    if not _in_notebook():
        return
    # As papermill's scrapbook has it.
    prefix = "application/papermill.record/"
    if hasattr(value, "item"):  # NumPy's and torch's numbers
        value = value.item()
    if not re.fullmatch(r"[\w-]+", name) or not isinstance(value, int | float | str):
        raise ValueError(f"expected a name and a number or text, got {name}: {value!r}")
    metadata = {"scrapbook": {"name": name, "mime_prefix": prefix}}
    _display({f"{prefix}text/plain": repr(value)}, metadata)


def _signed(text: str) -> str:
    return _MINUS.sub(lambda m: "\N{MINUS SIGN}" if m[0] == "-" else m[0], text)


def _cell(value: Any, digits: int) -> str:
    if isinstance(value, float | np.floating):
        # z: what rounds to zero has no sign.
        text = "" if math.isnan(value) else f"{value:z.{digits}f}"
        text = text.replace("inf", "∞")
    else:
        text = "" if value is None else " ".join(str(value).split())
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
