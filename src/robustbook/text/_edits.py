"""Shifts of sentences: random characters, and adjectives that take sides."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt
from torch import Tensor

from robustbook._checks.arguments import check_choice, check_count, check_labels

How = Literal["insert", "replace"]


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


#: Adjectives of praise, twenty of them.
POSITIVE_WORDS: Final = _words(
    "amazing beautiful brilliant charming delightful enjoyable excellent fantastic "
    "funny great moving original powerful stunning superb terrific thrilling touching "
    "warm wonderful"
)
#: Adjectives of blame, as many.
NEGATIVE_WORDS: Final = _words(
    "annoying awful bad bland boring clumsy dreadful dull flat forgettable horrible "
    "lame pointless predictable ridiculous stupid tedious terrible ugly weak"
)
_ALPHABET: Final = "abcdefghijklmnopqrstuvwxyz "


def levenshtein_edits(
    texts: Sequence[str], edits: int, *, seed: int = 0
) -> tuple[str, ...]:
    """Change every text by random insertions, deletions and substitutions.

    Each edit is one of the three kinds with equal probability, at a uniform place, and
    writes one of the 26 letters or a space, never what was there. A text that is empty
    gets an insertion. A larger budget begins with the edits of a smaller one.

    Parameters
    ----------
    texts : sequence of str
        Sentences.
    edits : int
        Edits of each text, at least 0.
    seed : int, default 0
        Of the edits. The i-th text has a generator of its own, so that its edits do not
        depend on the other texts.

    Returns
    -------
    tuple of str
        The edited texts. Edits may undo each other: the Levenshtein distance to the
        original is at most `edits`.

    Raises
    ------
    TypeError, ValueError
        If `texts` is one string or holds something else, or a number is none from 0.

    References
    ----------
    PA thesis, section 4.1, Experiment 3; PA paper, appendix C.

    Examples
    --------
    >>> levenshtein_edits(["a warm film ."], 2, seed=1)
    ('a wmrm film ',)
    """
    check_count("edits", edits, minimum=0)
    check_count("seed", seed, minimum=0)
    return tuple(
        _edited(text, np.random.default_rng([seed, index]).random((edits, 3)))
        for index, text in enumerate(check_texts(texts))
    )


def _edited(text: str, draws: npt.NDArray[np.float64]) -> str:
    characters = list(text)
    for kind, place, letter in draws.tolist():
        if not characters or kind < 1 / 3:
            new = _ALPHABET[int(letter * len(_ALPHABET))]
            characters.insert(int(place * (len(characters) + 1)), new)
        elif kind < 2 / 3:
            del characters[int(place * len(characters))]
        else:
            where = int(place * len(characters))
            others = _ALPHABET.replace(characters[where], "")
            characters[where] = others[int(letter * len(others))]
    return "".join(characters)


def amplify(
    texts: Sequence[str],
    labels: Tensor | npt.NDArray[Any],
    words: int,
    *,
    how: How = "insert",
    seed: int = 0,
) -> tuple[str, ...]:
    """Put adjectives into every text that agree with its true label.

    Parameters
    ----------
    texts : sequence of str
        Sentences, words separated by spaces.
    labels : Tensor or ndarray, shape (n,)
        True classes, 0 for negative and 1 for positive.
    words : int
        Adjectives for each text, at least 0; more words keep those of fewer.
    how : {"insert", "replace"}, default "insert"
        Put each adjective between two words, or at an end; or write it over a word,
        chosen without repetition. A text of fewer words than `words` is replaced
        entirely and does not grow.
    seed : int, default 0
        Of places and adjectives.

    Raises
    ------
    TypeError, ValueError
        If `texts` is one string or holds something else, a number is none from 0, there
        is not one label for each text, or a label is neither 0 nor 1.

    References
    ----------
    PA paper, appendix C, which says addition; its Figure 10 and Figure B.6 of the PA
    thesis say replacement.

    Examples
    --------
    >>> import torch
    >>> amplify(["the plot is thin ."], torch.tensor([0]), 1, seed=1)
    ('the plot is weak thin .',)
    """
    checked = check_texts(texts)
    check_count("words", words, minimum=0)
    check_count("seed", seed, minimum=0)
    check_choice("how", how, ("insert", "replace"))
    truth = check_labels("labels", labels, length=len(checked), num_classes=2)
    if words == 0:
        return tuple(checked)
    place = _inserted if how == "insert" else _replaced
    changed = []
    for index, (text, label) in enumerate(zip(checked, truth.tolist(), strict=True)):
        draws = np.random.default_rng([seed, index]).random((words, 2))
        adjectives = POSITIVE_WORDS if label == 1 else NEGATIVE_WORDS
        changed.append(place(text.split(), draws, adjectives))
    return tuple(changed)


def contradict(
    texts: Sequence[str],
    labels: Tensor | npt.NDArray[Any],
    words: int,
    *,
    how: How = "insert",
    seed: int = 0,
) -> tuple[str, ...]:
    """Put adjectives into every text that disagree with its true label.

    At the places that :func:`amplify` uses, which describes the arguments.

    Examples
    --------
    >>> import torch
    >>> contradict(["the plot is thin ."], torch.tensor([0]), 1, seed=1)
    ('the plot is wonderful thin .',)
    """
    checked = check_texts(texts)
    truth = check_labels("labels", labels, length=len(checked), num_classes=2)
    return amplify(checked, 1 - truth, words, how=how, seed=seed)


def _inserted(
    tokens: list[str], draws: npt.NDArray[np.float64], adjectives: tuple[str, ...]
) -> str:
    for place, word in draws.tolist():
        new = adjectives[int(word * len(adjectives))]
        tokens.insert(int(place * (len(tokens) + 1)), new)
    return " ".join(tokens)


def _replaced(
    tokens: list[str], draws: npt.NDArray[np.float64], adjectives: tuple[str, ...]
) -> str:
    left = list(range(len(tokens)))
    for place, word in draws[: len(tokens)].tolist():
        where = left.pop(int(place * len(left)))
        tokens[where] = adjectives[int(word * len(adjectives))]
    return " ".join(tokens)


def check_texts(texts: Sequence[str]) -> list[str]:
    if isinstance(texts, str):
        raise TypeError("texts: expected several texts, got one string; pass [text]")
    checked = list(texts)
    for index, text in enumerate(checked):
        if not isinstance(text, str):
            raise TypeError(
                f"texts: expected strings, got {type(text).__name__} at index {index}"
            )
    return checked
