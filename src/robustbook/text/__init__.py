"""Sentences: three shifts, and a small classifier that is trained in seconds.

The shifts know nothing of a model: random edits of characters, and adjectives that
agree, or disagree, with the true label.
"""

from robustbook.text._classifier import (
    SentenceClassifier,
    sentence_features,
    train_sentence_classifier,
)
from robustbook.text._edits import (
    amplify,
    contradict,
    levenshtein_edits,
)

__all__ = [
    "SentenceClassifier",
    "amplify",
    "contradict",
    "levenshtein_edits",
    "sentence_features",
    "train_sentence_classifier",
]
