"""Sentences under Levenshtein edits, amplification and contradiction."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Final

import torch
from tqdm import tqdm

from robustbook.agreement import posterior_agreement
from robustbook.datasets import Sentences, load_sentences, sentences_spec
from robustbook.models import resolve_device
from robustbook.scores import accuracy
from robustbook.studies._pairs import confidence, measure_pair
from robustbook.studies._rows import Row, share_error
from robustbook.text import (
    SentenceClassifier,
    amplify,
    contradict,
    levenshtein_edits,
    sentence_features,
    train_sentence_classifier,
)

__all__ = ["text_edits"]

#: Margin of the labels taken as logits: their posterior is certain at any beta.
CERTAIN: Final = 1e9
#: No sentence has more words, so that replacing more changes nothing.
LONGEST: Final = 64


@dataclass(frozen=True)
class _Plan:
    name: str
    epochs: int
    training_seeds: int
    edit_seeds: int
    powers: tuple[int, ...]
    most_words: int


_PLANS: Final = {
    "full": _Plan(
        name="sentence-polarity",
        epochs=6,
        training_seeds=8,
        edit_seeds=3,
        powers=tuple(2**k for k in range(10)),
        most_words=512,
    ),
    "quick": _Plan(
        name="template-reviews",
        epochs=12,
        training_seeds=3,
        edit_seeds=2,
        powers=(1, 2, 4, 16, 64, 256, 512),
        most_words=64,
    ),
}

_Shift = Callable[[Sentences, int, int], tuple[str, ...]]


def _levenshtein(data: Sentences, power: int, seed: int) -> tuple[str, ...]:
    return levenshtein_edits(data.texts, power, seed=seed)


def _adjectives(
    data: Sentences, power: int, seed: int, *, kind: str, how: str
) -> tuple[str, ...]:
    change = amplify if kind == "amplify" else contradict
    return change(data.texts, data.labels, power, how=how, seed=seed)  # type: ignore[arg-type]


_SHIFTS: Final[dict[tuple[str, str], _Shift]] = {
    ("levenshtein", "characters"): _levenshtein,
    **{
        (kind, how): partial(_adjectives, kind=kind, how=how)
        for kind in ("amplify", "contradict")
        for how in ("insert", "replace")
    },
}


def text_edits(
    *,
    profile: str = "full",
    seed: int = 0,
    device: str = "auto",
) -> list[Row]:
    """Train sentence classifiers, and measure them under three shifts.

    Parameters
    ----------
    profile : {"quick", "full"}
        "full" takes sentence-polarity, "quick" template-reviews.
    seed : int
        Of the first training and the first edits; the others follow.
    device : str
        Where the classifiers are trained.

    Returns
    -------
    list of dict
        Rows with ``what`` = "model", one for each training seed: accuracies, sizes,
        mean confidence on the clean test part, and ``label_agreement``, the
        agreement of the clean logits with the true labels (nats). And rows with
        ``what`` = "shift", one for each training seed, ``kind`` and ``how`` of the
        shift, ``power`` (edits, or words) and ``edit_seed``: the scores.

    Notes
    -----
    The experiment of the PA thesis (section 4.1, Experiment 3) and of the PA paper
    (appendix C), with a small n-gram classifier and sentences instead of DistilBERT
    and IMDB reviews. Chapter 13 of this book.
    """
    plan = _PLANS[profile]
    parts = {
        split: load_sentences(plan.name, split)
        for split in ("train", "validation", "test")
    }
    data = parts["test"]
    models = {
        seed + run: train_sentence_classifier(
            parts["train"],
            parts["validation"],
            epochs=plan.epochs,
            seed=seed + run,
            device=resolve_device(device),
        )
        for run in tqdm(range(plan.training_seeds), desc="training", disable=None)
    }
    clean = {run: model.logits(data.texts) for run, model in models.items()}
    rows = [_model_row(run, models[run], parts) for run in models]
    jobs = list(product(_SHIFTS, plan.powers, range(plan.edit_seeds)))
    for (kind, how), power, draw in tqdm(jobs, desc="text_edits", disable=None):
        most = {"insert": plan.most_words, "replace": LONGEST, "characters": math.inf}
        if power > most[how]:
            continue
        changed = _SHIFTS[kind, how](data, power, seed + draw)
        features = sentence_features(changed)
        rows += [
            {
                "what": "shift",
                "dataset": plan.name,
                "training_seed": run,
                "kind": kind,
                "how": how,
                "power": power,
                "edit_seed": seed + draw,
                "samples": len(data),
                **measure_pair(clean[run], model.logits(features), data.labels),
            }
            for run, model in models.items()
        ]
    return rows


def data_sums(profile: str) -> dict[str, str]:
    """sha256 of the sentences that a profile takes, and of the files behind them."""
    name = _PLANS[profile].name
    sums = {
        f"{name} {split}": _fingerprint(load_sentences(name, split))
        for split in ("train", "validation", "test")
    }
    return {**sentences_spec(name).files, **sums}


def _model_row(run: int, model: SentenceClassifier, parts: dict[str, Sentences]) -> Row:
    test = parts["test"]
    logits = model.logits(test.texts)
    share = accuracy(logits, test.labels)
    certain = CERTAIN * torch.nn.functional.one_hot(test.labels, 2).double()
    known = posterior_agreement(logits.double(), certain)
    held_out = parts["validation"]
    return {
        "what": "model",
        "dataset": test.name,
        "training_seed": run,
        "train": len(parts["train"]),
        "validation": len(held_out),
        "samples": len(test),
        "characters": math.fsum(map(len, test.texts)) / len(test),
        "words": math.fsum(len(text.split()) for text in test.texts) / len(test),
        "validation_accuracy": accuracy(model.logits(held_out.texts), held_out.labels),
        "accuracy": share,
        "accuracy_se": share_error(share, len(test)),
        "confidence": confidence(logits),
        "label_agreement": known.pa,
        "label_agreement_se": known.standard_error,
        "label_beta": known.beta,
    }


def _fingerprint(data: Sentences) -> str:
    """sha256 of labels and texts, one a line."""
    lines = (f"{y} {x}" for x, y in zip(data.texts, data.labels.tolist(), strict=True))
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()
