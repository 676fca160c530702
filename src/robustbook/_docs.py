"""Docstrings whose shared parts are written once, as seaborn does.

A package keeps the parts in the docstring of one of its modules: they are prose, so
that a word changed in them makes no stored result stale.
"""

from __future__ import annotations

import inspect
import re
from typing import Any, Final, TypeVar

Documented = TypeVar("Documented", bound=Any)

#: A line of names in braces and of nothing else; formulas look otherwise.
_PLACES: Final = re.compile(r"^([ \t]*)(\{[\w, *]+\}(?: \{[\w, *]+\})*)$", re.MULTILINE)


class SharedDocs:
    """Entries of numpydoc sections, to be named in the docstrings that share them.

    Parameters
    ----------
    text : str or None
        Entries: a line ``name : type``, not indented, then indented lines. Other
        lines are left out. None, as ``python -OO`` makes it, has no entries.

    Examples
    --------
    >>> shared = SharedDocs('''
    ... count : int
    ...     How many.
    ... seed : int, default 0
    ...     Of all that is drawn.
    ... ''')
    >>> @shared.fill
    ... def draw(count, *, seed=0):
    ...     '''Draw numbers.
    ...
    ...     Parameters
    ...     ----------
    ...     {count} {seed}
    ...     '''
    >>> print(inspect.getdoc(draw))
    Draw numbers.
    <BLANKLINE>
    Parameters
    ----------
    count : int
        How many.
    seed : int, default 0
        Of all that is drawn.
    """

    def __init__(self, text: str | None) -> None:
        blocks = re.split(r"\n(?=\S)", inspect.cleandoc(text or ""))
        self.entries = {
            re.split(r" : |\n", block)[0]: block.strip()
            for block in blocks
            if " : " in block or "\n " in block
        }

    def fill(self, documented: Documented) -> Documented:
        """Put the entries in the places of a docstring that name them.

        Raises
        ------
        KeyError
            If there is no entry of a name.
        """
        if documented.__doc__ and self.entries:
            documented.__doc__ = _PLACES.sub(self._written, documented.__doc__)
        return documented

    def _written(self, place: re.Match[str]) -> str:
        margin, names = place.groups()
        entries = [self.entries[name] for name in re.findall(r"\{([^{}]+)\}", names)]
        lines = "\n".join(entries).splitlines()
        return "\n".join(margin + line if line else line for line in lines)
