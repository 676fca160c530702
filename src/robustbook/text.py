"""Shifts of sentences, and a small classifier that is trained in seconds.

Edits of characters and inserted adjectives are those of Experiment 3 of the PA papers.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence, Sized
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt
import torch
from scipy import sparse
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - torch's own name for it
from torch.utils.data import BatchSampler, RandomSampler

from robustbook._checks.arguments import (
    ArrayLike,
    check_choice,
    check_count,
    check_labels,
    check_positive,
)
from robustbook.datasets import Sentences
from robustbook.models import resolve_device

__all__ = ["amplify", "contradict", "levenshtein_edits"]

How = Literal["insert", "replace"]


def _words(text: str) -> list[str]:
    return text.split()


#: Adjectives of praise and of blame, twenty each.
POSITIVE_WORDS: Final = _words(
    "amazing beautiful brilliant charming delightful enjoyable excellent fantastic "
    "funny great moving original powerful stunning superb terrific thrilling touching "
    "warm wonderful"
)
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
    writes one of the 26 letters or a space, never the same one; a text that is empty
    gets an insertion. Source: PA thesis, section 4.1, Experiment 3; PA paper, app. C.

    Parameters
    ----------
    texts : sequence of str
        Sentences.
    edits : int
        Edits of each text, at least 0, those of fewer first. They may undo each other:
        the Levenshtein distance to the original is at most this.
    seed : int, default 0
        Seed of the edits; those of the i-th text do not depend on the other texts.

    Raises
    ------
    TypeError, ValueError
        If `texts` is one string or holds something else, or a number is none from 0.

    Examples
    --------
    >>> levenshtein_edits(["a warm film ."], 2, seed=1)
    ('a wmrm film ',)
    """
    check_count("edits", edits, minimum=0)
    check_count("seed", seed, minimum=0)
    return tuple(
        _edited(text, np.random.default_rng([seed, index]).random((edits, 3)))
        for index, text in enumerate(_check_texts(texts))
    )


def _edited(text: str, draws: npt.NDArray[np.float64]) -> str:
    characters = list(text)
    for kind, place, letter in draws.tolist():
        where = int(place * len(characters))
        if not characters or kind < 1 / 3:
            new = _ALPHABET[int(letter * len(_ALPHABET))]
            characters.insert(int(place * (len(characters) + 1)), new)
        elif kind < 2 / 3:
            del characters[where]
        else:
            others = _ALPHABET.replace(characters[where], "")
            characters[where] = others[int(letter * len(others))]
    return "".join(characters)


def amplify(
    texts: Sequence[str],
    labels: ArrayLike,
    words: int,
    *,
    how: How = "insert",
    seed: int = 0,
) -> tuple[str, ...]:
    """Put adjectives into every text that agree with its true label.

    Source: PA paper, appendix C, which says addition; its Figure 10 and Figure B.6 of
    the PA thesis say replacement.

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
        Seed of places and adjectives.

    Raises
    ------
    TypeError, ValueError
        As :func:`levenshtein_edits`, or if there is not one label, 0 or 1, a text.

    Examples
    --------
    >>> import torch
    >>> amplify(["the plot is thin ."], torch.tensor([0]), 1, seed=1)
    ('the plot is weak thin .',)
    """
    checked = _check_texts(texts)
    check_count("words", words, minimum=0)
    check_count("seed", seed, minimum=0)
    check_choice("how", how, ("insert", "replace"))
    truth = check_labels("labels", labels, length=len(checked), num_classes=2)
    if words == 0:
        return tuple(checked)
    changed = []
    for index, (text, label) in enumerate(zip(checked, truth.tolist(), strict=True)):
        draws = np.random.default_rng([seed, index]).random((words, 2))
        adjectives = POSITIVE_WORDS if label == 1 else NEGATIVE_WORDS
        tokens = text.split()
        left = list(range(len(tokens)))
        for place, word in draws.tolist():
            new = adjectives[int(word * len(adjectives))]
            if how == "insert":
                tokens.insert(int(place * (len(tokens) + 1)), new)
            elif left:
                tokens[left.pop(int(place * len(left)))] = new
        changed.append(" ".join(tokens))
    return tuple(changed)


def contradict(
    texts: Sequence[str],
    labels: ArrayLike,
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
    length = len(_check_texts(texts))
    truth = check_labels("labels", labels, length=length, num_classes=2)
    return amplify(texts, 1 - truth, words, how=how, seed=seed)


def _check_texts(texts: Sequence[str]) -> list[str]:
    if isinstance(texts, str):
        raise TypeError("texts: expected several texts, got one string; pass [text]")
    checked = list(texts)
    for index, text in enumerate(checked):
        if not isinstance(text, str):
            raise TypeError(
                f"texts: expected strings, got {type(text).__name__} at index {index}"
            )
    return checked


def _check_not_empty(name: str, texts: Sized) -> None:
    if len(texts) == 0:
        raise ValueError(f"{name}: expected at least one sentence, got none")


# -------------------------------------------------------------------- the classifier

_BUCKETS: Final = 2**16
#: The size of an embedding.
_WIDTH: Final = 16
_BATCH: Final = 64


def sentence_features(texts: Sequence[str]) -> sparse.csr_matrix:
    """Count the n-grams of sentences in hashed buckets, by scikit-learn's vectorizers.

    Words and pairs of words in the first 65 536 columns; sequences of 3 to 5
    characters inside words in the next 65 536. Present or not, each half scaled to
    Euclidean norm 1. There is no vocabulary; different n-grams may share a bucket.

    >>> features = sentence_features(["a warm film .", "dull ."])
    >>> features.shape
    (2, 131072)
    >>> features.multiply(features).sum(axis=1).A1.round(3).tolist()
    [2.0, 2.0]
    """
    from sklearn.feature_extraction.text import HashingVectorizer

    options: dict[str, Any] = {"n_features": _BUCKETS, "norm": "l2"}
    options |= {"alternate_sign": False, "binary": True, "dtype": np.float32}
    # Punctuation counts as a word: these sentences have spaces around it.
    words = HashingVectorizer(ngram_range=(1, 2), token_pattern=r"\S+", **options)
    characters = HashingVectorizer(analyzer="char_wb", ngram_range=(3, 5), **options)
    checked = _check_texts(texts)
    _check_not_empty("texts", checked)
    halves = [kind.transform(checked) for kind in (words, characters)]
    return sparse.csr_matrix(sparse.hstack(halves))


class SentenceClassifier(nn.Module):
    """Two logits of a sentence: features, a sum of embeddings, ReLU, a linear layer.

    The design is that of fastText (Joulin and others, 2017) with one ReLU; it sees
    n-grams and no order beyond them. ``train_sentence_classifier`` trains one.

    Examples
    --------
    >>> model = SentenceClassifier()
    >>> model.logits(["a warm film .", "dull ."]).shape
    torch.Size([2, 2])
    """

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.EmbeddingBag(
            2 * _BUCKETS, _WIDTH, mode="sum", include_last_offset=True, sparse=True
        )
        nn.init.normal_(self.embedding.weight, std=0.1)
        self.head = nn.Linear(_WIDTH, 2)

    def forward(self, inputs: Sequence[str] | sparse.csr_matrix) -> Tensor:
        """Return logits (n, K) of texts, or of their features."""
        features = inputs
        if not isinstance(features, sparse.csr_matrix):
            features = sentence_features(features)
        if features.shape[1] != 2 * _BUCKETS:
            raise ValueError(
                f"inputs: expected features of width {2 * _BUCKETS}, as "
                f"sentence_features makes them, got shape {features.shape}"
            )
        weight = self.embedding.weight
        summed = self.embedding(
            torch.from_numpy(features.indices.astype(np.int64)).to(weight.device),
            torch.from_numpy(features.indptr.astype(np.int64)).to(weight.device),
            per_sample_weights=torch.from_numpy(features.data).to(weight),
        )
        return self.head(summed.relu())

    @torch.no_grad()
    def logits(self, inputs: Sequence[str] | sparse.csr_matrix) -> Tensor:
        """Return logits (n, K) as :meth:`forward`, without a gradient, on the CPU."""
        return self(inputs).cpu()


def train_sentence_classifier(
    train: Sentences,
    validation: Sentences,
    *,
    epochs: int = 6,
    lr: float = 0.003,
    seed: int = 0,
    device: str | torch.device = "cpu",
) -> SentenceClassifier:
    """Train a classifier, and return it as it was in its best epoch, for evaluation.

    A few seconds on one CPU core for the 7662 sentences of "sentence-polarity". torch's
    global generator is left as it was.

    Parameters
    ----------
    train, validation : Sentences
        For the gradient, and for the choice of an epoch by accuracy (the first of the
        best, as the PA thesis does in section 4.1, Experiment 3).
    epochs, lr : int, float
        Passes over the training part, and the learning rate of Adam.
    seed : int, default 0
        Seed of the initial weights and of the order of the batches of 64.
    device : str or torch.device, default "cpu"
        Where to train; "auto" means a CUDA device if there is one.

    Examples
    --------
    >>> from robustbook.datasets import load_sentences
    >>> parts = [load_sentences("template-reviews", s) for s in ("train", "validation")]
    >>> model = train_sentence_classifier(*parts, epochs=2)
    >>> model.logits(["the plot is quite dull ."]).argmax(dim=1).tolist()
    [0]
    """
    check_count("epochs", epochs)
    check_positive("lr", lr)
    check_count("seed", seed, minimum=0)
    _check_not_empty("train", train)
    _check_not_empty("validation", validation)
    target = resolve_device(str(device))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = SentenceClassifier().to(target)
    generator = torch.Generator().manual_seed(seed)
    features, held_out = (sentence_features(part.texts) for part in (train, validation))
    labels = train.labels.to(target)
    optimizers: tuple[torch.optim.Optimizer, ...] = (
        torch.optim.SparseAdam(list(model.embedding.parameters()), lr=lr),
        torch.optim.Adam(model.head.parameters(), lr=lr),
    )
    order = BatchSampler(
        RandomSampler(range(len(train)), generator=generator), _BATCH, drop_last=False
    )
    best, weights = -1.0, model.state_dict()
    for _ in range(epochs):
        for batch in order:
            loss = F.cross_entropy(model(features[batch]), labels[batch])
            if not bool(loss.isfinite()):
                raise FloatingPointError(
                    f"the training loss is {loss.item()}; expected a finite number: "
                    f"try an lr below {lr:g}"
                )
            for optimizer in optimizers:
                optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            for optimizer in optimizers:
                optimizer.step()
        right = model.logits(held_out).argmax(dim=1) == validation.labels
        share = float(right.double().mean())
        if share > best:
            best, weights = share, copy.deepcopy(model.state_dict())
    model.load_state_dict(weights)
    return model.eval()
