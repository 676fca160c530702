"""Sentences under Levenshtein edits, amplification and contradiction."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any, Final

import torch
from torch import Tensor

from robustbook.agreement import posterior_agreement
from robustbook.datasets import Sentences, load_sentences
from robustbook.scores import accuracy
from robustbook.studies._run import Row, Run, Setting
from robustbook.studies._scores import confidence, measure_pair
from robustbook.studies._statistics import share_row
from robustbook.text import (
    SentenceClassifier,
    amplify,
    contradict,
    levenshtein_edits,
    sentence_features,
    train_sentence_classifier,
)

#: Margin of the labels taken as logits: their posterior is certain at any beta.
CERTAIN: Final = 1e9
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


_WORDS: Final = {"amplify": amplify, "contradict": contradict}
_SHIFTS: Final = (
    ("levenshtein", "characters"), *product(_WORDS, ("insert", "replace"))
)  # fmt: skip


def edited(
    data: Sentences, kind: str, power: int, seed: int, *, how: Any = "insert"
) -> tuple[str, ...]:
    """Texts with so many edits of characters, or adjectives."""
    if kind == "levenshtein":
        return levenshtein_edits(data.texts, power, seed=seed)
    return _WORDS[kind](data.texts, data.labels, power, how=how, seed=seed)


def rows(run: Run[TextSetting]) -> Iterator[Row]:
    """Train sentence classifiers, and measure them under three shifts.

    Rows with ``what`` = "model", one for each training seed: accuracy, sizes, mean
    confidence on the clean test part, and ``label_agreement``, the agreement of the
    clean logits with the true labels (nats). And rows with ``what`` = "shift", one for
    each training seed, ``kind`` and ``how`` of the shift, ``power`` (edits, or words)
    and ``edit_seed``: the scores.

    The experiment of the PA thesis (section 4.1, Experiment 3) and of the PA paper
    (appendix C), with a small n-gram classifier and sentences instead of DistilBERT
    and IMDB reviews. Chapter 13 of this book.
    """
    setting, seed = run.setting, run.seed
    parts = {
        split: load_sentences(setting.dataset, split)
        for split in ("train", "validation", "test")
    }
    data = parts["test"]
    models = {
        training_seed: trained_classifier(
            run, parts["train"], parts["validation"], epochs=setting.epochs,
            seed=training_seed,
        )
        for training_seed in run.progress(range(seed, seed + setting.training_seeds))
    }  # fmt: skip
    clean = {number: model.logits(data.texts) for number, model in models.items()}
    for number, logits in clean.items():
        yield _model_row(number, logits, data)
    edits = product(_SHIFTS, setting.powers, range(seed, seed + setting.edit_seeds))
    for (kind, how), power, edit_seed in run.progress(edits):
        most = {"insert": setting.most_words, "replace": LONGEST}
        if power <= most.get(how, math.inf):
            edit = {"kind": kind, "how": how, "power": power, "edit_seed": edit_seed}
            arguments = models, clean, data, edit
            yield from run.rows("edited sentences", _shift_rows, *arguments)


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
        "sentence classifier", model, fit, data=[train, validation],
        epochs=epochs, training_seed=seed, code="robustbook.text",
    )  # fmt: skip
    return model


def _shift_rows(
    models: Mapping[int, SentenceClassifier], clean: Mapping[int, Tensor],
    data: Sentences, edit: Row,
) -> Iterator[Row]:  # fmt: skip
    kind, how, power, edit_seed = edit.values()
    features = sentence_features(edited(data, kind, power, edit_seed, how=how))
    for number, model in models.items():
        yield {
            "what": "shift", "dataset": data.name, "training_seed": number, **edit,
            "samples": len(data),
            **measure_pair(clean[number], model.logits(features), data.labels),
        }  # fmt: skip


def _model_row(training_seed: int, logits: Tensor, test: Sentences) -> Row:
    certain = CERTAIN * torch.nn.functional.one_hot(test.labels, 2).double()
    known = posterior_agreement(logits.double(), certain)
    return {
        "what": "model", "dataset": test.name, "training_seed": training_seed,
        "samples": len(test),
        "characters": math.fsum(map(len, test.texts)) / len(test),
        "words": math.fsum(len(text.split()) for text in test.texts) / len(test),
        **share_row("accuracy", accuracy(logits, test.labels), len(test)),
        "confidence": confidence(logits), "label_agreement": known.pa,
    }  # fmt: skip
