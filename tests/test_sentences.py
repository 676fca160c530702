"""Sentences: fixed and disjoint splits, checked files, words where one is missing."""

import hashlib
from dataclasses import replace

import pytest
import torch

from robustbook.datasets import load_sentences
from robustbook.datasets._sentences import SENTENCES

from .conftest import needs_folder

needs_polarity = needs_folder("text/rt-polarity")
#: What is made from templates needs nothing.
NEEDED = {"sentence-polarity": [needs_polarity], "imdb": [needs_folder("imdb")]}
PARTS = ("train", "validation", "test")


def fingerprint(data):
    lines = (f"{y} {x}" for x, y in zip(data.texts, data.labels.tolist(), strict=True))
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


#: Collection, split, size, and how its sha256 begins.
KNOWN = """
template-reviews train 1200 ad3fac3093c31555ecef6a9a
template-reviews validation 300 78a30362670abe16a5bf1a16
template-reviews test 500 553dfe0a5eaa5870a240494f
sentence-polarity train 7662 055d2f14f958f3875934995f
sentence-polarity validation 1000 2494d16d94780ca985392c32
sentence-polarity test 2000 7cb4650bb8dd40cc5c2a3534
imdb train 8940 6e8311f1db22fff7273b880f
imdb validation 1000 28b36491553c766d48a3e916
imdb test 5000 8e82fee7c400d90d5d114fc2
"""


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(line, marks=NEEDED.get(line.partition(" ")[0], []))
        for line in KNOWN.split("\n")[1:-1]
    ],
)
def test_sentences_never_change(line):
    name, split, size, sha256 = line.split()
    size = int(size)
    data = load_sentences(name, split)
    assert len(data) == size
    assert (data.name, data.split) == (name, split)
    assert data.labels.dtype == torch.int64
    assert torch.bincount(data.labels).tolist() == [size // 2, size // 2]
    assert all(text == text.strip() and text for text in data.texts)
    assert fingerprint(data).startswith(sha256)


def test_reviews_are_read_from_the_folders_of_their_authors(monkeypatch, tmp_path):
    monkeypatch.setenv("ROBUSTBOOK_DATA", str(tmp_path))
    spec = replace(SENTENCES["imdb"], split_sizes=dict.fromkeys(PARTS, 2))
    monkeypatch.setitem(SENTENCES, "imdb", spec)
    texts = {
        "train/neg": ["dull", "flat<br /><br />film", "twice", "in the test"],
        "train/pos": ["warm", "wise", "twice", "moving"],
        "test/neg": ["in the test", "weak"],
        "test/pos": ["superb", "lively"],
    }
    for place, some in texts.items():
        (tmp_path / "imdb" / place).mkdir(parents=True)
        for number, text in enumerate(some):
            (tmp_path / "imdb" / place / f"{number}_1.txt").write_text(text)
    found = [load_sentences("imdb", part) for part in PARTS]
    assert [len(part) for part in found] == [2, 2, 4]
    assert all(int(part.labels.sum()) == len(part) // 2 for part in found)
    trained = {*found[0].texts, *found[1].texts}
    assert trained < {"dull", "flat film", "warm", "wise", "moving"}
    assert set(found[2].texts) == {*texts["test/neg"], *texts["test/pos"]}
