"""Shifts of files and of texts on their way to a classifier."""

import re
import unicodedata
import zlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeVar

import numpy as np

from robustbook._checks.arguments import check_choice

Random = np.random.Generator
ByteShift = Callable[[bytes, Random], bytes]
TextShift = Callable[[str, Random], str]
Content = TypeVar("Content", bytes, str)


def _fragment(content: bytes, random: Random, *, size: int) -> bytes:
    start = int(random.integers(max(1, len(content) - size + 1)))
    return content[start : start + size]


def _quoted(content: bytes, random: Random) -> bytes:
    return b"\n".join(b"> " + line for line in content.split(b"\n"))


def _replaced(content: bytes, random: Random, *, share: float) -> bytes:
    values = np.frombuffer(content, dtype=np.uint8)
    chosen = random.random(len(values)) < share
    noise = random.integers(256, size=len(values), dtype=np.uint8)
    return np.where(chosen, noise, values).tobytes()


def _mistyped(text: str, random: Random, *, share: float) -> str:
    """Double, drop, or exchange with the next one, a share of the letters."""
    wrong = random.random(len(text)) < share
    kinds = random.integers(3, size=len(text))
    typed = []
    position = 0
    while position < len(text):
        letter, kind = text[position], kinds[position]
        if not wrong[position]:
            typed.append(letter)
        elif kind == 0:
            typed += [letter, letter]
        elif kind == 1:
            typed += [text[position + 1 : position + 2], letter]
            position += 1
        position += 1
    return "".join(typed)


def _without_accents(text: str, random: Random) -> str:
    pieces = unicodedata.normalize("NFKD", text)
    return "".join(letter for letter in pieces if not unicodedata.combining(letter))


def _start(text: str, random: Random, *, letters: int) -> str:
    return text[:letters]


#: What happens to files: carved from a disk, sent by mail, damaged, recoded.
BYTE_SHIFTS: Final[Mapping[str, ByteShift]] = {
    "first 200 bytes": lambda content, _: content[:200],
    "fragment of 512 bytes": partial(_fragment, size=512),
    "fragment of 2048 bytes": partial(_fragment, size=2048),
    "quoted in a mail": _quoted,
    "upper case": lambda content, _: content.upper(),
    "no line ends": lambda content, _: content.replace(b"\n", b" "),
    "no indentation": lambda content, _: re.sub(rb"\n[ \t]+", b"\n", content),
    "1 % of bytes replaced": partial(_replaced, share=0.01),
    "10 % of bytes replaced": partial(_replaced, share=0.1),
    "wrong encoding": lambda content, _: content.decode("latin-1").encode(),
}

#: What happens to texts: cut, mistyped, stripped of accents, shouted, misread.
TEXT_SHIFTS: Final[Mapping[str, TextShift]] = {
    "first 10 letters": partial(_start, letters=10),
    "first 20 letters": partial(_start, letters=20),
    "5 % of letters mistyped": partial(_mistyped, share=0.05),
    "20 % of letters mistyped": partial(_mistyped, share=0.2),
    "no accents": _without_accents,
    "capitals": lambda text, _: text.upper(),
    "wrong encoding": lambda text, _: text.encode().decode("latin-1"),
}


def shifts_for(contents: Sequence[Any]) -> Mapping[str, Callable[..., Any]]:
    """Return the shifts of files, or those of texts."""
    if all(isinstance(content, bytes) for content in contents):
        return BYTE_SHIFTS
    if all(isinstance(content, str) for content in contents):
        return TEXT_SHIFTS
    kinds = sorted({type(content).__name__ for content in contents})
    raise TypeError(
        f"contents: expected bytes (files) or str (texts), got {', '.join(kinds)}"
    )


def apply_shift(
    shift: str, contents: Sequence[Content], *, seed: int = 0
) -> tuple[Content, ...]:
    """Apply one of the BYTE_SHIFTS to files, or one of the TEXT_SHIFTS to texts.

    Parameters
    ----------
    shift : str
        A key of BYTE_SHIFTS or of TEXT_SHIFTS.
    contents : sequence of bytes or of str
        Files or texts.
    seed : int, default 0
        Seed of what is random in the shift; each content has its own random numbers.

    Returns
    -------
    tuple
        The shifted contents, in the same order.

    Raises
    ------
    TypeError
        If the contents are neither all bytes nor all str.
    ValueError
        If there is no such shift.

    Examples
    --------
    >>> apply_shift("quoted in a mail", [b"def f():\\n    pass"])
    (b'> def f():\\n>     pass',)
    >>> apply_shift("no accents", ["déjà vu"])
    ('deja vu',)
    """
    known = shifts_for(contents)
    change = known[check_choice("shift", shift, known)]
    code = zlib.crc32(shift.encode())
    return tuple(
        change(content, np.random.default_rng([seed, code, index]))
        for index, content in enumerate(contents)
    )
