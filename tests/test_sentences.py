"""Sentences: fixed and disjoint splits, checked files, words where one is missing."""

import hashlib
import os
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from robustbook import datasets
from robustbook.cli import app
from robustbook.datasets import Sentences, load_sentences

FOLDER = os.environ.get("ROBUSTBOOK_DATA", "")
HERE = bool(FOLDER) and (Path(FOLDER) / "text" / "rt-polarity").is_dir()
needs_polarity = pytest.mark.skipif(
    not HERE, reason="text/rt-polarity is not in the folder that ROBUSTBOOK_DATA names"
)
PARTS = ("train", "validation", "test")
COLLECTIONS = [
    "template-reviews",
    pytest.param("sentence-polarity", marks=needs_polarity),
]


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
"""


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(line, marks=[needs_polarity] * line.startswith("sentence"))
        for line in KNOWN.split("\n")[1:-1]
    ],
)
def test_sentences_never_change(line):
    name, split, size, sha256 = line.split()
    size = int(size)
    data = load_sentences(name, split)
    assert len(data) == size
    assert (data.name, data.split, data.num_classes) == (name, split, 2)
    assert data.labels.dtype == torch.int64
    assert torch.bincount(data.labels).tolist() == [size // 2, size // 2]
    assert all(text == text.strip() and text for text in data.texts)
    assert fingerprint(data).startswith(sha256)


@pytest.mark.parametrize("name", COLLECTIONS)
def test_splits_are_disjoint(name):
    parts = [set(load_sentences(name, part).texts) for part in PARTS]
    sizes = datasets.dataset_spec(name).split_sizes
    assert [len(part) for part in parts] == [sizes[part] for part in PARTS]
    assert len(set.union(*parts)) == sum(sizes.values())


@needs_polarity
def test_labels_are_those_of_the_files():
    folder = Path(FOLDER) / "text" / "rt-polarity"
    texts = [(folder / f"rt-polarity.{end}").read_bytes() for end in ("neg", "pos")]
    lines = [{line.strip() for line in text.decode().split("\n")} for text in texts]
    for part in PARTS:
        data = load_sentences("sentence-polarity", part)
        for text, label in zip(data.texts, data.labels.tolist(), strict=True):
            assert text in lines[label]


def test_unknown_names_and_splits():
    with pytest.raises(ValueError, match=r"one of template-reviews, .*'oak'"):
        load_sentences("oak", "test")
    with pytest.raises(ValueError, match=r"train, validation, test.*'dev'"):
        load_sentences("template-reviews", "dev")
    with pytest.raises(ValueError, match=r"digits, .*sentence-polarity.*'oak'"):
        datasets.fetch("oak")


def test_sentences_check_their_lengths():
    with pytest.raises(ValueError, match=r"labels: expected shape \(2,\)"):
        Sentences(("a", "b"), torch.zeros(3, dtype=torch.int64), "x", "test")


def test_commands_know_sentences():
    runner = CliRunner()
    names = runner.invoke(app, ["data", "list"]).stdout.split()
    assert {"digits", "template-reviews", "sentence-polarity"} <= set(names)
    embedded = runner.invoke(app, ["data", "fetch", "template-reviews"])
    assert (embedded.exit_code, embedded.stdout) == (0, "")
    assert "template-reviews needs no file: generated" in embedded.stderr


@needs_polarity
def test_fetch_finds_the_files():
    paths = datasets.fetch("sentence-polarity", progress=False)
    assert [path.name for path in paths] == ["rt-polarity.neg", "rt-polarity.pos"]
