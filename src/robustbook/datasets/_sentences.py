"""Sentences with a sentiment: a public collection, and one made from templates."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from torch import Tensor

from robustbook._checks.arguments import check_choice
from robustbook._store import DataUnavailableError
from robustbook.datasets._types import CollectionSpec

__all__ = [
    "Sentences",
    "SentencesSpec",
    "list_sentences",
    "load_sentences",
    "sentences_spec",
]

#: Texts and labels of one class, in the order of the source.
Labeled = list[tuple[str, int]]


@dataclass(frozen=True, eq=False)
class Sentences:
    """Sentences with their labels.

    Attributes
    ----------
    texts : tuple of str
        The sentences, without spaces at the ends.
    labels : Tensor, shape (n,)
        int64 classes: 0 is negative, 1 is positive.
    name, split : str
        Where they come from.

    Examples
    --------
    >>> test = load_sentences("template-reviews", "test")
    >>> test
    Sentences('template-reviews', 'test', 500 sentences, 2 classes)
    >>> len(test.texts), test.labels.dtype
    (500, torch.int64)
    """

    texts: tuple[str, ...]
    labels: Tensor
    name: str
    split: str

    def __post_init__(self) -> None:
        if not isinstance(self.labels, Tensor) or self.labels.dtype != torch.int64:
            raise TypeError(
                "labels: expected an int64 tensor, got "
                f"{getattr(self.labels, 'dtype', type(self.labels).__name__)}"
            )
        if (
            len(self.labels)
            and not 0 <= int(self.labels.min()) <= int(self.labels.max()) <= 1
        ):
            raise ValueError("labels: expected 0 (negative) or 1 (positive) only")
        if self.labels.shape != (len(self.texts),):
            raise ValueError(
                f"texts and labels: expected one label a sentence, got "
                f"{len(self.texts)} sentences and labels of shape "
                f"{tuple(self.labels.shape)}"
            )

    @property
    def num_classes(self) -> int:
        """The number of classes, K = 2."""
        return 2

    def __len__(self) -> int:
        return len(self.texts)

    def __repr__(self) -> str:
        return (
            f"Sentences({self.name!r}, {self.split!r}, {len(self)} sentences, "
            f"2 classes)"
        )


@dataclass(frozen=True, kw_only=True)
class SentencesSpec(CollectionSpec):
    """What the registry knows of a collection of sentences.

    Attributes
    ----------
    name, split_sizes, licence, source, files, urls, folder
        As in every collection: its name for :func:`load_sentences`, the splits and
        their numbers of sentences, what the data card says, and each file's sha256
        and address.
    read : callable
        Reads all sentences, class by class.
    """

    read: Callable[[SentencesSpec], tuple[list[str], list[str]]]


def list_sentences() -> list[str]:
    """Return the names that :func:`load_sentences` knows.

    Returns
    -------
    list of str
        Names.

    Examples
    --------
    >>> list_sentences()
    ['template-reviews', 'sentence-polarity']
    """
    return list(_REGISTRY)


def sentences_spec(name: str) -> SentencesSpec:
    """Return what the registry knows of a collection of sentences.

    Parameters
    ----------
    name : str
        One of :func:`list_sentences`.

    Returns
    -------
    SentencesSpec
        Its entry.

    Raises
    ------
    ValueError
        If there is no such collection.

    Examples
    --------
    >>> sentences_spec("sentence-polarity").split_sizes
    {'train': 7662, 'validation': 1000, 'test': 2000}
    """
    return _REGISTRY[check_choice("name", name, _REGISTRY)]


def load_sentences(name: str, split: str) -> Sentences:
    """Load a split of a collection of sentences.

    Parameters
    ----------
    name : str
        One of :func:`list_sentences`. "template-reviews" needs no file and no
        network.
    split : str
        "train", "validation" or "test".

    Returns
    -------
    Sentences
        Texts and int64 labels, 0 for negative and 1 for positive.

    Raises
    ------
    ValueError
        If there is no such collection or split.
    DataUnavailableError
        If a file is neither found nor downloaded, or its sha256 is wrong.

    Notes
    -----
    The splits are disjoint and never change: every class is permuted once by a
    frozen generator, its first sentences are "test", the next "validation", the
    rest "train", half of each split positive; then each split is permuted. No
    sentence occurs twice.

    "sentence-polarity" holds 10 662 snippets of film reviews, most of them one
    sentence, in lower case and with spaces around punctuation. A snippet's label is
    that of its review ("fresh" or "rotten"), so that it need not show the sentiment
    it is labeled with. Snippets on one film may fall into different splits.

    "template-reviews" is generated from templates of this project, so that the
    book runs without data. About one sentence in seven has no sentiment at all and
    a label drawn at random, so that no classifier can be right on all of them.

    Examples
    --------
    >>> train = load_sentences("template-reviews", "train")
    >>> train.labels.double().mean().item()
    0.5
    """
    spec = sentences_spec(name)
    spec.check_split(split)
    random = np.random.RandomState(_SPLIT_SEED)
    chosen: dict[str, Labeled] = {part: [] for part in spec.split_sizes}
    for label, texts in enumerate(spec.read(spec)):
        if 2 * len(texts) != sum(spec.split_sizes.values()):
            raise DataUnavailableError(
                f"{name}: expected {sum(spec.split_sizes.values()) // 2} sentences "
                f"of class {label}, got {len(texts)}; the files are not those of the "
                "registry"
            )
        order = iter(random.permutation(len(texts)))
        for part in ("test", "validation", "train"):
            half = spec.split_sizes[part] // 2
            chosen[part] += [(texts[next(order)], label) for _ in range(half)]
    mixed = {
        part: [chosen[part][i] for i in random.permutation(len(chosen[part]))]
        for part in ("test", "validation", "train")
    }[split]
    return Sentences(
        texts=tuple(text for text, _ in mixed),
        labels=torch.tensor([label for _, label in mixed], dtype=torch.int64),
        name=name,
        split=split,
    )


# ---------------------------------------------------------- sentence polarity


def _read_polarity(spec: SentencesSpec) -> tuple[list[str], list[str]]:
    """One sentence a line, UTF-8; negative and positive."""
    negative, positive = (
        [
            line.strip()
            for line in spec.obtain(file)
            .read_text(encoding="utf-8")
            .removesuffix("\n")
            .split("\n")  # not splitlines, which would also split at U+0085
        ]
        for file in ("rt-polarity.neg", "rt-polarity.pos")
    )
    return negative, positive


# ----------------------------------------------------------- template reviews


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


_GOOD: Final = _words(
    "brilliant charming clever delightful elegant engaging funny graceful gripping "
    "lively moving original stunning superb touching warm wise wonderful"
)
_BAD: Final = _words(
    "awful boring clumsy dreary dull empty flat forgettable lazy messy pointless "
    "predictable shallow silly stale tedious tiresome weak"
)
_PARTS: Final = _words(
    "acting camerawork cast dialogue direction ending humor lead music pacing plot "
    "premise romance script second-act story style villain"
)
_KINDS: Final = _words(
    "comedy documentary drama fable farce musical mystery remake romance satire "
    "sequel thriller"
)
_TOPICS: Final = _words(
    "brothers cooks exiles farmers ghosts lawyers musicians neighbors sailors spies "
    "teachers widows"
)
_DEGREES: Final = _words("rather quite truly very so really fairly")
_PLAIN: Final = _words("long short quiet loud french british modern costumed")
_UNMARKED: Final = 1 / 7


def _template(random: np.random.RandomState, label: int) -> str:
    """One sentence of a given label."""

    def one(words: tuple[str, ...]) -> str:
        return words[random.randint(len(words))]

    mine, other = (_GOOD, _BAD) if label else (_BAD, _GOOD)
    if random.random_sample() < _UNMARKED:
        return (
            f"a {one(_PLAIN)} {one(_KINDS)} about {one(_TOPICS)} and {one(_TOPICS)} ."
        )
    kind = random.randint(5)
    if kind == 0:
        return f"the {one(_PARTS)} is {one(_DEGREES)} {one(mine)} ."
    if kind == 1:
        return f"{one(mine)} {one(_PARTS)} and {one(mine)} {one(_PARTS)} ."
    if kind == 2:
        return (
            f"the {one(_PARTS)} is {one(other)} , but the {one(_PARTS)} is "
            f"{one(_DEGREES)} {one(mine)} and the film is {one(mine)} ."
        )
    if kind == 3:
        return f"not {one(other)} at all , this {one(_KINDS)} about {one(_TOPICS)} ."
    return (
        f"a {one(_DEGREES)} {one(mine)} {one(_KINDS)} about {one(_TOPICS)} , with "
        f"{one(mine)} {one(_PARTS)} ."
    )


def _make_templates(spec: SentencesSpec) -> tuple[list[str], list[str]]:
    """The same sentences every time: a frozen generator, no sentence twice."""
    random = np.random.RandomState(_TEMPLATE_SEED)
    half = sum(spec.split_sizes.values()) // 2
    classes: tuple[dict[str, None], dict[str, None]] = ({}, {})
    while min(len(texts) for texts in classes) < half:
        for label, texts in enumerate(classes):
            text = _template(random, label)
            if len(texts) < half and text not in classes[1 - label]:
                texts.setdefault(text)
    return list(classes[0]), list(classes[1])


_SPLIT_SEED: Final = 20240701
_TEMPLATE_SEED: Final = 20240702

_POLARITY_URL: Final = (
    "https://raw.githubusercontent.com/dennybritz/cnn-text-classification-tf/"
    "a0d0e9742b3dc42194955e78858f7be93027c75e/data/rt-polaritydata/"
)
_POLARITY_FILES: Final = {
    "rt-polarity.neg": (
        "2d11cfbc790f1cd96d78339f41ce53ced1efa83cd22d37d6788fa3fe3d17e2fd"
    ),
    "rt-polarity.pos": (
        "4134882974a28d0c7b5151256f0e33a6169984ee7372c279e673f1114f475d58"
    ),
}

_REGISTRY: Final[dict[str, SentencesSpec]] = {
    spec.name: spec
    for spec in (
        SentencesSpec(
            name="template-reviews",
            split_sizes={"train": 1200, "validation": 300, "test": 500},
            licence="MIT, as the code",
            source="generated by this package, from templates",
            files={},
            urls={},
            read=_make_templates,
        ),
        SentencesSpec(
            name="sentence-polarity",
            split_sizes={"train": 7662, "validation": 1000, "test": 2000},
            licence="none stated; published for research",
            source="Pang and Lee (2005), sentence polarity dataset v1.0",
            files=_POLARITY_FILES,
            urls={file: _POLARITY_URL + file for file in _POLARITY_FILES},
            folder="text/rt-polarity",
            read=_read_polarity,
        ),
    )
}
