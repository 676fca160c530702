"""Docstrings whose shared parts are written once, as seaborn does.

A room keeps the parts in a docstring of its own: they are prose, so that a word
changed in them makes no stored result stale.
"""

from __future__ import annotations

import inspect
import re
from typing import Any, Final, TypeVar

Documented = TypeVar("Documented", bound=Any)

#: A line of names in braces and of nothing else; formulas look otherwise.
_PLACES: Final = re.compile(r"^([ \t]*)(\{[\w, *]+\}(?: \{[\w, *]+\})*)$", re.MULTILINE)


class SharedDocs:
    r"""Entries of numpydoc sections, to be named in the docstrings that share them.

    Parameters
    ----------
    text : str or None
        Entries: a line ``name : type``, not indented, then indented lines. Other
        lines are left out. None, as ``python -OO`` makes it, has no entries.

    Examples
    --------
    >>> shared = SharedDocs("\ncount : int\n    How many.")
    >>> @shared.fill
    ... def draw(count):
    ...     '''{count}'''
    >>> print(draw.__doc__)
    count : int
        How many.
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

        Exceptions and warnings in a paragraph of their own get its heading.

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
        if place.string[: place.start()].endswith("\n\n"):
            kind = re.search(r"(Error|Warning)\}$", names)
            heading = {"Error": "Raises\n------", "Warning": "Warns\n-----"}
            entries[:0] = [heading[kind[1]]] if kind else []
        lines = "\n".join(entries).splitlines()
        return "\n".join(margin + line if line else line for line in lines)
