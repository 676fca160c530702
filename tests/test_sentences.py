"""Sentences: fixed and disjoint splits, checked files, words where one is missing."""

import hashlib
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from robustbook import datasets
from robustbook.cli import app
from robustbook.datasets import DataUnavailableError, Sentences, load_sentences

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
    sizes = datasets.sentences_spec(name).split_sizes
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


def test_the_global_generator_is_not_touched():
    np.random.seed(3)
    expected = np.random.random()
    np.random.seed(3)
    load_sentences("template-reviews", "train")
    assert np.random.random() == expected


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


def test_missing_files_say_what_helps(no_network):
    for action in (
        lambda: load_sentences("sentence-polarity", "test"),
        lambda: datasets.fetch("sentence-polarity", progress=False),
    ):
        with pytest.raises(DataUnavailableError) as caught:
            action()
        message = str(caught.value)
        assert "\n" not in message
        assert "holds text/rt-polarity/rt-polarity.neg" in message
        assert "`robustbook data fetch sentence-polarity`" in message


@pytest.mark.parametrize("place", ["text/rt-polarity", "cache/sentence-polarity"])
def test_a_wrong_file_is_refused(no_network, monkeypatch, tmp_path, place):
    if place.startswith("text"):
        monkeypatch.setenv("ROBUSTBOOK_DATA", str(tmp_path))
    folder = tmp_path / place
    folder.mkdir(parents=True)
    (folder / "rt-polarity.neg").write_text("dull .\n", encoding="utf-8")
    with pytest.raises(DataUnavailableError, match=r"expected sha256 .* fetch it"):
        load_sentences("sentence-polarity", "test")


def test_sources_are_complete_and_on_the_data_card():
    card = (datasets.data_directory() / "README.md").read_text(encoding="utf-8")
    for name in datasets.list_sentences():
        spec = datasets.sentences_spec(name)
        assert spec.files.keys() == spec.urls.keys()
        assert spec.licence
        assert spec.source
        assert f"| `{name}` |" in card
        for file, sha256 in spec.files.items():
            assert f"[{file}]({spec.urls[file]}) | `{sha256}` |" in card


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
