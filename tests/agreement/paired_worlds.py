"""Pairs of a calibrated model, and of shifts that know no more than it does."""

import numpy as np
from scipy.special import softmax


def clean_logits(random, size, num_classes, sharp):
    """Logits whose posterior at beta = 1 is the truth."""
    logits = random.normal(size=(size, num_classes))
    logits[np.arange(size), random.integers(num_classes, size=size)] += sharp
    return logits


def source(random, size, num_classes, sharp):
    """Logits, and labels drawn from their posterior."""
    logits = clean_logits(random, size, num_classes, sharp)
    return logits, drawn(random, softmax(logits, axis=1))


def drawn(random, p):
    return (p.cumsum(1) < random.random((len(p), 1))).sum(1).clip(0, p.shape[1] - 1)


def answers_of(random, logits, keep):
    """Shifted answers: a share of the clean ones is kept, others are any class."""
    top, num_classes = logits.argmax(1), logits.shape[1]
    other = (top + random.integers(1, num_classes, size=len(top))) % num_classes
    return np.where(random.random(len(top)) < keep, top, other)


def accuracy_of(num_classes, sharp, keep, *, size=200_000):
    """The accuracy under the shift, by a large sample of exact probabilities."""
    logits = clean_logits(np.random.default_rng(99), size, num_classes, sharp)
    top = softmax(logits, axis=1).max(1).mean()
    return keep * top + (1 - keep) * (1 - top) / (num_classes - 1)
