"""Docstrings whose shared parts are written once, as in seaborn.

A package keeps the shared parts in the docstring of a module: docstrings do not count
for the sum of code, so that a changed word makes no stored result stale.
"""

from __future__ import annotations

import inspect
import re
from typing import Any, Final, TypeVar

Documented = TypeVar("Documented", bound=Any)

#: A line with nothing but names in braces, which no formula is.
_PLACES: Final = re.compile(r"^([ \t]*)(\{[\w, *]+\}(?: \{[\w, *]+\})*)$", re.MULTILINE)


class SharedDocs:
    r"""Entries of numpydoc sections that several docstrings share.

    Parameters
    ----------
    text : str or None
        Entries: a line ``name : type``, not indented, then indented lines. Other lines
        are ignored. ``python -OO`` makes the text None, which has no entries.

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
        """Replace names in braces by their entries.

        A paragraph that consists of exceptions or warnings gets the heading for them.

        Raises
        ------
        KeyError
            If there is no entry with a name.
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
