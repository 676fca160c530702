"""Shifts of sentences against their definition, and a classifier that learns."""

from itertools import pairwise

import numpy as np
import pytest
import torch

from robustbook.datasets import Sentences, load_sentences
from robustbook.scores import accuracy
from robustbook.text import (
    NEGATIVE_WORDS,
    POSITIVE_WORDS,
    SentenceClassifier,
    amplify,
    contradict,
    levenshtein_edits,
    sentence_features,
    train_sentence_classifier,
)

from .conftest import needs_folder

TEXTS = ("a warm film .", "dull", "", "the plot , however , is thin .")
LABELS = torch.tensor([1, 0, 1, 0])


def distance(a, b):
    """Levenshtein distance by the table of Wagner and Fischer."""
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        before, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            cost = min(row[j] + 1, row[j - 1] + 1, before + (x != y))
            before, row[j] = row[j], cost
    return row[-1]


def is_subsequence(short, long):
    rest = iter(long)
    return all(token in rest for token in short)


# ------------------------------------------------------------------ characters


def test_kinds_and_places_are_uniform():
    text = "x" * 9  # no "x" is ever written by a substitution
    edited = levenshtein_edits([text] * 6000, 1)
    lengths = np.bincount([len(other) for other in edited], minlength=11)
    assert lengths.sum() == lengths[8:11].sum() == 6000
    assert np.abs(lengths[8:11] / 6000 - 1 / 3).max() < 0.03
    written = [o for o in edited if len(o) == 9]
    changed = [len(o) - len(o.lstrip("x")) for o in written]
    places = np.bincount(changed, minlength=9)
    assert np.abs(places / len(written) - 1 / 9).max() < 0.03
    # Also in front of the first character, and behind the last.
    longer = [o for o in edited if len(o) == 10 and set(o) != {"x"}]
    places = np.bincount([10 - len(o.lstrip("x")) for o in longer], minlength=10)
    assert np.abs(places / len(longer) - 1 / 10).max() < 0.03
    letters = {c for o in written for c in o} - {"x"}
    assert letters == set("abcdefghijklmnopqrstuvwyz ")


@pytest.mark.parametrize("seed", range(20))
def test_edits_are_nested_and_none_is_a_sham(seed):
    """On a path of edits, neighbors have distance exactly 1."""
    steps = [levenshtein_edits(TEXTS, edits, seed=seed) for edits in range(20)]
    for before, after in pairwise(steps):
        assert list(map(distance, before, after)) == [1] * len(TEXTS)


def test_edits_depend_on_seed_and_place_only():
    assert levenshtein_edits(TEXTS, 9, seed=1) == levenshtein_edits(TEXTS, 9, seed=1)
    assert levenshtein_edits(TEXTS, 9, seed=1) != levenshtein_edits(TEXTS, 9, seed=2)
    changed = ("other", *TEXTS[1:])
    assert levenshtein_edits(changed, 9)[1:] == levenshtein_edits(TEXTS, 9)[1:]
    assert len(set(levenshtein_edits(["same text"] * 50, 9))) > 45
    assert levenshtein_edits(TEXTS, 0) == TEXTS


# ------------------------------------------------------------------ adjectives


def test_the_lists_of_words():
    assert len(set(POSITIVE_WORDS)) == len(set(NEGATIVE_WORDS)) == 20
    assert not set(POSITIVE_WORDS) & set(NEGATIVE_WORDS)
    assert all(w.isalpha() and w.islower() for w in POSITIVE_WORDS + NEGATIVE_WORDS)


def test_inserted_words_take_the_side_of_the_label():
    shifted = amplify(TEXTS, LABELS, 5, seed=3)
    for text, label, changed in zip(TEXTS, LABELS.tolist(), shifted, strict=True):
        old, new = text.split(), changed.split()
        assert len(new) == len(old) + 5
        assert is_subsequence(old, new)
        added = list(new)
        for token in old:
            added.remove(token)
        assert set(added) <= set(POSITIVE_WORDS if label else NEGATIVE_WORDS)
    # Every place is as likely, the two ends among them.
    many = amplify(["x x x"] * 2000, torch.ones(2000, dtype=torch.int64), 1)
    places = np.bincount(
        [t.split().index((set(t.split()) - {"x"}).pop()) for t in many]
    )
    assert np.abs(places / 2000 - 1 / 4).max() < 0.04


@pytest.mark.parametrize("words", [1, 3, 8, 50])
def test_replaced_words_keep_the_length(words):
    changed = amplify(TEXTS, LABELS, words, how="replace", seed=3)
    for text, label, other in zip(TEXTS, LABELS.tolist(), changed, strict=True):
        old, new = text.split(), other.split()
        assert len(new) == len(old)
        differ = [b for a, b in zip(old, new, strict=True) if a != b]
        expected = POSITIVE_WORDS if label else NEGATIVE_WORDS
        assert set(differ) <= set(expected)
        if "dull" not in old:  # an adjective may be written over itself
            assert len(differ) == min(words, len(old))


def test_adjectives_are_nested_and_seeded():
    for how in ("insert", "replace"):
        steps = [amplify(TEXTS, LABELS, w, seed=4, how=how) for w in range(10)]
        for fewer, more in pairwise(steps):
            for a, b in zip(map(str.split, fewer), map(str.split, more), strict=True):
                if how == "insert":
                    assert is_subsequence(a, b)
                else:
                    assert sum(x != y for x, y in zip(a, b, strict=True)) <= 1
    assert amplify(TEXTS, LABELS, 5) == amplify(TEXTS, LABELS, 5)
    assert amplify(TEXTS, LABELS, 5) != amplify(TEXTS, LABELS, 5, seed=1)
    assert amplify(TEXTS, LABELS, 0) == TEXTS


@pytest.mark.parametrize("how", ["insert", "replace"])
@pytest.mark.parametrize("words", [0, 1, 6])
def test_contradiction_is_amplification_of_the_other_label(how, words):
    expected = amplify(TEXTS, 1 - LABELS, words, how=how, seed=3)
    assert contradict(TEXTS, LABELS, words, how=how, seed=3) == expected


# ------------------------------------------------------------------ complaints


train = train_sentence_classifier
NARROW = sentence_features(["a"])[:, :9]


HELD_OUT = load_sentences("template-reviews", "validation")


def sentences(*labels):
    kind = None if labels else torch.int64
    texts = ("dull .",) * len(labels)
    return Sentences(texts, torch.tensor(labels, dtype=kind), "x", "train")


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: levenshtein_edits("one", 1), TypeError, "one string; pass"),
        (lambda: levenshtein_edits(["a", 3], 1), TypeError, "got int at index 1"),
        (lambda: levenshtein_edits(["a"], -1), ValueError, "edits: .* at least 0"),
        (lambda: levenshtein_edits(["a"], 1.0), TypeError, "edits: .* integer"),
        (lambda: amplify(["a"], torch.tensor([2]), 1), ValueError, "from 0 to 1"),
        (lambda: amplify(["a"], torch.tensor([1, 0]), 1), ValueError, r"shape \(1,\)"),
        (lambda: amplify(["a"], torch.tensor([0.5]), 1), TypeError, "integer labels"),
        (lambda: contradict(["a"], LABELS[:1], 1, how="-"), ValueError, "how: .* '-'"),
        (lambda: sentence_features("one"), TypeError, "one string"),
        (lambda: sentence_features([]), ValueError, "texts: expected at least one"),
        (lambda: SentenceClassifier()(NARROW), ValueError, "of width"),
        (lambda: train(HELD_OUT, sentences()), ValueError, "validation: expected at"),
        (lambda: train(HELD_OUT, HELD_OUT, lr=1e30), ArithmeticError, "lr below"),
        (lambda: train(HELD_OUT, HELD_OUT, lr=-1.0), ValueError, "lr: expected"),
        (lambda: train(HELD_OUT, HELD_OUT, seed=-1), ValueError, "seed: expected"),
        (lambda: sentences(0.0), TypeError, "expected an int64 tensor"),
        (lambda: sentences(2), ValueError, "labels: .* from 0 to 1, got 2"),
        (lambda: Sentences((), LABELS[:1], "x", "train"), ValueError, "one label"),
    ],
)
def test_complaints(call, error, message):
    with pytest.raises(error, match=message):
        call()


# ------------------------------------------------------------------ classifier


def test_features_see_words_pairs_and_parts_of_words():
    def same(a, b):
        x, y = sentence_features([a, b]).toarray()
        return float(x[:65536] @ y[:65536]), float(x[65536:] @ y[65536:])

    assert same("dull plot", "dull plot") == pytest.approx((1, 1), abs=1e-5)
    words, parts = same("dull plot", "plot dull")
    assert words == pytest.approx(2 / 3, abs=1e-5)  # two of three: not the pair
    assert parts == pytest.approx(1, abs=1e-5)
    words, parts = same("wonderful", "wonderfal")
    assert words == 0
    assert parts > 0.4
    assert same(".", "!")[0] == 0  # punctuation is seen
    assert sentence_features(["", "a"]).shape == (2, 131072)


@pytest.fixture(scope="module")
def parts():
    return load_sentences("template-reviews", "train"), HELD_OUT


@pytest.fixture(scope="module")
def model(parts):
    return train_sentence_classifier(*parts, epochs=12)


def test_classifier_learns(model):
    test = load_sentences("template-reviews", "test")
    assert 0.85 < accuracy(model.logits(test.texts), test.labels) < 0.97
    assert not model.training


def test_classifier_takes_texts_or_features(model):
    texts = ["the plot is dull .", "", "a superb cast ."]
    logits = model.logits(texts)
    assert logits.shape == (3, 2)
    assert not logits.requires_grad
    assert torch.equal(logits, model.logits(sentence_features(texts)))
    assert torch.allclose(logits[1:2], model.logits([""]), atol=1e-6)
    assert model(texts).requires_grad


def test_training_is_seeded_and_leaves_the_global_generator(parts, model):
    torch.manual_seed(9)
    expected = torch.rand(1)
    torch.manual_seed(9)
    again = train_sentence_classifier(*parts, epochs=12)
    assert torch.equal(torch.rand(1), expected)
    other = train_sentence_classifier(*parts, epochs=12, seed=1)
    texts = parts[1].texts
    assert torch.equal(again.logits(texts), model.logits(texts))
    assert not torch.allclose(other.logits(texts), model.logits(texts))


def test_the_steps_are_those_of_adam_and_the_best_of_them_is_kept(parts):
    batch = Sentences(parts[0].texts[:16], parts[0].labels[:16], "x", "train")
    model = train_sentence_classifier(batch, batch, epochs=12, lr=1e-3)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        by_hand = SentenceClassifier()
    optimizers = (
        torch.optim.SparseAdam(list(by_hand.embedding.parameters()), lr=1e-3),
        torch.optim.Adam(by_hand.head.parameters(), lr=1e-3),
    )
    epochs = []
    for _ in range(12):
        loss = torch.nn.functional.cross_entropy(by_hand(batch.texts), batch.labels)
        by_hand.zero_grad()
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        logits = by_hand.logits(batch.texts)
        epochs.append((accuracy(logits, batch.labels), len(epochs), logits))
    chosen = max(epochs, key=lambda epoch: (epoch[0], -epoch[1]))
    assert 0 < chosen[1] < 11
    assert torch.allclose(model.logits(batch.texts), chosen[2], atol=1e-5)


@needs_folder("text/rt-polarity")
def test_classifier_on_real_sentences():
    train, validation, test = (
        load_sentences("sentence-polarity", s) for s in ("train", "validation", "test")
    )
    model = train_sentence_classifier(train, validation)
    assert 0.74 < accuracy(model.logits(test.texts), test.labels) < 0.82
