"""Translated messages of programs: short texts whose language is known."""

import ast
import gettext
import random
import re
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from robustbook._checks.arguments import check_count
from robustbook.deployed._sample import (
    Sample,
    check_folders,
    files_below,
    warn_of_unreadable,
)

_MESSAGE = re.compile(r'^msgstr (".*"(?:\n".*")*)', re.MULTILINE)
#: The folder above a catalog, or above its LC_MESSAGES, such as pt_BR or zh-Hans.
_LANGUAGE = re.compile(r"([a-z]{2})(?:[-_@][A-Za-z]+)?")


def load_translations(
    folder: Path | str | Iterable[Path | str] | None = None,
    *,
    per_language: int = 60,
    at_least: int = 20,
    letters: tuple[int, int] = (40, 400),
    seed: int = 0,
) -> Sample:
    """Draw messages of the translations that programs bring, the ``.po`` and ``.mo``.

    The language is the name of the folder, without the region: ``pt_BR`` is ``pt``.
    A message that several languages share, as one that was not translated, is left
    out, and so is English. Otherwise the draw is that of :func:`load_files`.

    Parameters
    ----------
    folder : path, or several paths, optional
        Where to look; the packages of this Python environment by default.
    per_language : int, default 60
        At most so many messages are taken of a language.
    at_least : int, default 20
        Languages with fewer messages are left out.
    letters : tuple of int, default (40, 400)
        Smallest and largest length of a message.
    seed : int, default 0
        Seed of the draw.

    Returns
    -------
    Sample
        Messages as str, language by language.

    Raises
    ------
    ValueError
        If there is no such folder, or no language with enough messages in it.

    Warns
    -----
    UserWarning
        If catalogs could not be read: how many, and which.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     Path(folder, "de").mkdir()
    ...     text = 'msgid "Hello"\\nmsgstr "Guten Tag"'
    ...     _ = Path(folder, "de", "app.po").write_text(text)
    ...     load_translations(folder, at_least=1, letters=(5, 20)).contents
    ('Guten Tag',)
    """
    check_count("per_language", per_language)
    check_count("at_least", at_least)
    by_language: dict[str, set[str]] = {}
    unreadable: list[str] = []
    for path in files_below(check_folders(folder)):
        language = _language_of(path)
        if path.suffix not in (".po", ".mo") or language in (None, "en"):
            continue
        try:
            read = _po_messages if path.suffix == ".po" else _mo_messages
            messages = {" ".join(message.split()) for message in read(path)}
        except (OSError, ValueError, SyntaxError, struct.error):
            unreadable.append(str(path))
            continue
        by_language.setdefault(str(language), set()).update(messages)
    warn_of_unreadable(unreadable)
    contents: list[str] = []
    labels: list[str] = []
    largest = 0
    for language, messages in sorted(by_language.items()):
        others = (by_language[other] for other in by_language if other != language)
        rest = messages.difference(*others)
        fitting = sorted(m for m in rest if letters[0] <= len(m) <= letters[1])
        random.Random(f"{seed} {language}").shuffle(fitting)
        largest = max(largest, len(fitting))
        if len(fitting) >= at_least:
            contents += fitting[:per_language]
            labels += len(fitting[:per_language]) * [language]
    if not labels:
        raise ValueError(
            f"folder: expected a language with {at_least} messages or more of "
            f"{letters[0]} to {letters[1]} letters in .po or .mo files, found at most "
            f"{largest}; lower at_least, or choose another folder"
        )
    return Sample(tuple(contents), tuple(labels), tuple(unreadable))


def _language_of(path: Path) -> str | None:
    folder = path.parent
    name = folder.parent.name if folder.name == "LC_MESSAGES" else folder.name
    match = _LANGUAGE.fullmatch(name)
    return match[1] if match else None


def _po_messages(path: Path) -> Iterator[str]:
    for match in _MESSAGE.finditer(path.read_text(encoding="utf-8")):
        # Lines of quoted pieces, which Python joins, too. The header comes first.
        message = str(ast.literal_eval(f"({match[1]})"))
        if "Content-Type:" not in message:
            yield message


def _mo_messages(path: Path) -> Iterator[str]:
    """Read a compiled catalog, of plural forms the first one, without the header."""
    with path.open("rb") as file:
        catalog: dict[Any, str] = vars(gettext.GNUTranslations(file))["_catalog"]
    for key, message in catalog.items():
        if key and (isinstance(key, str) or key[1] == 0):
            yield message
