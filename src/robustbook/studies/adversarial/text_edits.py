"""Sentences under Levenshtein edits, amplification and contradiction."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any, Final

import torch
from torch import Tensor

from robustbook.agreement import posterior_agreement
from robustbook.datasets import Sentences, load_sentences
from robustbook.scores import accuracy
from robustbook.studies._scores import confidence, measure_pair
from robustbook.studies._statistics import share_row
from robustbook.studies.run import Row, Run, Setting
from robustbook.text import (
    SentenceClassifier,
    amplify,
    contradict,
    levenshtein_edits,
    sentence_features,
    train_sentence_classifier,
)

#: Margin of the labels taken as logits: their posterior is certain at any beta.
_CERTAIN: Final = 1e9
#: No sentence has more words, so that replacing more changes nothing.
LONGEST: Final = 64


@dataclass(frozen=True, kw_only=True)
class TextSetting(Setting):
    """Sentences, the training of classifiers, and edits."""

    epochs: int
    training_seeds: int
    edit_seeds: int
    powers: tuple[int, ...]
    most_words: int

    kind = "sentences"


SETTINGS: Final = {
    "full": (
        TextSetting(
            dataset="sentence-polarity", epochs=6, training_seeds=8, edit_seeds=3,
            powers=tuple(2**k for k in range(10)), most_words=512,
        ),
    ),
    "quick": (
        TextSetting(
            dataset="template-reviews", epochs=12, training_seeds=3, edit_seeds=1,
            powers=(1, 2, 4, 16, 64, 256, 512), most_words=64,
        ),
    ),
}  # fmt: skip


#: Kind of an edit, how words are changed, edits or words, and a seed.
Edit = tuple[str, str, int, int]

_WORDS: Final = {"amplify": amplify, "contradict": contradict}
_SHIFTS: Final = (
    ("levenshtein", "characters"),
    *product(_WORDS, ("insert", "replace")),
)


def edited(
    data: Sentences, kind: str, power: int, seed: int, *, how: Any = "insert"
) -> tuple[str, ...]:
    """Return texts after `power` edits of characters, or with as many adjectives."""
    if kind == "levenshtein":
        return levenshtein_edits(data.texts, power, seed=seed)
    return _WORDS[kind](data.texts, data.labels, power, how=how, seed=seed)


def parts(run: Run[TextSetting]) -> Iterator[tuple[Edit | None]]:
    """The clean sentences, then each edit of them."""
    yield (None,)
    setting = run.setting
    most = {"insert": setting.most_words, "replace": LONGEST}
    seeds = run.seeds(setting.edit_seeds)
    for (kind, how), power, seed in product(_SHIFTS, setting.powers, seeds):
        if power <= most.get(how, math.inf):
            yield ((kind, how, power, seed),)


def measure(run: Run[TextSetting], edit: Edit | None) -> Iterator[Row]:
    """Train sentence classifiers, and measure them under three shifts.

    Rows with ``what`` = "model", one for each training seed: accuracy, sizes, mean
    confidence on the clean test part, and ``label_agreement``, the agreement of the
    clean logits with the true labels (nats). And rows with ``what`` = "shift", one for
    each training seed, ``kind`` and ``how`` of the shift, ``power`` (edits, or words)
    and ``edit_seed``: the scores.

    The experiment of the PA thesis (section 4.1, Experiment 3) and of the PA paper
    (appendix C), with a small n-gram classifier and sentences instead of DistilBERT
    and IMDB reviews. Chapter 14 of this book.
    """
    setting = run.setting
    train, validation, data = (
        load_sentences(setting.dataset, split)
        for split in ("train", "validation", "test")
    )
    features = sentence_features(data.texts)
    if edit is not None:
        kind, how, power, edit_seed = edit
        after = sentence_features(edited(data, kind, power, edit_seed, how=how))
    for seed in run.seeds(setting.training_seeds):
        model = trained_classifier(
            run, train, validation, epochs=setting.epochs, seed=seed
        )
        clean = model.logits(features)
        keys: Row = {"dataset": data.name, "training_seed": seed}
        if edit is None:
            yield {"what": "model", **keys, **_model_row(clean, data)}
            continue
        yield {
            "what": "shift",
            **keys,
            "kind": kind,
            "how": how,
            "power": power,
            "edit_seed": edit_seed,
            "samples": len(data),
            **measure_pair(clean, model.logits(after), data.labels),
        }


def trained_classifier(
    run: Run[Any], train: Sentences, validation: Sentences, *, epochs: int, seed: int
) -> SentenceClassifier:
    """Train a classifier, or read it from the cache."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = SentenceClassifier()

    def fit() -> None:
        best = train_sentence_classifier(
            train, validation, epochs=epochs, seed=seed, device=run.device
        )
        model.load_state_dict(best.state_dict())

    run.trained(
        "sentence classifier",
        model,
        fit,
        data=[train, validation],
        epochs=epochs,
        training_seed=seed,
        code="robustbook.text",
    )
    return model


def label_agreement(logits: Tensor, labels: Tensor) -> float:
    """The agreement of logits with labels."""
    certain = _CERTAIN * torch.nn.functional.one_hot(labels, 2).double()
    return posterior_agreement(logits.double(), certain).pa


def _model_row(logits: Tensor, test: Sentences) -> Row:
    return {
        "samples": len(test),
        "characters": math.fsum(map(len, test.texts)) / len(test),
        "words": math.fsum(len(text.split()) for text in test.texts) / len(test),
        **share_row("accuracy", accuracy(logits, test.labels), len(test)),
        "confidence": confidence(logits),
        "label_agreement": label_agreement(logits, test.labels),
    }
